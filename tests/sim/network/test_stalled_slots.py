"""The likely cause of every kind of stall, from constructed states of workers, slots and links."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pytest

from netfold.sim.engine.engine_data import (
    AtpServer,
    Branch,
    Disturbance,
    Fate,
    Frame,
    Job,
    Outstanding,
    PointView,
    Sender,
    SlotState,
    WaitingFlow,
)
from netfold.sim.network.stall import (
    CLEARED,
    CRASHED,
    Diagnosis,
    IdleWorker,
    JobOnSwitch,
    LinkOutcomes,
    NodeEvent,
    Snapshot,
    StalledSlot,
    link_outcomes,
    list_names,
    list_workers,
)
from netfold.sim.network.stalled_slots import diagnose
from netfold.switch.programs.atp import ATP
from netfold.switch.programs.tree import TREE
from netfold.topologies.network import Network
from tests.sim.scenes import small_star

NOW_PS = 3 * 10**12
WORKERS = 3
NETWORK = small_star(4)  # hosts 0 … 3, switch 4 ("s0")
JOB = Job(
    hosts=(0, 1, 2),
    switch=4,
    slot_base=8,
    unit_packets=1,
    sender=Sender(Frame("test", elements=16, overhead_bytes=36), 4, 10**9, first_timeout_ps=10**9),
    routes=(0, 0, 0),
)
IDLE = SlotState(0, WORKERS, 0, -1, -1, "", False)
HAS_IT = "worker 1 already has this result, so it never sends the unit again"
NOT_HELD = f"{HAS_IT}, and s0 does not hold it for the others"
LOST_SLOT = (
    f"{HAS_IT}: s0 lost the slot after it was complete (registers cleared at 1ms), "
    "before every worker had the result"
)


def waits(worker: int, unit: int = 0, slot: int = 8, version: int = 0, stream: int = 0) -> Outstanding:
    return Outstanding(worker, stream, unit, slot, version, 3, NOW_PS - 10**9, False)


def state(*seen: int, missing: int, last: int | None = None, children: int = WORKERS) -> SlotState:
    bitmap = sum(1 << child for child in seen)
    return SlotState(bitmap, children, missing, NOW_PS - 2 * 10**9, last or 0, "DROPPED", False)


@dataclass
class Inside:
    """An engine with given outstanding units and slot states."""

    waiting: Sequence[Outstanding] = ()
    states: Mapping[tuple[int, int, int], SlotState] = field(default_factory=dict)  # by point, slot, version
    points: Sequence[PointView] = (PointView(4, tuple(("worker", rank) for rank in range(WORKERS))),)

    def outstanding(self, job: int) -> list[Outstanding]:
        return list(self.waiting)

    def slot_state(self, job: int, point: int, slot: int, version: int) -> SlotState:
        return self.states.get((point, slot, version), IDLE)

    def job_points(self, job: int) -> Sequence[PointView]:
        return self.points


def snapshot(job: Job = JOB, network: Network = NETWORK, **changes: object) -> Snapshot:
    links: Mapping[str, LinkOutcomes] = changes.pop("links", {})  # type: ignore[assignment]  # of those named
    outcomes = [links.get(name, LinkOutcomes(10, 0, 0)) for name in network.link_names]
    opened = {(0, worker): (1, NOW_PS - 10**12) for worker in range(len(job.hosts))}
    fields = {
        "names": [""],
        "jobs": [JobOnSwitch(0, job)],
        "flows": (),
        "node_events": (),
        "total_outcomes": outcomes,
        "disturbances": (),
        "activities": {},
        "opened": opened,
        **changes,
    }
    return Snapshot(network=network, time_ps=NOW_PS, quiet_ps=10**12, outcomes=outcomes, **fields)  # type: ignore[arg-type]


MISSING_1 = {(0, 8, 0): state(0, 2, missing=1, last=2)}
ALL_WAIT = Inside([waits(0), waits(1), waits(2)], MISSING_1)
OTHERS_WAIT = Inside([waits(0), waits(2)], MISSING_1)
FIRST_WAITS = Inside([waits(0)], {(0, 8, 0): state(0, missing=2)})
WRONG_COUNTER = Inside([waits(0)], {(0, 8, 0): state(0, 1, 2, missing=2)})
LACKS_RESULT = Inside([waits(1)], {(0, 8, 0): state(1, missing=0)})
SOME_OPENED = {(0, 0): (1, 0), (0, 2): (1, 0)}
UNITS_OF_TWO = dataclasses.replace(JOB, sender=dataclasses.replace(JOB.sender, window=8), unit_packets=2)
TREE_ONCE = dataclasses.replace(JOB, program=TREE)
SMALL_BUFFERS = dataclasses.replace(NETWORK, buffer_bytes=np.full(8, 99))
CLEARED_AT_1MS = (NodeEvent(10**9, 4, CLEARED),)
CRASHED_1 = (NodeEvent(5, 1, CRASHED),)

# Workers 0 and 1 hang on the switch h3's place takes below the root; worker 2 on the root itself.
TREE_JOB = dataclasses.replace(JOB, branches=(Branch(switch=3, parent=0),), homes=(1, 1, 0))
RACKS: Sequence[PointView] = (
    PointView(4, (("worker", 2), ("point", 1))),
    PointView(3, (("worker", 0), ("worker", 1))),
)
ONCE = dataclasses.replace(TREE_JOB, program=TREE)
COMPLETE_FORGOTTEN = SlotState(0, 2, 2, NOW_PS, 0, "complete", False)


def only(inside: Inside, seen: Snapshot) -> StalledSlot:
    (row,) = diagnose(inside, seen).slots
    return row


def on_link(*outcome: int, of: str = "h1->s0", job: Job = JOB, **changes: object) -> Snapshot:
    """A snapshot where something became of the packets of one link."""
    return snapshot(job, links={of: LinkOutcomes(*outcome)}, **changes)


def copied(*names: str, outcome: Fate = Fate.DUPLICATE, count: int = 7) -> Disturbance:
    return Disturbance(outcome, count, tuple(NETWORK.link_names.index(name) for name in names))


def test_a_row_names_waiting_and_missing_workers() -> None:
    row = only(ALL_WAIT, on_link(9, 9, 0))

    assert (row.switch, row.slot, row.version, row.stream, row.unit) == ("s0", 8, 0, 0, 0)
    assert (row.waiting, row.missing, row.missing_count) == ((0, 1, 2), ("worker 1",), 1)
    assert row.age_ps == 10**12
    assert row.last_event == "last event 2ms ago: a packet of worker 2, DROPPED"
    assert row.cause.why == "link h1->s0 loses every packet (9 of 9)"
    assert row.cause.advice == "a loss below 100% for it in `faults`"


UNKNOWN = "unknown: no link on the path of worker 1 to s0 drops or loses packets"
MEETS_THERE = "the buffer of link h1->s0 is too small for the traffic that meets there"
NEVER_AGAIN = "and program tree never retransmits"
NO_LOSS = "a network without loss, or program switchml"
LATE = ", and a late packet counts for a later unit of its slot"
GAPS = ", and a message counts only if its packets arrive in order and without a gap"
CORRUPTED = (
    "workers 0 and 2 received corrupted words (`corruption` flipped bits of 4 packets on s0->h0), "
    "and therefore sent what the others do not"
)


class Stall(NamedTuple):
    """A state, and what is told of its only stalled slot."""

    inside: Inside
    seen: Snapshot
    why: str
    advice: str | None = None  # None: whatever it is


STALLS = {
    "down": Stall(ALL_WAIT, on_link(7, 0, 0, 7, True), "link h1->s0 is down: 7 packets wait for it"),
    "failed": Stall(
        ALL_WAIT,
        on_link(0, 0, 7, 0, True, 0, False, True),
        "link h1->s0 has failed: it dropped 7 packets, and routes still lead over it, because no other path "
        "is left, because of `reroute: never`, or because its tree is not rebuilt",
    ),
    "down and full": Stall(
        ALL_WAIT,
        on_link(5, 0, 2, 9, True),
        "link h1->s0 is down: 9 packets wait for it, and it refused 2 because its buffer is full",
    ),
    "down, nothing waits": Stall(ALL_WAIT, on_link(0, 0, 0, 0, True), UNKNOWN),
    "all refused": Stall(ALL_WAIT, on_link(0, 0, 7), f"{MEETS_THERE} (7 of 7 packets refused)"),
    "many lost": Stall(
        ALL_WAIT,
        on_link(9, 4, 0),
        "link h1->s0 loses so many packets that no message arrives complete (4 of 9 packets)",
    ),
    "too slow": Stall(
        ALL_WAIT,
        on_link(9, 0, 0, 30, False, 5),
        "link h1->s0 is too slow for its traffic: 30 packets wait for it",
    ),
    "fast enough": Stall(ALL_WAIT, on_link(9, 0, 0, 30, False, 4), UNKNOWN),
    "a packet too long": Stall(
        Inside([waits(1)], {(0, 8, 0): state(0, 1, 2, missing=0)}),
        on_link(0, 0, 5, of="s0->h1", network=SMALL_BUFFERS),
        "the buffer of link s0->h1, 99B, is smaller than one packet, 100B",
    ),
    "results lost": Stall(
        LACKS_RESULT, on_link(6, 6, 0, of="s0->h1"), "link s0->h1 loses every packet (6 of 6)"
    ),
    "results gone": Stall(
        LACKS_RESULT,
        snapshot(),
        "unknown: no link on the path of the results to worker 1 drops or loses packets",
    ),
    "crashed by its own account": Stall(
        Inside([waits(0), dataclasses.replace(waits(1), is_crashed=True), waits(2)], MISSING_1),
        snapshot(),
        "worker 1 has crashed",
    ),
    "crashed as was noted": Stall(OTHERS_WAIT, snapshot(node_events=CRASHED_1), "worker 1 has crashed"),
    "not begun": Stall(
        OTHERS_WAIT,
        snapshot(opened=SOME_OPENED, activities={(0, 1): "computes bucket 0 of step 0"}),
        "worker 1 has not begun this exchange: it computes bucket 0 of step 0",
    ),
    "corrupted words": Stall(
        OTHERS_WAIT,
        snapshot(opened=SOME_OPENED, disturbances=[copied("s0->h0", outcome=Fate.FLIP, count=4)]),
        CORRUPTED,
    ),
    "corrupted elsewhere": Stall(
        OTHERS_WAIT,
        snapshot(opened=SOME_OPENED, disturbances=[copied("s0->h1", outcome=Fate.FLIP, count=4)]),
        "worker 1 has not begun this exchange: it is elsewhere",
    ),
    "a full bitmap": Stall(
        WRONG_COUNTER,
        snapshot(),
        "bitmap and counter of s0 disagree after a fault: all 3 children are marked, "
        "the counter waits for 2 more",
    ),
    "a full bitmap, copies": Stall(
        WRONG_COUNTER,
        snapshot(disturbances=[copied("h1->s0"), copied("s0->h2", outcome=Fate.REORDER, count=1)]),
        f"`duplicate` copied 7 packets on h1->s0 and `reorder` delayed 1 packet on s0->h2{LATE}",
        "no duplicate and no reorder in `faults`, or a shorter delay of it",
    ),
    "a full bitmap, a reboot": Stall(
        WRONG_COUNTER,
        snapshot(node_events=CLEARED_AT_1MS),
        "bitmap and counter of s0 disagree after a fault: all 3 children are marked, "
        "the counter waits for 2 more (registers cleared at 1ms)",
        "no switch_reboot in `faults`",
    ),
    "a result lost, copies": Stall(
        FIRST_WAITS,
        snapshot(disturbances=[copied("h1->s0")]),
        f"`duplicate` copied 7 packets on h1->s0{LATE}",
        "no duplicate in `faults`, or a shorter delay of it",
    ),
    "a reboot before copies": Stall(
        FIRST_WAITS, snapshot(disturbances=[copied("h1->s0")], node_events=CLEARED_AT_1MS), LOST_SLOT
    ),
    "copies on a link of no worker": Stall(FIRST_WAITS, snapshot(disturbances=[copied("h3->s0")]), NOT_HELD),
    "losses before copies": Stall(
        ALL_WAIT,
        on_link(9, 9, 0, job=UNITS_OF_TWO, disturbances=[copied("h1->s0")]),
        "link h1->s0 loses every packet (9 of 9)",
    ),
    "copies in messages": Stall(
        ALL_WAIT,
        snapshot(UNITS_OF_TWO, disturbances=[copied("h1->s0")]),
        f"`duplicate` copied 7 packets on h1->s0{GAPS}",
    ),
    # It may have been lost at a rate of 1 %: less loss is no help, and none is needed.
    "a tree, the only packet": Stall(
        ALL_WAIT, on_link(1, 1, 0, job=TREE_ONCE), f"link h1->s0 lost 1 of 1 packets, {NEVER_AGAIN}", NO_LOSS
    ),
    "a tree, copies": Stall(
        ALL_WAIT,
        snapshot(TREE_ONCE, disturbances=[copied("s0->h1")]),
        "`duplicate` copied 7 packets on s0->h1, where a late copy counts as the slot's next packet, "
        f"{NEVER_AGAIN}",
        "no duplicate, or program switchml",
    ),
    "a tree, a reboot and losses": Stall(
        ALL_WAIT,
        on_link(
            *(2, 0, 2),
            job=TREE_ONCE,
            node_events=(
                NodeEvent(NOW_PS - 10**12 - 1, 4, CLEARED),  # before the exchange
                NodeEvent(NOW_PS - 10**12, 4, CLEARED),
                NodeEvent(NOW_PS, 3, CLEARED),  # of another switch
            ),
        ),
        "s0 lost its slots (registers cleared at 2s) and link h1->s0 lost 2 of 4 packets, " + NEVER_AGAIN,
        "no switch_reboot, a network without loss, or program switchml",
    ),
    "a tree, a reboot before": Stall(
        ALL_WAIT,
        snapshot(TREE_ONCE, node_events=(NodeEvent(NOW_PS - 10**12 - 1, 4, CLEARED),)),
        "unknown: no link on the path of workers 0, 1 and 2 through the tree and back drops or loses packets",
    ),
    "a server that hears nothing": Stall(
        Inside([waits(0), waits(1), waits(2)]),
        on_link(
            *(8, 8, 0),
            of="s0->h3",
            job=dataclasses.replace(JOB, program=ATP, server=AtpServer(3, 100, 4)),
        ),
        "link s0->h3 loses every packet (8 of 8)",
    ),
}


@pytest.mark.parametrize("name", STALLS)
def test_the_likely_cause(name: str) -> None:
    inside, seen, why, advice = STALLS[name]

    cause = only(inside, seen).cause

    assert cause.why == why
    assert advice in (None, cause.advice)


@pytest.mark.parametrize(
    ("events", "why"),
    [((), NOT_HELD), ((NodeEvent(10**9, 3, CLEARED),), NOT_HELD), (CLEARED_AT_1MS, LOST_SLOT)],
)
def test_a_slot_that_was_cleared_after_it_was_complete(events: tuple[NodeEvent, ...], why: str) -> None:
    """Worker 0 lacks the result; the others have moved on, one of them to the end of its stream."""
    states = {(0, 8, 0): state(0, missing=2), (0, 8, 1): state(1, missing=2)}
    inside = Inside([waits(0), waits(1, unit=4, version=1)], states)

    first, second = diagnose(inside, snapshot(node_events=events)).slots

    assert first.missing == ("worker 1", "worker 2")
    assert first.cause.why == why
    assert (second.waiting, second.missing) == ((1,), ("worker 0", "worker 2"))
    assert second.cause.why.startswith("worker 2 already has this result")


def test_a_worker_that_is_stalled_earlier_is_not_the_cause() -> None:
    states = {(0, 8, 0): state(0, missing=2), (0, 8, 1): state(1, 2, missing=1)}
    inside = Inside([waits(0), waits(1, unit=4, version=1), waits(2, unit=4, version=1)], states)

    first, second = diagnose(inside, snapshot()).slots

    assert first.cause.why == NOT_HELD
    assert second.cause.why == "worker 0 is stalled earlier in the same slot"
    assert [row.cause.is_consequence for row in (first, second)] == [False, True]


def test_a_crashed_worker_does_not_wait() -> None:
    """Its outstanding units have no rows."""
    crashed = dataclasses.replace(waits(1), is_crashed=True)
    dead = snapshot(node_events=CRASHED_1, activities={(0, 1): "has crashed"})

    diagnosis = diagnose(Inside([crashed], {(0, 8, 0): state(1, missing=0)}), dead)

    assert diagnosis.slots == ()
    assert str(diagnosis) == (
        "likely cause: worker 1 has crashed, and a step ends when all workers have finished it\n"
        "  try: remove the crash from `faults`: a job needs every worker\n"
        "  nothing is in flight and no event is left\n"
        "  worker 1 has crashed\n"
        "  no traffic has made progress for 1s of simulated time"
    )


SECOND_PACKET = {(0, 8, 0): state(0, 1, 2, missing=0), (0, 9, 0): state(0, 1, missing=1)}
LOW_POINT = {(0, 8, 0): state(0, missing=1, children=2), (1, 8, 0): state(0, missing=1, children=2)}
LOST_PARTIAL = {**LOW_POINT, (1, 8, 0): state(0, 1, missing=0, children=2)}
FORGOTTEN_RACK = {**LOW_POINT, (1, 8, 0): COMPLETE_FORGOTTEN}
FORGOTTEN = {(0, 8, 0): COMPLETE_FORGOTTEN, (1, 8, 0): COMPLETE_FORGOTTEN}


@pytest.mark.parametrize(
    ("states", "points", "job", "place", "missing", "count"),
    [
        pytest.param(SECOND_PACKET, None, UNITS_OF_TWO, ("s0", 9), ("worker 2",), 1, id="a packet of a unit"),
        pytest.param(LOW_POINT, RACKS, TREE_JOB, ("h3", 8), ("worker 1",), 1, id="the lowest point"),
        pytest.param(LOST_PARTIAL, RACKS, TREE_JOB, ("s0", 8), ("switch h3",), 1, id="a partial"),
        pytest.param(FORGOTTEN_RACK, RACKS, ONCE, ("s0", 8), ("switch h3",), 1, id="forgotten below"),
        pytest.param(FORGOTTEN, RACKS, ONCE, ("s0", 8), (), 0, id="forgotten everywhere"),
    ],
)
def test_who_is_missing_where(
    states: Mapping[tuple[int, int, int], SlotState],
    points: Sequence[PointView] | None,
    job: Job,
    place: tuple[str, int],
    missing: tuple[str, ...],
    count: int,
) -> None:
    inside = Inside([waits(worker) for worker in range(3)], states, points or Inside().points)

    row = only(inside, snapshot(job))

    assert ((row.switch, row.slot), row.missing, row.missing_count) == (place, missing, count)
    assert missing or ": no worker missing, last event 0s ago: a packet of worker 2, complete" in str(row)


def test_in_a_tree_a_partial_may_be_lost() -> None:
    row = only(
        Inside([waits(0), waits(1), waits(2)], LOST_PARTIAL, RACKS),
        on_link(4, 4, 0, of="h3->s0", job=TREE_JOB),
    )

    assert row.cause.why == "link h3->s0 loses every packet (4 of 4)"


def test_without_retransmission_early_losses_count() -> None:
    """The worst link of the tree, also on the path of a worker that is not missing."""
    links = {"s0->h1": LinkOutcomes(9, 1, 0), "h2->s0": LinkOutcomes(9, 2, 1)}
    outcomes = [links.get(name, LinkOutcomes(5, 0, 0)) for name in NETWORK.link_names]

    row = only(Inside([waits(0)], FORGOTTEN_RACK, RACKS), snapshot(ONCE, total_outcomes=outcomes))

    assert row.cause.why == f"link h2->s0 lost 3 of 10 packets, {NEVER_AGAIN}"
    assert row.cause.advice == NO_LOSS


def test_the_text_of_many_causes_is_short() -> None:
    """Five messages, each over its own link that loses every packet, and nine idle workers."""
    flows = [WaitingFlow(host, (host + 1) % 4, 0, 0, NOW_PS - 10**12, 100) for host in range(4)]
    links = {f"h{host}->s0": LinkOutcomes(3, 3, 0) for host in range(4)}

    text = str(diagnose(ALL_WAIT, snapshot(flows=flows, links=links)))

    assert text.count("likely cause: ") == 1
    assert text.count("\n  another cause: ") == 2
    assert text.count(", first ") == 1
    assert "\n  1 more cause is in summary.json\n" in text
    assert len(text) < 1000


def test_many_idle_workers_are_counted() -> None:
    idle = tuple(IdleWorker("", worker, "is done with step 0") for worker in range(5))

    assert str(Diagnosis(0, 0, (), (), idle)).splitlines() == [
        "nothing is in flight and no event is left",
        *(f"  worker {worker} is done with step 0" for worker in range(3)),
        "  2 more are not in an exchange",
        "  no traffic can make progress",
    ]


def test_messages_between_hosts() -> None:
    flows = (WaitingFlow(0, 1, 0, 0, NOW_PS - 10**12, 100), WaitingFlow(1, 2, 0, 0, NOW_PS - 10**12, 100))
    dead = snapshot(
        flows=flows, node_events=(NodeEvent(0, 2, CRASHED),), links={"s0->h0": LinkOutcomes(3, 3, 0)}
    )

    first, second = diagnose(Inside(), dead).messages

    assert (first.source, first.target, first.age_ps) == ("h0", "h1", 10**12)
    assert first.cause.why == "link s0->h0 loses every packet (3 of 3)"
    assert second.cause.why == "h2 has crashed"


def test_the_whole_text() -> None:
    inside = Inside([waits(0), waits(1, unit=4, version=1)], {(0, 8, 0): state(0, missing=2)})

    text = str(
        diagnose(inside, snapshot(activities={(0, 0): "waits for 'values'", (0, 2): "is done with step 0"}))
    )

    assert text == (
        f"likely cause: {NOT_HELD}\n"
        "  try: fewer `faults`, or a program whose results survive in a server (atp)\n"
        "  worker 0 waits for 1 slot, first slot 8, version 0, unit 0 of stream 0 at s0: "
        "worker 1 and worker 2 missing, last event 2ms ago: a packet of worker 0, DROPPED\n"
        "  another cause: unknown: no link on the path of worker 1 to s0 drops or loses packets\n"
        "  try: fewer `faults`, to find the one that causes it\n"
        "  worker 1 waits for 1 slot\n"
        "  worker 2 is done with step 0\n"
        "  no traffic has made progress for 1s of simulated time"
    )


def test_jobs_are_named() -> None:
    """The second job of three runs on a switch, the third is a ring whose workers have no slots."""
    inside = Inside([waits(0), waits(1), waits(2)], MISSING_1)
    seen = snapshot(
        names=["a", "b", "c"],
        jobs=[JobOnSwitch(1, JOB)],
        flows=[WaitingFlow(0, 1, 0, 0, NOW_PS - 10**12, 100, owner=2)],
        activities={(0, 5): "has crashed", (1, 2): "waits for 'values'", (2, 0): "waits for 'values'"},
    )

    diagnosis = diagnose(inside, seen)

    assert str(diagnosis.of("b")) == (
        "likely cause: unknown: no link on the path of worker 1 to s0 drops or loses packets\n"
        "  try: fewer `faults`, to find the one that causes it\n"
        "  workers 0, 1 and 2 of job b wait for 1 slot, first slot 8, version 0, unit 0 of stream 0 at s0: "
        "worker 1 missing, last event 2ms ago: a packet of worker 2, DROPPED\n"
        "  no traffic has made progress for 1s of simulated time"
    )
    assert str(diagnosis.of("a")) == (
        "likely cause: worker 5 has crashed, and a step ends when all workers have finished it\n"
        "  try: remove the crash from `faults`: a job needs every worker\n"
        "  nothing is in flight and no event is left\n"
        "  worker 5 of job a has crashed\n"
        "  no traffic has made progress for 1s of simulated time"
    )
    assert "\n  1 message of job c in flight, first a message from h0 to h1, " in str(diagnosis.of("c"))
    assert diagnosis.of("c").as_dict()["idle"] == ["worker 0 of job c waits for 'values'"]


def test_many_rows_are_counted_and_the_first_kept() -> None:
    waiting = [waits(0, unit=unit, slot=8 + unit) for unit in range(100)]
    kept = diagnose(Inside(waiting), snapshot()).as_dict()

    assert (kept["slots_count"], len(kept["slots"]), kept["messages_count"]) == (100, 64, 0)
    assert kept["slots"][0]["missing"] == ["worker 0", "worker 1", "worker 2"]
    assert set(kept["slots"][0]) >= {"why", "advice"}


def test_lists_in_words() -> None:
    assert [list_names(("a",)), list_names(("a", "b")), list_names(("a", "b", "c"))] == [
        "a",
        "a and b",
        "a, b and c",
    ]
    assert list_names([str(number) for number in range(9)]) == "0, 1, 2, 3, 4, 5 and 3 more"
    assert [list_workers([3]), list_workers([2, 0, 2])] == ["worker 3", "workers 0 and 2"]


def test_link_outcomes_are_differences_of_counters() -> None:
    before = [{"sent_packets": 5, "lost_packets": 1, "dropped_packets": 2, "busy_ps": 9}]
    after = [{"sent_packets": 9, "lost_packets": 2, "dropped_packets": 2, "in_flight_packets": 3}]

    assert link_outcomes(before, after) == [LinkOutcomes(4, 1, 0, 3, False, 3)]
    assert link_outcomes(before, after, [0]) == [LinkOutcomes(4, 1, 0, 3, True, 3)]
    assert link_outcomes(None, after) == [LinkOutcomes(9, 2, 2, 3, False, 3)]
    assert LinkOutcomes(9, 2, 3).tried == 12


def test_a_known_cause_comes_before_an_unknown_one() -> None:
    flows = [WaitingFlow(0, 1, 0, 0, NOW_PS - 10**12, 100), WaitingFlow(2, 3, 0, 0, NOW_PS - 10**12, 100)]

    text = str(
        diagnose(Inside(), snapshot(flows=flows, links={"h2->s0": LinkOutcomes(3, 3, 0)}))
    ).splitlines()

    assert text[0] == "likely cause: link h2->s0 loses every packet (3 of 3)"
    assert text[3].startswith("  another cause: unknown: ")
