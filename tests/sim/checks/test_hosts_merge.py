"""Host merges and servers' answers are checked against a replay: sound runs pass, sabotaged ones fail."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simpy

from netfold.homomorphic import codec as registry
from netfold.homomorphic.codec import Request
from netfold.homomorphic.host_merge import HostHop, replay
from netfold.homomorphic.message import Hop, HostMerge, Merge, Merged, Message
from netfold.sim.checks.rounds import HostReplay, Operation
from netfold.sim.collectives import scheduled
from netfold.sim.collectives.channels import Channels, Parcel
from netfold.sim.collectives.host_messages import MessageExchange
from netfold.sim.collectives.parameter_server.serve import ServerHost
from netfold.sim.collectives.scheduled import ScheduledCollective
from tests.sim.host_codecs import HostCodec, Memory, Union, listed, to_list
from tests.sim.scenes import run

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
    monkeypatch.setitem(registry._registry, HostCodec.kind, HostCodec)


def checks(folder: Path, how: str, collective: str, *sets: str) -> dict[str, tuple[str, str]]:
    """Verdict and detail of every check of a run that is written down."""
    sets = (f"codec.how={how}", f"collective={COLLECTIVES[collective]}", *sets)
    (variant,) = run(folder, *sets, text=SCENARIO).summary["variants"]
    return {one["name"]: (one["verdict"], one["detail"]) for one in variant["checks"]}


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
    deliver, struck = Channels._deliver, list[int]()

    def damaged(
        self: Channels, pair: tuple[int, int], packets: int, parcel: Parcel, inbox: Any, event: Any
    ) -> None:
        if pair == (source, target) and parcel.words.size and not struck:
            struck.append(parcel.words.size)
            parcel.words[-1] ^= np.uint32(1)  # the last value of a list
        deliver(self, pair, packets, parcel, inbox, event)

    monkeypatch.setattr(Channels, "_deliver", damaged)
    return struck


@pytest.mark.parametrize(
    ("how", "collective", "link"),
    [
        ("union", "all_gather", (1, 2)),
        ("cascade", "one", (1, 4)),
        ("gather", "two", (3, 4)),
        ("gather", "all_gather", (1, 2)),
        ("memory", "one", (1, 4)),
        ("memory", "all_gather", (1, 2)),
    ],
)
def test_a_damaged_packet_on_one_link_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, collective: str, link: tuple[int, int]
) -> None:
    struck = damage_once(monkeypatch, *link)
    found = checks(tmp_path, how, collective)

    assert struck
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
    merge_parts, struck = ScheduledCollective._merge_parts, list[int]()
    bit = np.uint32(1 if how == "cascade" else 1 << 22)  # of a value: lower ones may be rounded away

    def damaged(self: ScheduledCollective, under_way: Any, transfer: int) -> Any:
        schedule = under_way.schedule
        cell = under_way.cells[int(schedule.source[transfer]), int(schedule.first[transfer])]
        if schedule.target[transfer] == 2 and cell.words.size and not struck:
            struck.append(transfer)
            cell.words = cell.words.copy()
            cell.words[-1] ^= bit
        return merge_parts(self, under_way, transfer)

    monkeypatch.setattr(ScheduledCollective, "_merge_parts", damaged)
    found = checks(tmp_path, how, collective)

    assert struck
    assert found["hosts_merge_right"][0] == "fail"


def backwards(merge: HostMerge, arriving: Merged, own: Merged, key: int) -> Merged:
    """A hop that takes the arriving part for its own."""
    words = merge.merge(own.words, arriving.words, Hop(arriving.workers, own.workers, key))
    return Merged(words, arriving.workers + own.workers)


def weightless(merge: HostMerge, arriving: Merged, own: Merged, key: int) -> Merged:
    """A hop that ignores how many workers it has merged."""
    words = merge.merge(arriving.words, own.words, Hop(1, 1, key))
    return Merged(words, arriving.workers + own.workers)


@pytest.mark.parametrize(
    ("wrong", "collective"),
    [
        (backwards, "ring"),
        (weightless, "torus"),
        (backwards, "halving"),
        (weightless, "tree"),
        (backwards, "hierarchical"),
    ],
)
def test_a_hop_that_merges_the_wrong_way_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: Callable[..., Any], collective: str
) -> None:
    """Six workers: of parts of equally many workers, as those of four, the order would not matter."""
    monkeypatch.setattr(scheduled, "combine", wrong)
    found = checks(tmp_path, "cascade", collective, "workers=6")

    verdict, detail = found["hosts_merge_right"]
    assert verdict == "fail"
    assert "first in step 0, bucket 0, 'signs', message 0 of operation 0, worker 0" in detail


def dropping(without: Callable[[Any], Any]) -> Callable[..., Any]:
    """What arrives at a server, but nothing that worker 1 has sent."""

    def next_parcel(self: ServerHost, operation: MessageExchange) -> Generator[simpy.Event, Any, Any]:
        parcel: Parcel = yield self._job.inbox(self._job.workers + self.index, operation).get()
        return parcel._replace(words=without(parcel.words)) if parcel.owner == 1 else parcel

    return next_parcel


@pytest.mark.parametrize(("how", "collective"), [("union", "one"), ("gather", "two"), ("memory", "beside")])
def test_a_server_that_drops_a_workers_words_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, collective: str
) -> None:
    monkeypatch.setattr(ServerHost, "_next", dropping(lambda words: listed({})))
    found = checks(tmp_path, how, collective)

    name = "merges_are_exact" if how == "gather" else "hosts_merge_right"
    assert found[name][0] == "fail"


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


def operation(received: list[Merged], merge: Merge = Merge.HOST) -> Operation:
    host_merge = Union(40) if merge is Merge.HOST else None
    messages = [Message(words, merge, "x", host_merge=host_merge) for words in lists(len(received))]
    sent = {worker: (message,) for worker, message in enumerate(messages)}
    return Operation(sent, {worker: (one,) for worker, one in enumerate(received)})


ORDER = [[HostHop(1, 2, 5), HostHop(1, 0, 6)]]


def test_the_replay_follows_the_hops() -> None:
    right = replay(Union(40), lists(), ORDER)
    union = Union(40)
    by_hand = union.merge(union.merge(lists()[1], lists()[2], Hop(1, 1, 5)), lists()[0], Hop(2, 1, 6))
    assert by_hand.tolist() == right.tolist()

    found = HostReplay().examine((0, 0), [operation(3 * [Merged(right, 3)])], {(0, 0): ORDER})
    assert (3 * right.size, 0, "") == (found.words, found.wrong, found.first)


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
