"""What arrives: every merge, on every kind of schedule, with loss, stragglers and absent workers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.homomorphic.host_merge import replay
from netfold.homomorphic.merge import merge_all
from netfold.homomorphic.message import Merge, Message
from tests.examples import examples
from tests.sim.collectives.schedules.cases import cases, exchanged
from tests.sim.exchanges import INTEGER_MERGES, messages_of
from tests.sim.host_codecs import Cascade, Union, cascade_encoded, to_list
from tests.sim.scenes import Exchanged, small_star


@examples(40)
@given(data=st.data(), merge=st.sampled_from([*INTEGER_MERGES, Merge.TABLE_ADD]))
def test_every_worker_gets_the_merge_of_all(data: st.DataObject, merge: Merge) -> None:
    case = data.draw(cases())
    loss = data.draw(st.sampled_from([0.0, 0.02]), label="loss")
    messages = messages_of(merge, case.workers, case.size)
    pauses = [[data.draw(st.integers(0, 10**9))] for _ in messages]
    start = case.started(timeout_ps=10**8, seed=data.draw(st.integers(1, 99)))
    done = Exchanged(small_star(case.workers), start, loss).run([[(one,)] for one in messages], pauses)

    expected = merge_all(merge, [one.words for one in messages], table=messages[0].table)
    for ((merged,),) in done.received:
        assert expected.dtype == merged.words.dtype
        assert expected.tolist() == merged.words.tolist()
        assert (case.workers, None, False) == (merged.workers, merged.present, merged.is_mixed)


@examples(30)
@given(data=st.data())
def test_absent_workers_pass_on_what_arrives(data: st.DataObject) -> None:
    case = data.draw(cases(sizes=(7, 200)))
    messages = messages_of(Merge.ADD, case.workers, case.size)
    absent = data.draw(st.sets(st.integers(0, case.workers - 1)), label="absent")
    sent = [
        replace(one, words=one.words[:0], absent_words=case.size) if rank in absent else one
        for rank, one in enumerate(messages)
    ]
    done = exchanged(case, small_star(case.workers), sent)

    present = [rank not in absent for rank in range(case.workers)]
    expected = np.zeros(case.size, np.int32)
    for rank in np.flatnonzero(present):
        expected += messages[rank].words
    for ((merged,),) in done.received:
        assert expected.tolist() == merged.words.tolist()
        assert merged.workers == sum(present)
        assert all(present) if merged.present is None else merged.present.tolist() == present


@examples(30)
@given(data=st.data(), is_union=st.booleans())
def test_codecs_merge_parts_of_any_length_hop_by_hop(data: st.DataObject, is_union: bool) -> None:
    """Lists of unequal length, even empty ones, and cascaded signs, whose result depends on the order."""
    case = data.draw(cases(sizes=(64,)))
    random = np.random.default_rng(case.workers)
    if is_union:
        merge, words = Union(300), []
        for rank in range(case.workers):
            gradient = random.standard_normal(300).astype(np.float32)
            chosen = np.sort(random.choice(300, 20 * (rank % 3), replace=False))
            words.append(to_list(gradient, chosen))
    else:
        merge = Cascade()  # type: ignore[assignment]
        words = [
            cascade_encoded(random.standard_normal(300).astype(np.float32), np.float32(rank + 1))
            for rank in range(case.workers)
        ]
    done = exchanged(
        case, small_star(case.workers), [Message(one, Merge.HOST, "x", host_merge=merge) for one in words]
    )

    order = done.collective.merge_orders(0, 0)[0, 0]
    right = replay(merge, words, order)
    for ((merged,),) in done.received:
        assert right.tolist() == merged.words.tolist()
        assert merged.workers == case.workers


@pytest.mark.parametrize("seed", range(4))
def test_signs_are_one_random_workers_bits(seed: int) -> None:
    """Bits that all agree on survive; every worker's bits survive equally often, in uneven groups too."""
    from tests.reference.collectives.programs import Kind
    from tests.sim.collectives.schedules.cases import flat, hierarchy

    size = 7000
    case = [
        flat(Kind("halving_doubling"), 7, size),
        flat(Kind("tree", pieces=3), 6, size),
        hierarchy([[0, 1, 2, 3], [4]], Kind("ring"), Kind("ring"), size),
        hierarchy([[0, 1], [2, 3, 4, 5], [6]], Kind("tree"), Kind("halving_doubling"), size, 2),
    ][seed]
    messages = messages_of(Merge.SIGN, case.workers, size)
    done = exchanged(case, small_star(case.workers), messages)

    words = done.received[0][0][0].words
    assert {words.tobytes()} == {merged.words.tobytes() for ((merged,),) in done.received}
    bits = np.array([np.unpackbits(one.words.view(np.uint8)) for one in messages])
    kept = np.unpackbits(words.view(np.uint8))
    assert np.all(kept[bits.all(axis=0)] == 1)
    assert np.all(kept[~bits.any(axis=0)] == 0)
    expected = 1 / case.workers + (1 - 1 / case.workers) / 2
    agreement = (bits == kept).mean(axis=1)
    assert agreement == pytest.approx([expected] * case.workers, abs=5 * 0.5 / np.sqrt(32 * size))
