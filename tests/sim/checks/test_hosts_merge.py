"""Host merges and servers' answers are checked against a replay: sound runs pass, sabotaged ones fail."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from netfold.homomorphic.codec import Request
from netfold.homomorphic.merge import Hop, HostHop, HostMerge, Merge, Merged, Words, merge_all, replay
from netfold.homomorphic.message import Message
from netfold.sim.checks import merged_signs as fairness
from netfold.sim.checks.merged_signs import STRETCH_WORDS, STRETCHES_MAX, _edges, _share, _tally
from netfold.sim.checks.merged_signs import SignCheck as Signs
from netfold.sim.checks.merged_words import HostReplay
from netfold.sim.checks.round_findings import RecordedOperation
from netfold.sim.collectives import host_messages
from netfold.sim.collectives.gathering import Gathering
from netfold.sim.collectives.host_messages import Chunk, Connections, MessageExchange, ScheduledRun
from netfold.sim.collectives.kinds.parameter_server import ServerHost
from tests.examples import examples
from tests.registry import known
from tests.sim.host_codecs import HostCodec, Memory, Union, listed, to_list
from tests.sim.scenes import simulate

Bits = NDArray[np.bool_]  # (workers, bits)


def words_of(bits: Bits) -> Words:
    """Packed bits `(…, bits)`, the first one lowest."""
    found: Words = np.packbits(bits, axis=-1, bitorder="little").view(np.uint32)
    return found


def correlated(random: np.random.Generator, workers: int, words: int, agreement: float) -> Bits:
    """Bits of which a share is the same at all workers, and the rest fair coins."""
    common = random.random(32 * words) < 0.5
    is_common = random.random((workers, 32 * words)) < agreement
    own = random.random((workers, 32 * words)) < 0.5
    return np.where(is_common, common, own)


def chosen(
    random: np.random.Generator, bits: Bits, weights: Sequence[float] | NDArray[np.float64] | None = None
) -> NDArray[np.bool_]:
    """A worker's bit at each position; `weights` are (workers,) or (positions, workers), by default equal."""
    workers, positions = bits.shape
    shares = np.full(workers, 1 / workers) if weights is None else np.asarray(weights)
    edges = np.cumsum(np.broadcast_to(shares, (positions, workers)), axis=1)
    worker = (random.random(positions)[:, np.newaxis] >= edges[:, :-1]).sum(axis=1)
    return np.take_along_axis(bits, worker[np.newaxis], axis=0)[0]


def examine(
    signs: Signs, sent: Sequence[Words | None], received: Sequence[Words], step: int = 0, bucket: int = 0
) -> None:
    """Examine a round of one message; None is an absent worker."""
    size = next(words.size for words in sent if words is not None)
    messages = [
        Message(np.empty(0, np.uint32), Merge.SIGN, "signs", absent_words=size)
        if words is None
        else Message(words, Merge.SIGN, "signs")
        for words in sent
    ]
    operation = RecordedOperation(
        {rank: (message,) for rank, message in enumerate(messages)},
        {rank: (Merged(words, len(sent)),) for rank, words in enumerate(received)},
        number=10 * step + bucket,
    )
    signs.examine(step, bucket, [operation], lambda *place: f"at {place}")


SCENARIO = """\
name: hosts
seed: 7
topology: {kind: star, hosts: 8, rate: 100Gbps, delay: 1us, switch: plain}
workers: 4
workload: {kind: synthetic, elements: 3000, steps: 2, bucket: 6KB}
codec: {kind: host_codec, how: union}
collective: {kind: ring}
faults: [{kind: loss, rate: 1%}]
"""
COLLECTIVES = {
    "ring": "{kind: ring}",
    "torus": "{kind: torus_2d, rows: 3}",
    "halving": "{kind: halving_doubling}",
    "tree": "{kind: tree}",
    "hierarchical": "{kind: hierarchical, group_size: 2, inner: {kind: ring}, outer: {kind: ring}}",
    "all_gather": "{kind: all_gather, chunk: 400B}",
    "one": "{kind: parameter_server}",
    "two": "{kind: parameter_server, servers: 2, chunk: 400B}",
    "beside": "{kind: parameter_server, servers: 4, placement: beside_workers}",
}


