"""Any workers absent, over a ring and a switch: the merge of the others arrives, and says whose it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.homomorphic.merge import float_add_words
from netfold.homomorphic.message import MERGEABLE, Merge, Merged, Message
from netfold.sim.engine.engine import Engine
from tests.examples import examples
from tests.reference.codecs.sums import right_merge
from tests.reference.switch.merging import words_per_word
from tests.sim.exchanges import (
    FRAME,
    Network,
    draw_pauses,
    gathering,
    messages_of,
    ring,
    scaled_messages,
    serving,
    switch,
    torus,
)
from tests.sim.scenes import BYTE_PS, LINK, Exchanged, small_star

MERGES = sorted(MERGEABLE, key=lambda merge: merge.number)
HEADER = FRAME.overhead_bytes
SERVERS = 3
SWITCHES = ("switch", "messages")


def without(messages: Sequence[Message], absent: set[int]) -> list[Message]:
    return [
        replace(one, words=one.words[:0], absent_words=one.words.size)
        if rank in absent and one.words.size
        else one
        for rank, one in enumerate(messages)
    ]


def in_lanes(data: st.DataObject, messages: list[Message]) -> list[Message]:
    """Sums in lanes of some width, and a table with values that fit them."""
    widths = {Merge.ADD: [32, 16, 8, 4], Merge.TABLE_ADD: [32, 16, 8]}.get(messages[0].merge, [32])
    bits = data.draw(st.sampled_from(widths), label="lane_bits")
    table = None if messages[0].table is None else messages[0].table >> 32 - bits
    return [replace(one, lane_bits=bits, table=table) for one in messages]


def assert_right(messages: Sequence[Message], merged: Merged) -> None:
    """One worker's result, against plain Python's integers, or by what must hold of floats and signs."""
    first, size = messages[0], messages[0].size
    present = [one for one in messages if not one.is_absent]
    assert merged.workers == len(present)
    assert not merged.is_mixed
    named = [True] * len(messages) if merged.present is None else merged.present.tolist()
    assert named == [not one.is_absent for one in messages]
    if not present:
        word = -(2**31) if first.merge is Merge.MAX else 0
        assert merged.words.tolist() == [word] * (words_per_word(first.merge, first.lane_bits) * size)
        if first.scaling is not None:
            assert merged.exponents is not None
            assert set(merged.exponents.tolist()) == {-128}
    elif first.merge is Merge.SIGN:
        sent = [one.words for one in present]
        assert not (merged.words & ~np.bitwise_or.reduce(sent)).any()
        assert not (np.bitwise_and.reduce(sent) & ~merged.words).any()
    elif first.merge is Merge.FLOAT_ADD:
        wide = np.array([one.words for one in present], np.float64)
        error = np.abs(wide.sum(axis=0) - merged.words)
        assert (error <= (len(present) - 1) * 2.0**-24 * np.abs(wide).sum(axis=0)).all()
    else:
        right = right_merge(present)
        assert merged.words.tolist() == right.words
        assert right.exponents is None or merged.exponents is not None
        if merged.exponents is not None:
            assert merged.exponents.tolist() == right.exponents


STARTS = {
    "ring": lambda workers: ring(workers, FRAME),
    "torus": torus,
    "switch": lambda workers: switch(workers, FRAME, slots=4, unit_packets=1),
    "messages": lambda workers: switch(workers, FRAME, slots=4, unit_packets=2),
    "all_gather": gathering,
    "servers": lambda workers: serving(workers, SERVERS),
    "beside": lambda workers: serving(workers, workers, beside=True),
}


@pytest.mark.parametrize("start", STARTS)
@examples(40)
@given(data=st.data())
def test_any_workers_absent(start: str, data: st.DataObject) -> None:
    """Several messages at once, each with other absentees and lanes of its own; packets are lost.

    Workers begin at other times.
    """
    workers = data.draw(st.integers(1, 6))
    kinds = [merge for merge in MERGES if start not in SWITCHES or merge is not Merge.TABLE_ADD]
    columns = []
    for part in range(data.draw(st.integers(1, 3))):
        merge, size = data.draw(st.sampled_from(kinds)), data.draw(st.integers(1, 90))
        whole = in_lanes(data, messages_of(merge, workers, size, seed=part))
        absent = data.draw(st.sets(st.integers(0, workers - 1)) | st.just(set(range(workers))))
        columns.append(without(whole, absent))
    network = Network(STARTS[start](workers), data.draw(st.sampled_from([0.0, 0.05])))
    pauses = draw_pauses(data)[:workers]

    exchanged = Exchanged(
        small_star(workers + SERVERS), network.start, network.loss, seed=data.draw(st.integers(0, 99))
    )
    rows = [tuple(column[worker] for column in columns) for worker in range(workers)]
    exchanged.run([[row] for row in rows], [[pause] for pause in pauses])
    for (answers,) in exchanged.received:
        for column, merged in zip(columns, answers, strict=True):
            assert_right(column, merged)


@pytest.mark.parametrize("absent", [{0}, {1, 2}, {0, 1, 2}])
@pytest.mark.parametrize("size", [1, 16, 100])
def test_exponents_that_are_sent_ahead(absent: set[int], size: int) -> None:
    messages = without(scaled_messages(3, size, 16, seed=1), absent)
    exchanged = Exchanged(small_star(3), switch(3, FRAME, slots=4, unit_packets=1))
    assert exchanged.collective.pipelines(messages[0])
    exchanged.run([[(one,)] for one in messages])

    for ((merged,),) in exchanged.received:
        assert_right(messages, merged)


@pytest.mark.parametrize("absent", [set(), {0}, {1, 3}, {0, 1, 3}, {0, 1, 2, 3}])
def test_the_bytes_of_a_ring(absent: set[int]) -> None:
    """Chunk i starts at worker i: it is a header until it has passed a worker that is there."""
    workers, words = 4, 12
    messages = without(messages_of(Merge.ADD, workers, workers * words), absent)
    exchanged = Exchanged(small_star(workers), ring(workers, FRAME)).run([[(one,)] for one in messages])

    hops = 2 * (workers - 1)
    carrying = 0
    for chunk in range(workers):
        holders = [(chunk + hop) % workers not in absent for hop in range(workers)]
        carrying += sum(any(holders[: hop + 1]) for hop in range(hops))
    exchanged.engine.run(10**12)  # the last acknowledgements arrive
    one_way = workers * hops * (HEADER + FRAME.ack_bytes) + carrying * 4 * words
    assert sum(counters["sent_bytes"] for counters in exchanged.engine.link_counters()) == 2 * one_way
    for ((merged,),) in exchanged.received:
        assert_right(messages, merged)


@pytest.mark.parametrize("workers", [2, 3, 8])
def test_the_time_of_a_ring_of_nobody(workers: int) -> None:
    """2 (n − 1) headers, one after the other."""
    messages = without(messages_of(Merge.ADD, workers, 16 * workers), set(range(workers)))
    exchanged = Exchanged(small_star(workers), ring(workers, FRAME)).run([[(one,)] for one in messages])

    trip_ps = 2 * (LINK.delay_ps + HEADER * BYTE_PS)
    # Each but the first leaves behind an acknowledgement, and waits at the switch until another one has left
    # there, which came before it.
    behind_ps = (2 * FRAME.ack_bytes - HEADER) * BYTE_PS
    assert exchanged.end_ps == 2 * (workers - 1) * trip_ps + (2 * (workers - 1) - 1) * behind_ps


def test_a_lone_worker_s_words_pass_unchanged() -> None:
    """Negative zeros and quiet numbers too: nothing is added to them."""
    words = np.array([-0.0, np.nan, -np.inf, 1e-45] * 4, np.float32)
    messages = without([Message(words, Merge.FLOAT_ADD, "values")] * 4, {0, 1, 3})
    for start in (ring(4, FRAME), switch(4, FRAME, slots=4, unit_packets=1)):
        exchanged = Exchanged(small_star(4), start).run([[(one,)] for one in messages])
        for ((merged,),) in exchanged.received:
            assert merged.words.tobytes() == words.tobytes()
    zero = words.copy()
    float_add_words(zero, np.zeros_like(words))
    assert zero.tobytes() != words.tobytes()  # as adding a zero would


@pytest.mark.parametrize("start", STARTS)
def test_signs_weigh_as_the_workers_that_are_there(start: str) -> None:
    """One of two voters among six has ones: half of the bits survive."""
    size = 2048
    ones, zeros = np.full(size, 2**32 - 1, np.uint32), np.zeros(size, np.uint32)
    whole = [Message(ones if rank == 4 else zeros, Merge.SIGN, "signs") for rank in range(6)]
    messages = without(whole, {0, 2, 3, 5})
    exchanged = Exchanged(small_star(6 + SERVERS), STARTS[start](6)).run([[(one,)] for one in messages])

    for ((merged,),) in exchanged.received:
        share = int(np.bitwise_count(merged.words).sum()) / (32 * size)
        assert abs(share - 0.5) < 5 * 0.5 / (32 * size) ** 0.5
        assert merged.workers == 2


@pytest.mark.parametrize("workers", [33, 40])
def test_a_ring_names_any_number_of_workers(workers: int) -> None:
    messages = without(messages_of(Merge.ADD, workers, 50), {0, 32})
    exchanged = Exchanged(small_star(workers), ring(workers)).run([[(one,)] for one in messages])

    for ((merged,),) in exchanged.received:
        assert_right(messages, merged)


def test_chunks_that_disagree_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Worker 1 is told of one chunk that a worker fewer contributed."""
    right = Engine.contributors

    def forgetting(self: Engine, number: int, worker: int) -> Any:
        found = right(self, number, worker).copy()
        found[2] -= worker == 1
        return found

    monkeypatch.setattr(Engine, "contributors", forgetting)
    messages = without(messages_of(Merge.ADD, 4, 40), {2})
    exchanged = Exchanged(small_star(4), ring(4, FRAME)).run([[(one,)] for one in messages])

    mixed = [merged.is_mixed for ((merged,),) in exchanged.received]
    assert mixed == [False, True, False, False]