@pytest.fixture(autouse=True)
def codec(monkeypatch: pytest.MonkeyPatch) -> None:
    known(monkeypatch, HostCodec)


def checks(folder: Path, how: str, collective: str, *sets: str) -> dict[str, tuple[str, str]]:
    """Verdict and detail of every check of a run."""
    sets = (f"codec.how={how}", f"collective={COLLECTIVES[collective]}", *sets)
    result = simulate(folder, *sets, text=SCENARIO)
    return {check.name: (check.verdict, check.detail) for check in result.checks}


@pytest.mark.parametrize(
    ("how", "collective"),
    [
        *(("union", one) for one in ("ring", "hierarchical", "all_gather", "beside")),
        *(("cascade", one) for one in ("torus", "halving", "tree", "two")),
        *(("gather", one) for one in ("all_gather", "one")),
        *(("memory", one) for one in ("all_gather", "two", "beside")),
    ],
)
def test_sound_runs_pass(tmp_path: Path, how: str, collective: str) -> None:
    found = checks(tmp_path, how, collective)

    assert dict.fromkeys(found, "pass") == {name: verdict for name, (verdict, _) in found.items()}
    _verdict, detail = found["hosts_merge_right"]
    assert detail.endswith("words that hosts merged or passed on equal their replay")
    assert int(detail.split()[1]) > 0


def damage_once(monkeypatch: pytest.MonkeyPatch, source: int, target: int) -> list[int]:
    """Flip one bit of the last word of the first chunk with words between two hosts.

    Faults of scenarios cannot: packets between hosts with a flipped bit are always discarded.
    """
    deliver, struck = Connections._deliver, list[int]()

    def damaged(
        self: Connections, pair: tuple[int, int], packets: int, chunk: Chunk, inbox: Any, event: Any
    ) -> None:
        if pair == (source, target) and chunk.words.size and not struck:
            struck.append(chunk.words.size)
            chunk.words[-1] ^= np.uint32(1)  # the last value of a list
        deliver(self, pair, packets, chunk, inbox, event)

    monkeypatch.setattr(Connections, "_deliver", damaged)
    return struck


@pytest.mark.parametrize(
    ("how", "collective", "link"),
    [
        ("cascade", "one", (1, 4)),
        ("memory", "one", (1, 4)),
    ],
)
def test_a_damaged_packet_on_one_link_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, collective: str, link: tuple[int, int]
) -> None:
    struck = damage_once(monkeypatch, *link)
    found = checks(tmp_path, how, collective)

    assert struck
    verdict, detail = found["hosts_merge_right"]
    assert verdict == "fail"
    assert "worker " in detail


def change_gathered(monkeypatch: pytest.MonkeyPatch, change: Callable[[Words], Words]) -> None:
    """Change what worker 1 sent of each message that all workers get whole, before they merge it."""
    carry = Gathering.carry

    def changed(self: Gathering, *message: Any) -> Generator[simpy.Event, Any, list[Words]]:
        parts = yield from carry(self, *message)
        parts[1] = change(parts[1])
        return parts

    monkeypatch.setattr(Gathering, "carry", changed)


def with_another_bit(words: Words) -> Words:
    """The last value of a list is another one."""
    changed = words.copy()
    changed[-1:] ^= np.uint32(1)
    return changed


@pytest.mark.parametrize("change", [with_another_bit, lambda words: listed({})])
@pytest.mark.parametrize(
    ("how", "collective"),
    [("union", "all_gather"), ("gather", "all_gather"), ("gather", "two"), ("memory", "all_gather")],
)
def test_a_message_that_is_not_what_a_worker_sent_fails(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    how: str,
    collective: str,
    change: Callable[[Words], Words],
) -> None:
    change_gathered(monkeypatch, change)
    found = checks(tmp_path, how, collective)

    name = "merges_are_exact" if how == "gather" else "hosts_merge_right"
    assert found[name][0] == "fail"
    assert "worker " in found[name][1]


@pytest.mark.parametrize(
    ("how", "collective"),
    [("union", "ring"), ("cascade", "torus"), ("union", "tree"), ("cascade", "hierarchical")],
)
def test_a_damaged_packet_on_the_ring_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, collective: str
) -> None:
    """The last word of a part that arrives at worker 2, before it is merged."""
    merge_parts, struck = ScheduledRun._merge_parts, list[int]()
    bit = np.uint32(1 if how == "cascade" else 1 << 22)  # of a value: lower ones may be rounded away

    def damaged(self: ScheduledRun, under_way: Any, transfer: int) -> Any:
        schedule = under_way.schedule
        cell = under_way.cells[int(schedule.source[transfer]), int(schedule.first[transfer])]
        if schedule.target[transfer] == 2 and cell.words.size and not struck:
            struck.append(transfer)
            cell.words = cell.words.copy()
            cell.words[-1] ^= bit
        return merge_parts(self, under_way, transfer)

    monkeypatch.setattr(ScheduledRun, "_merge_parts", damaged)
    found = checks(tmp_path, how, collective)

    assert struck
    assert found["hosts_merge_right"][0] == "fail"


@pytest.mark.parametrize(("is_weightless", "collective"), [(False, "ring"), (True, "tree")])
def test_a_hop_that_merges_the_wrong_way_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_weightless: bool, collective: str
) -> None:
    """It ignores how many workers it has merged, or takes the arriving part for its own.

    Six workers: of parts of equally many workers, as those of four, the order would not matter.
    """

    def wrong(merge: HostMerge, arriving: Merged, residing: Merged, key: int) -> Merged:
        parts = (arriving, residing) if is_weightless else (residing, arriving)
        hop = Hop(1, 1, key) if is_weightless else Hop(arriving.workers, residing.workers, key)
        return Merged(merge.merge(*(part.words for part in parts), hop), arriving.workers + residing.workers)

    monkeypatch.setattr(host_messages, "combine", wrong)
    verdict, detail = checks(tmp_path, "cascade", collective, "workers=6")["hosts_merge_right"]

    assert verdict == "fail"
    assert "first in step 0, bucket 0, 'signs', message 0 of operation 0, worker 0" in detail


def dropping(without: Callable[[Any], Any]) -> Callable[..., Any]:
    """What arrives at a server, but nothing that worker 1 has sent."""

    def next_chunk(self: ServerHost, operation: MessageExchange) -> Generator[simpy.Event, Any, Any]:
        chunk: Chunk = yield self._job.inbox(self._job.workers + self.index, operation).get()
        return chunk._replace(words=without(chunk.words)) if chunk.owner == 1 else chunk

    return next_chunk


@pytest.mark.parametrize(("how", "collective"), [("union", "one"), ("memory", "beside")])
def test_a_server_that_drops_a_workers_words_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, collective: str
) -> None:
    monkeypatch.setattr(ServerHost, "_next", dropping(lambda words: listed({})))

    assert checks(tmp_path, how, collective)["hosts_merge_right"][0] == "fail"


def test_a_server_part_that_forgets_its_state_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first round of a bucket is right, the second depends on what was held back."""
    answer = ServerHost.answer

    def forgetful(self: ServerHost, operation: MessageExchange) -> Any:
        assert isinstance(self.part, Memory)
        self.part.held.clear()
        yield from answer(self, operation)

    monkeypatch.setattr(ServerHost, "answer", forgetful)
    verdict, detail = checks(tmp_path, "memory", "two")["hosts_merge_right"]

    assert verdict == "fail"
    assert "first in step 1, bucket 0, the answer to 'largest'" in detail


def test_a_server_that_drops_a_worker_from_a_sum_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a codec whose words no host merges: there is no replay of them, and the sum is wrong."""
    monkeypatch.setattr(ServerHost, "_next", dropping(lambda words: 0 * words))
    found = checks(tmp_path, "union", "two", "codec={kind: fixed_point}")

    assert "hosts_merge_right" not in found
    assert found["merges_are_exact"][0] == "fail"
    assert "at the servers, as worker 0 pulled it" in found["merges_are_exact"][1]


def test_a_replica_that_differs_from_the_others_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    merge = Memory.merge
    made: list[Memory] = []

    def wrong(self: Memory, parts: Any, request: Request) -> Any:
        made.extend([self] if all(self is not one for one in made) else [])
        is_third = len(made) > 2 and self is made[2]
        return merge(self, parts[:-1] if is_third else parts, request)

    monkeypatch.setattr(Memory, "merge", wrong)
    found = checks(tmp_path, "memory", "all_gather")

    assert found["hosts_merge_right"][0] == found["replicas_agree"][0] == "fail"


def lists(count: int = 3) -> list[Any]:
    gradients = np.random.default_rng(5).standard_normal((count, 40)).astype(np.float32)
    return [to_list(gradient, np.arange(rank, 40, 3)) for rank, gradient in enumerate(gradients)]


def operation(received: list[Merged], merge: Merge = Merge.HOST) -> RecordedOperation:
    host_merge = Union(40) if merge is Merge.HOST else None
    messages = [Message(words, merge, "x", host_merge=host_merge) for words in lists(len(received))]
    sent = {worker: (message,) for worker, message in enumerate(messages)}
    return RecordedOperation(sent, {worker: (one,) for worker, one in enumerate(received)})


ORDER = [[HostHop(1, 2, 5), HostHop(1, 0, 6)]]


def test_the_replay_follows_the_hops() -> None:
    right = replay(Union(40), lists(), ORDER)
    union = Union(40)
    by_hand = union.merge(union.merge(lists()[1], lists()[2], Hop(1, 1, 5)), lists()[0], Hop(2, 1, 6))
    assert by_hand.tolist() == right.tolist()

    found = HostReplay().examine((0, 0), [operation(3 * [Merged(right, 3)])], {(0, 0): ORDER})
    assert (3 * right.size, 0, "") == (found.words, found.wrong, found.first)
    alone = HostReplay().examine((0, 0), [operation([Merged(lists(1)[0], 1)])], {(0, 0): [[]]})
    assert (alone.words, alone.wrong) == (lists(1)[0].size, 0)


def test_one_wrong_word_and_words_that_are_missing_are_found_and_named() -> None:
    right = replay(Union(40), lists(), ORDER)
    wrong = right.copy()
    wrong[3] ^= np.uint32(1 << 31)
    received = [Merged(right, 3), Merged(right, 3), Merged(wrong, 3)]

    found = HostReplay().examine((0, 0), [operation(received)], {(0, 0): ORDER})

    assert found.wrong == 1
    values = f"received {wrong[3]:#010x}, the replay has {right[3]:#010x}"
    assert found.first == f"'x', message 0 of operation 0, worker 2, word 3 ({values})"
    short = HostReplay().examine((0, 0), [operation(3 * [Merged(right[:-1], 3)])], {(0, 0): ORDER})
    assert short.wrong == 3 * right.size
    assert f"worker 0: {right.size - 1} words, the replay has {right.size}" in short.first


@pytest.mark.parametrize(
    ("order", "told"),
    [
        (None, "the collective does not say how it was merged"),
        ([[HostHop(1, 2, 5)]], "part 0 leaves out workers: 2 were not merged with each other"),
        ([[*ORDER[0], HostHop(1, 0, 7)]], "part 0 merges worker 0 into 1 out of order"),
        ([[HostHop(1, 1, 5), *ORDER[0]]], "part 0 merges worker 1 into 1 out of order"),
    ],
)
def test_an_order_that_is_none_is_wrong(order: Any, told: str) -> None:
    right = replay(Union(40), lists(), ORDER)
    orders = {} if order is None else {(0, 0): order}
    found = HostReplay().examine((0, 0), [operation(3 * [Merged(right, 3)])], orders)
    assert (1, f"'x', message 0 of operation 0: {told}") == (found.wrong, found.first)


def test_gathered_messages_that_never_came_are_missed() -> None:
    whole = Merged(lists()[0][:0], 3, parts=tuple(lists()))
    lacking = replace(whole, parts=())
    received = [whole, lacking, whole]
    found = HostReplay().examine((0, 0), [operation(received, Merge.GATHER)], {})
    assert (found.wrong, found.first.count("worker 1: 0 of 3 messages arrived")) == (1, 1)


def test_a_servers_answer_is_that_of_the_replica() -> None:
    right = Memory(40).merge(lists(), Request(2, 1, 0, "x"))
    sound, wrong = (
        HostReplay(Memory(40)).examine((2, 1), [operation(3 * [Merged(words, 3)], Merge.GATHER)], {})
        for words in (right, right[::-1].copy())
    )
    assert sound.wrong == 0
    assert wrong.wrong > 0
    assert wrong.first.startswith("the answer to 'x', message 0 of operation 0, worker 0, word 0")


ALL = 2**32 - 1


def words(*values: int) -> np.ndarray:
    return np.array(values, np.uint32)


@given(st.integers(1, 5), st.integers(1, 40), st.sampled_from([0.0, 0.5, 0.9]), st.integers(0, 2**32))
@examples(30)
def test_sums_of_stretches_by_hand(workers: int, size: int, agreement: float, seed: int) -> None:
    """One position at a time, in fractions; a merged bit that nobody sent is in no sum."""
    random = np.random.default_rng(seed)
    bits = correlated(random, workers, size, agreement)
    merged = chosen(random, bits)
    merged[::7] ^= True
    edges = np.array([0, size // 3, size // 3, size])

    wrong, sums = _tally(list(words_of(bits)), words_of(merged), edges)

    for stretch in range(3):
        deviations, variance = [Fraction(0)] * (workers + 1), Fraction(0)
        for position in range(32 * edges[stretch], 32 * edges[stretch + 1]):
            ones = Fraction(int(bits[:, position].sum()), workers)
            if ones not in (0, 1):
                excess = int(merged[position]) - ones
                variance += ones * (1 - ones)
                for worker in range(workers):
                    deviations[worker] += excess if bits[worker, position] else -excess
                deviations[workers] += excess
        assert sums.deviations[stretch].tolist() == pytest.approx([float(one) for one in deviations])
        assert sums.variances[stretch] == pytest.approx(float(variance))
    agreed = bits.all(axis=0) | ~bits.any(axis=0)
    is_wrong = (agreed & (merged != bits[0])).reshape(-1, 32).any(axis=1)
    assert wrong == np.count_nonzero(is_wrong)


@pytest.mark.parametrize(
    ("bit", "word", "common"),
    [(0, 0, 0), (1, 4095, 1), (17, 4096, 0), (31, 5000, 1), (31, 4096, 1), (0, 5000, 0)],
)
def test_a_bit_that_nobody_sent(bit: int, word: int, common: int) -> None:
    """At a place where all agree, in any part of a long message; elsewhere both values are some worker's."""
    random = np.random.default_rng(3)
    bits = random.random((3, 32 * 5001)) < 0.5
    bits[:, 32 * word + bit] = common
    merged = words_of(chosen(random, bits))
    wrong = merged.copy()
    wrong[word] ^= np.uint32(1 << bit)

    fair, unfair = Signs(), Signs()
    examine(fair, list(words_of(bits)), [merged] * 3)
    examine(unfair, list(words_of(bits)), [wrong] * 3, step=2, bucket=4)

    assert (fair.words, fair.wrong_words, fair.first_wrong) == (3 * 5001, 0, None)
    assert unfair.wrong_words == 3
    assert str(unfair.first_wrong) == (
        f"worker 0, word {word} of 'signs' (step 2, bucket 4, operation 0) (no worker sent its bits "
        f"{1 << bit:#010x}): at (0, (2, 4, 0), 0, {word})"
    )
    assert (fair.first_unfair, unfair.first_unfair) == (None, None)


@pytest.mark.parametrize("odd", [0, 1, 2])
@pytest.mark.parametrize("is_shared", [True, False])
def test_a_worker_that_received_other_bits_is_named(odd: int, is_shared: bool) -> None:
    """Though both are some worker's: a merged message has one value, the one that most received."""
    sent = [words(0, 0b11), words(0, 0b01), words(0, 0b00)]
    usual = words(0, 0b01)
    received = [words(0, 0b11) if rank == odd else usual if is_shared else usual.copy() for rank in range(3)]
    signs = Signs()
    examine(signs, sent, received)

    assert signs.wrong_words == 1
    assert str(signs.first_wrong) == (
        f"worker {odd}, word 1 of 'signs' (step 0, bucket 0, operation 0) (received 0x00000003, worker "
        f"{0 if odd else 1} received 0x00000001): at ({odd}, (0, 0, 0), 0, 1)"
    )


@pytest.mark.parametrize("size", [0, 1, 3])
def test_a_result_of_another_length_is_wrong_as_a_whole(size: int) -> None:
    signs = Signs()
    examine(signs, [words(0, 0)] * 2, [words(0, 0), words(*[0] * size)])

    assert signs.wrong_words == 2
    assert f"(it has {size} words, 2 were sent)" in str(signs.first_wrong)


def test_absent_workers_have_no_bits() -> None:
    """What worker 1 would have sent is not known; the others' bits are held to their own two."""
    signs = Signs()
    examine(signs, [words(0b11), None, words(0b01)], [words(0b01)] * 3)
    assert (signs.words, signs.wrong_words) == (3, 0)

    examine(signs, [words(0b11), None, words(0b01)], [words(0b00)] * 3)
    assert signs.wrong_words == 3
    both = Signs()  # where workers disagree, either is right
    examine(both, [words(0b11), words(0b01)], [words(0b11)] * 2)
    assert both.wrong_words == 0


def test_the_rank_of_an_unfair_worker_counts_absent_ones() -> None:
    random = np.random.default_rng(1)
    bits = random.random((3, 32 * 500)) < 0.5
    sent = list(words_of(bits))
    signs = Signs()
    examine(signs, [sent[0], None, sent[1], sent[2]], [words_of(chosen(random, bits, (0.2, 0.2, 0.6)))] * 4)

    assert str(signs.first_unfair).startswith("worker 3's bits survive more often than its weight allows in ")


@pytest.mark.parametrize("size", [1, 300, 8192, 10**7])
@pytest.mark.parametrize("workers", [1, 3, 32, 100])
def test_stretches_cover_a_message(size: int, workers: int) -> None:
    """A power of two of them; at least four for each segment of a ring; short ones in a long message."""
    edges = _edges(size, workers)
    count = edges.size - 1

    assert (edges[0], edges[-1]) == (0, size)
    assert (np.diff(edges) >= 0).all()
    assert count & (count - 1) == 0
    assert min(4 * workers, STRETCHES_MAX) <= count <= STRETCHES_MAX
    assert count < 2 * max(4 * workers, -(-size // STRETCH_WORDS))  # half as many would be too few
    assert np.diff(edges).max() <= max(STRETCH_WORDS, size // STRETCHES_MAX + 1)


def merged_by_netfold(bits: np.ndarray, key: int, order: list[int]) -> np.ndarray:
    sent = list(words_of(bits))
    return merge_all(Merge.SIGN, [sent[rank] for rank in order], key)


@pytest.mark.parametrize("workers", [2, 3, 8])
def test_fair_merges_pass(workers: int) -> None:
    """netfold's own, in several orders, for bits that agree seldom or often, over many rounds."""
    random = np.random.default_rng(workers)
    signs = Signs()
    for step in range(30):
        bits = correlated(random, workers, 200, agreement=random.choice([0.0, 0.3, 0.95]))
        merged = merged_by_netfold(bits, key=step, order=random.permutation(workers).tolist())
        examine(signs, list(words_of(bits)), [merged] * workers, step)

    assert (signs.wrong_words, signs.first_unfair) == (0, None)


WORKERS, WORDS = 8, 131_072 // 32


def segments() -> np.ndarray:
    """Positions of each segment of a ring, as the ring divides them."""
    bounds = [WORDS * index // WORKERS for index in range(WORKERS + 1)]
    return np.repeat(np.arange(WORKERS), 32 * np.diff(bounds))


def half_weights(first: int) -> np.ndarray:
    """Each arrival takes over with probability 1/2: the last one's bits survive half of the time."""
    order = (first + np.arange(WORKERS)) % WORKERS
    weights = np.empty(WORKERS)
    weights[order] = 2.0 ** np.array([-(WORKERS - 1), *range(-(WORKERS - 1), 0)])
    return weights


def test_a_ring_that_merges_with_weight_a_half() -> None:
    """Each segment begins at another worker, so that over the whole vector all weights are the same."""
    random = np.random.default_rng(2)
    table = np.stack([half_weights(segment) for segment in range(WORKERS)])
    assert table.mean(axis=0) == pytest.approx(np.full(WORKERS, 1 / WORKERS))
    signs = Signs()
    for step in range(2):
        bits = correlated(random, WORKERS, WORDS, agreement=0.2)
        merged = words_of(chosen(random, bits, table[segments()]))
        examine(signs, list(words_of(bits)), [merged] * WORKERS, step)

    assert signs.wrong_words == 0
    unfair = signs.first_unfair
    assert unfair is not None
    assert unfair.bias.worker is not None
    first, last = unfair.words
    assert WORDS * unfair.place.operation == 0
    segment = first * WORKERS // WORDS
    assert segment == last * WORKERS // WORDS  # the stretch lies in one segment
    assert unfair.bias.worker == (segment - 1) % WORKERS  # who merges it last
    assert unfair.bias.sigmas > 25


def test_weights_that_are_a_little_wrong_are_found_over_rounds() -> None:
    """640 elements, worker 3 has 0.2 in place of 1/8: no round shows it, the run does."""
    random = np.random.default_rng(11)
    weights = np.full(WORKERS, 0.8 / 7)
    weights[3] = 0.2
    signs, single = Signs(), 0
    step = 0
    while signs.first_unfair is None and step < 400:
        bits = correlated(random, WORKERS, 20, agreement=0.0)
        received = [words_of(chosen(random, bits, weights))] * WORKERS
        examine(signs, list(words_of(bits)), received, step, bucket=step % 2)
        alone = Signs()
        examine(alone, list(words_of(bits)), received, step)
        single += alone.first_unfair is not None
        step += 1

    assert single == 0
    assert step < 200
    found = str(signs.first_unfair)
    assert found.startswith("worker 3's bits survive more often than its weight allows in words 0 to 19 of ")
    assert f", over {step} messages: " in found


@pytest.mark.parametrize("value", [0, 1])
def test_a_union_is_no_fair_merge(value: int) -> None:
    """Of two workers' random bits none survives more often than the other's; but ones do."""
    random = np.random.default_rng(4)
    bits = random.random((2, 32 * 100)) < 0.5
    signs = Signs()
    examine(signs, list(words_of(bits)), [words_of(bits.any(axis=0) if value else bits.all(axis=0))] * 2)

    often = "more" if value else "less"
    assert str(signs.first_unfair).startswith(
        f"merged bits are one {often} often than they were sent in words "
    )


def test_alarms_are_rare_enough_for_a_hundred_jobs() -> None:
    """The shares of all messages of a job add up to a half."""
    shares = sum(_share(number) for number in range(1, 10**4))
    assert 0.5 - 1e-4 < shares < 0.5
    assert fairness.FALSE_ALARMS * 100 <= 1e-6
