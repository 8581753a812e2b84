"""The likely cause of every kind of stall, from constructed states of workers, slots and links."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from netfold.sim.diagnosis.links import LinkOutcomes, link_outcomes
from netfold.sim.diagnosis.report import Diagnosis, IdleWorker, StuckSlot, listed, workers_listed
from netfold.sim.diagnosis.slots import diagnose
from netfold.sim.diagnosis.snapshot import (
    CLEARED,
    CRASHED,
    JobOnSwitch,
    NodeEvent,
    Opened,
    Snapshot,
    WaitingFlow,
)
from netfold.sim.engine.interface import (
    Branch,
    Disturbance,
    Fate,
    Frame,
    Job,
    Outstanding,
    PointView,
    Server,
    SlotState,
)
from netfold.switch.programs.atp import ATP
from netfold.switch.programs.tree import TREE
from netfold.topologies.routing import Network
from tests.sim.scenes import small_star

NOW_PS = 3 * 10**12
WORKERS = 3
NETWORK = small_star(4)  # hosts 0 … 3, switch 4 ("s0")
JOB = Job(
    hosts=(0, 1, 2),
    switch=4,
    slot_base=8,
    slots_count=4,
    unit_packets=1,
    frame=Frame("test", elements=16, overhead_bytes=36),
    timeout_ps=10**9,
    first_timeout_ps=10**9,
    timeout_max_ps=10**9,
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
    opened = {(0, worker): Opened(1, NOW_PS - 10**12) for worker in range(len(job.hosts))}
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


def slots(inside: Inside, seen: Snapshot) -> list[StuckSlot]:
    return list(diagnose(inside, seen).slots)


MISSING_1 = {(0, 8, 0): state(0, 2, missing=1, last=2)}


def only(inside: Inside, seen: Snapshot) -> StuckSlot:
    (row,) = slots(inside, seen)
    return row


def test_a_row_names_waiting_and_missing_workers() -> None:
    row = only(
        Inside([waits(0), waits(1), waits(2)], MISSING_1), snapshot(links={"h1->s0": LinkOutcomes(9, 9, 0)})
    )

    assert (row.switch, row.slot, row.version, row.stream, row.unit) == ("s0", 8, 0, 0, 0)
    assert (row.waiting, row.missing, row.missing_count) == ((0, 1, 2), ("worker 1",), 1)
    assert row.age_ps == 10**12
    assert row.last_event == "last event 2ms ago: a packet of worker 2, DROPPED"
    assert row.cause.why == "link h1->s0 loses every packet (9 of 9)"
    assert row.cause.advice == "a loss below 100% for it in `faults`"


UNKNOWN = "unknown: no link on the path of worker 1 to s0 drops or loses packets"


@pytest.mark.parametrize(
    ("outcome", "why"),
    [
        (LinkOutcomes(7, 0, 0, 7, True), "link h1->s0 is down: 7 packets wait for it"),
        (LinkOutcomes(0, 0, 0, 1, True), "link h1->s0 is down: 1 packet waits for it"),
        (
            LinkOutcomes(5, 0, 2, 9, True),
            "link h1->s0 is down: 9 packets wait for it, and it refused 2 because its buffer is full",
        ),
        (
            LinkOutcomes(0, 0, 0, 0, True),
            "unknown: no link on the path of worker 1 to s0 drops or loses packets",
        ),
        (
            LinkOutcomes(0, 0, 7),
            "the buffer of link h1->s0 is too small for the traffic that meets there "
            "(7 of 7 packets refused)",
        ),
        (
            LinkOutcomes(9, 4, 0),
            "link h1->s0 loses so many packets that no message arrives complete (4 of 9 packets)",
        ),
        (
            LinkOutcomes(9, 0, 3),
            "the buffer of link h1->s0 is too small for the traffic that meets there "
            "(3 of 12 packets refused)",
        ),
        (
            LinkOutcomes(9, 0, 0, 30, False, 5),
            "link h1->s0 is too slow for its traffic: 30 packets wait for it",
        ),
        (LinkOutcomes(9, 0, 0, 30, False, 4), UNKNOWN),
        (LinkOutcomes(9, 0, 0), UNKNOWN),
    ],
)
def test_why_a_link_does_not_deliver_packets(outcome: LinkOutcomes, why: str) -> None:
    inside = Inside([waits(0), waits(1), waits(2)], MISSING_1)

    assert only(inside, snapshot(links={"h1->s0": outcome})).cause.why == why


def test_a_buffer_smaller_than_a_packet() -> None:
    small = dataclasses.replace(NETWORK, buffer_bytes=np.full(8, 99))
    inside = Inside([waits(1)], {(0, 8, 0): state(0, 1, 2, missing=0)})

    row = only(inside, snapshot(network=small, links={"s0->h1": LinkOutcomes(0, 0, 5)}))

    assert row.cause.why == "the buffer of link s0->h1, 99B, is smaller than one packet, 100B"
    assert (row.missing, row.waiting) == ((), (1,))


def test_results_that_do_not_arrive() -> None:
    """Workers 0 and 2 have the result; their next units have cleared their bits."""
    inside = Inside([waits(1)], {(0, 8, 0): state(1, missing=0)})

    assert only(inside, snapshot(links={"s0->h1": LinkOutcomes(6, 6, 0)})).cause.why == (
        "link s0->h1 loses every packet (6 of 6)"
    )
    assert only(inside, snapshot()).cause.why == (
        "unknown: no link on the path of the results to worker 1 drops or loses packets"
    )


@pytest.mark.parametrize(
    ("events", "why"),
    [
        ((), NOT_HELD),
        ((NodeEvent(10**9, 3, CLEARED),), NOT_HELD),
        ((NodeEvent(10**9, 4, CLEARED),), LOST_SLOT),
    ],
)
def test_a_slot_that_was_cleared_after_it_was_complete(events: tuple[NodeEvent, ...], why: str) -> None:
    """Worker 0 lacks the result; the others have moved on, one of them to the end of its stream."""
    states = {(0, 8, 0): state(0, missing=2), (0, 8, 1): state(1, missing=2)}
    inside = Inside([waits(0), waits(1, unit=4, version=1)], states)

    first, second = slots(inside, snapshot(node_events=events))

    assert first.missing == ("worker 1", "worker 2")
    assert first.cause.why == why
    assert (second.waiting, second.missing) == ((1,), ("worker 0", "worker 2"))
    assert second.cause.why.startswith("worker 2 already has this result")


def test_a_worker_that_is_stuck_earlier_is_not_the_cause() -> None:
    states = {(0, 8, 0): state(0, missing=2), (0, 8, 1): state(1, 2, missing=1)}
    inside = Inside([waits(0), waits(1, unit=4, version=1), waits(2, unit=4, version=1)], states)

    first, second = slots(inside, snapshot())

    assert first.cause.why == NOT_HELD
    assert second.cause.why == "worker 0 is stuck earlier in the same slot"
    assert [row.cause.is_consequence for row in (first, second)] == [False, True]


def test_a_crashed_worker() -> None:
    crashed = dataclasses.replace(waits(1), is_crashed=True)
    by_itself = only(Inside([waits(0), crashed, waits(2)], MISSING_1), snapshot())
    by_note = only(Inside([waits(0), waits(2)], MISSING_1), snapshot(node_events=(NodeEvent(5, 1, CRASHED),)))

    assert by_itself.cause == by_note.cause
    assert by_itself.cause.why == "worker 1 has crashed"


def test_a_crashed_worker_does_not_wait() -> None:
    """Its outstanding units have no rows."""
    crashed = dataclasses.replace(waits(1), is_crashed=True)
    dead = snapshot(node_events=(NodeEvent(5, 1, CRASHED),), activities={(0, 1): "has crashed"})

    diagnosis = diagnose(Inside([crashed], {(0, 8, 0): state(1, missing=0)}), dead)

    assert diagnosis.slots == ()
    assert str(diagnosis) == (
        "likely cause: worker 1 has crashed, and a step ends when all workers have finished it\n"
        "  try: remove the crash from `faults`: a job needs every worker\n"
        "  nothing is in flight and no event is left\n"
        "  worker 1 has crashed\n"
        "  no traffic has made progress for 1s of simulated time"
    )


def test_a_worker_that_has_not_begun() -> None:
    opened = {(0, 0): Opened(1, 0), (0, 2): Opened(1, 0)}
    doing = {(0, 1): "computes bucket 0 of step 0"}

    row = only(Inside([waits(0), waits(2)], MISSING_1), snapshot(opened=opened, activities=doing))

    assert row.cause.why == "worker 1 has not begun this exchange: it computes bucket 0 of step 0"


@pytest.mark.parametrize(("link", "is_blamed"), [("s0->h0", True), ("s0->h1", False)])
def test_workers_that_received_corrupted_words_wait_for_the_others(link: str, is_blamed: bool) -> None:
    opened = {(0, 0): Opened(1, 0), (0, 2): Opened(1, 0)}
    flipped = [Disturbance(Fate.FLIP, 4, (NETWORK.link_names.index(link),))]

    row = only(Inside([waits(0), waits(2)], MISSING_1), snapshot(opened=opened, disturbances=flipped))

    text = (
        "workers 0 and 2 received corrupted words (`corruption` flipped bits of 4 packets on s0->h0), "
        "and therefore sent what the others do not"
    )
    assert (row.cause.why == text) == is_blamed
    assert is_blamed or "has not begun this exchange" in row.cause.why


def test_a_full_bitmap_with_a_counter_that_is_not() -> None:
    row = only(Inside([waits(0)], {(0, 8, 0): state(0, 1, 2, missing=2)}), snapshot())

    assert (row.missing, row.missing_count) == ((), 2)
    assert row.cause.why == (
        "bitmap and counter of s0 disagree after a fault: all 3 children are marked, "
        "the counter waits for 2 more"
    )


def test_the_missing_packet_of_a_unit_is_found() -> None:
    job = dataclasses.replace(JOB, slots_count=8, unit_packets=2)
    states = {(0, 8, 0): state(0, 1, 2, missing=0), (0, 9, 0): state(0, 1, missing=1)}

    row = only(Inside([waits(worker) for worker in range(3)], states), snapshot(job))

    assert (row.slot, row.missing) == (9, ("worker 2",))


# Workers 0 and 1 hang on the switch h3's place takes below the root; worker 2 on the root itself.
TREE_JOB = dataclasses.replace(JOB, branches=(Branch(switch=3, parent=0),), homes=(1, 1, 0))
RACKS: Sequence[PointView] = (
    PointView(4, (("worker", 2), ("point", 1))),
    PointView(3, (("worker", 0), ("worker", 1))),
)


def test_in_a_tree_the_lowest_incomplete_point_is_named() -> None:
    states = {(0, 8, 0): state(0, missing=1, children=2), (1, 8, 0): state(0, missing=1, children=2)}

    row = only(Inside([waits(0), waits(1), waits(2)], states, RACKS), snapshot(TREE_JOB))

    assert (row.switch, row.missing) == ("h3", ("worker 1",))


def test_in_a_tree_a_partial_may_be_lost() -> None:
    states = {(0, 8, 0): state(0, missing=1, children=2), (1, 8, 0): state(0, 1, missing=0, children=2)}

    row = only(
        Inside([waits(0), waits(1), waits(2)], states, RACKS),
        snapshot(TREE_JOB, links={"h3->s0": LinkOutcomes(4, 4, 0)}),
    )

    assert (row.switch, row.missing) == ("s0", ("switch h3",))
    assert row.cause.why == "link h3->s0 loses every packet (4 of 4)"


def test_a_program_without_retransmission() -> None:
    job = dataclasses.replace(JOB, program=TREE)
    inside = Inside([waits(0), waits(1), waits(2)], MISSING_1)

    assert only(inside, snapshot(job, links={"h1->s0": LinkOutcomes(9, 1, 0)})).cause.why == (
        "link h1->s0 lost 1 of 9 packets, and program tree never retransmits"
    )


def test_without_retransmission_the_only_packet_of_a_link_says_nothing_of_its_others() -> None:
    """It may have been lost at a rate of 1%: less loss is no help, and none is needed."""
    job = dataclasses.replace(JOB, program=TREE)
    inside = Inside([waits(0), waits(1), waits(2)], MISSING_1)

    cause = only(inside, snapshot(job, links={"h1->s0": LinkOutcomes(1, 1, 0)})).cause

    assert cause.why == "link h1->s0 lost 1 of 1 packets, and program tree never retransmits"
    assert cause.advice == "a network without loss, or program switchml"


ONCE = dataclasses.replace(TREE_JOB, program=TREE)
COMPLETE_FORGOTTEN = SlotState(0, 2, 2, NOW_PS, 0, "complete", False)


def test_without_retransmission_early_losses_count() -> None:
    """The worst link of the tree, also on the path of a worker that is not missing."""
    states = {(0, 8, 0): state(0, missing=1, children=2), (1, 8, 0): COMPLETE_FORGOTTEN}
    links = {"s0->h1": LinkOutcomes(9, 1, 0), "h2->s0": LinkOutcomes(9, 2, 1)}
    outcomes = [links.get(name, LinkOutcomes(5, 0, 0)) for name in NETWORK.link_names]

    row = only(Inside([waits(0)], states, RACKS), snapshot(ONCE, total_outcomes=outcomes))

    assert (row.switch, row.missing, row.missing_count) == ("s0", ("switch h3",), 1)
    assert row.cause.why == "link h2->s0 lost 3 of 10 packets, and program tree never retransmits"
    assert row.cause.advice == "a network without loss, or program switchml"


def test_a_complete_slot_without_state_lacks_no_worker() -> None:
    states = {(0, 8, 0): COMPLETE_FORGOTTEN, (1, 8, 0): COMPLETE_FORGOTTEN}

    row = only(Inside([waits(0)], states, RACKS), snapshot(ONCE))

    assert (row.switch, row.missing, row.missing_count) == ("s0", (), 0)
    assert ": no worker missing, last event 0s ago: a packet of worker 2, complete" in str(row)
    assert row.cause.why == (
        "unknown: no link on the path of worker 0 through the tree and back drops or loses packets"
    )


def test_faults_that_stop_a_program_without_retransmission() -> None:
    link = NETWORK.link_names.index("s0->h1")
    inside = Inside([waits(0), waits(1), waits(2)], MISSING_1)
    job = dataclasses.replace(JOB, program=TREE)
    begun_ps = NOW_PS - 10**12
    cleared = (
        NodeEvent(begun_ps - 1, 4, CLEARED),
        NodeEvent(begun_ps, 4, CLEARED),
        NodeEvent(NOW_PS, 3, CLEARED),
    )

    by_copy = only(inside, snapshot(job, disturbances=[Disturbance(Fate.DUPLICATE, 7, (link,))])).cause
    by_reboot = only(
        inside, snapshot(job, node_events=cleared, links={"h1->s0": LinkOutcomes(2, 0, 2)})
    ).cause
    before = only(inside, snapshot(job, node_events=cleared[:1])).cause

    assert by_copy.why == (
        "`duplicate` copied 7 packets on s0->h1, where a late copy counts as the slot's next packet, "
        "and program tree never retransmits"
    )
    assert by_copy.advice == "no duplicate, or program switchml"
    assert by_reboot.why == (
        "s0 lost its slots (registers cleared at 2s) and link h1->s0 lost 2 of 4 packets, "
        "and program tree never retransmits"
    )
    assert by_reboot.advice == "no switch_reboot, a network without loss, or program switchml"
    assert before.why.startswith("unknown: ")


def test_a_worker_that_a_tree_waits_for() -> None:
    inside = Inside([waits(0), waits(2)], MISSING_1)
    job = dataclasses.replace(JOB, program=TREE)

    crashed = only(inside, snapshot(job, node_events=(NodeEvent(5, 1, CRASHED),)))
    late = only(inside, snapshot(job, opened={(0, 0): Opened(1, 0), (0, 2): Opened(1, 0)}))

    assert crashed.cause.why == "worker 1 has crashed"
    assert late.cause.why == "worker 1 has not begun this exchange: it is elsewhere"


def test_the_text_of_many_causes_is_short() -> None:
    """Five messages, each over its own link that loses every packet, and nine idle workers."""
    flows = [WaitingFlow(host, (host + 1) % 4, 0, 0, NOW_PS - 10**12, 100) for host in range(4)]
    links = {f"h{host}->s0": LinkOutcomes(3, 3, 0) for host in range(4)}

    text = str(
        diagnose(Inside([waits(0), waits(1), waits(2)], MISSING_1), snapshot(flows=flows, links=links))
    )

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


def test_a_server_that_receives_nothing() -> None:
    job = dataclasses.replace(JOB, program=ATP, server=Server(3, 100, 4, 1000))
    inside = Inside([waits(0), waits(1), waits(2)])

    row = only(inside, snapshot(job, links={"s0->h3": LinkOutcomes(8, 8, 0)}))

    assert (row.missing, row.last_event) == ((), "no slot state")
    assert row.cause.why == "link s0->h3 loses every packet (8 of 8)"


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
    assert [listed(("a",)), listed(("a", "b")), listed(("a", "b", "c"))] == ["a", "a and b", "a, b and c"]
    assert listed([str(number) for number in range(9)]) == "0, 1, 2, 3, 4, 5 and 3 more"
    assert [workers_listed([3]), workers_listed([2, 0, 2])] == ["worker 3", "workers 0 and 2"]


def test_link_outcomes_are_differences_of_counters() -> None:
    before = [{"sent_packets": 5, "lost_packets": 1, "dropped_packets": 2, "busy_ps": 9}]
    after = [{"sent_packets": 9, "lost_packets": 2, "dropped_packets": 2, "in_flight_packets": 3}]

    assert link_outcomes(before, after) == [LinkOutcomes(4, 1, 0, 3, False, 3)]
    assert link_outcomes(before, after, [0]) == [LinkOutcomes(4, 1, 0, 3, True, 3)]
    assert link_outcomes(None, after) == [LinkOutcomes(9, 2, 2, 3, False, 3)]
    assert LinkOutcomes(9, 2, 3).tried == 12


def copied(*names: str, outcome: Fate = Fate.DUPLICATE, count: int = 7) -> Disturbance:
    return Disturbance(outcome, count, tuple(NETWORK.link_names.index(name) for name in names))


LATE = ", and a late packet counts for a later unit of its slot"


def test_late_copies_are_named_if_a_result_is_lost() -> None:
    """Seven copies on one link, and no other possible cause."""
    inside = Inside([waits(0)], {(0, 8, 0): state(0, missing=2)})

    row = only(inside, snapshot(disturbances=[copied("h1->s0")]))

    assert row.cause.why == f"`duplicate` copied 7 packets on h1->s0{LATE}"
    assert row.cause.advice == "no duplicate in `faults`, or a shorter delay of it"


def test_a_reboot_comes_before_late_copies() -> None:
    inside = Inside([waits(0)], {(0, 8, 0): state(0, missing=2)})

    row = only(inside, snapshot(disturbances=[copied("h1->s0")], node_events=(NodeEvent(10**9, 4, CLEARED),)))

    assert row.cause.why == LOST_SLOT


def test_copies_elsewhere_are_not_blamed() -> None:
    """Host 3 does not belong to the job."""
    inside = Inside([waits(0)], {(0, 8, 0): state(0, missing=2)})

    assert only(inside, snapshot(disturbances=[copied("h3->s0")])).cause.why == NOT_HELD


def test_a_wrong_counter_names_the_fault() -> None:
    inside = Inside([waits(0)], {(0, 8, 0): state(0, 1, 2, missing=2)})
    both = [copied("h1->s0"), copied("s0->h2", outcome=Fate.REORDER, count=1)]

    late = only(inside, snapshot(disturbances=both))
    rebooted = only(inside, snapshot(node_events=(NodeEvent(10**9, 4, CLEARED),)))

    assert late.cause.why == (
        f"`duplicate` copied 7 packets on h1->s0 and `reorder` delayed 1 packet on s0->h2{LATE}"
    )
    assert late.cause.advice == "no duplicate and no reorder in `faults`, or a shorter delay of it"
    assert rebooted.cause.why.endswith(", the counter waits for 2 more (registers cleared at 1ms)")
    assert rebooted.cause.advice == "no switch_reboot in `faults`"


def test_losses_come_before_disturbances() -> None:
    inside = Inside([waits(0), waits(1), waits(2)], MISSING_1)
    job = dataclasses.replace(JOB, slots_count=8, unit_packets=2)
    disturbed = [copied("h1->s0")]

    lost = only(inside, snapshot(job, links={"h1->s0": LinkOutcomes(9, 9, 0)}, disturbances=disturbed))
    broken = only(inside, snapshot(job, disturbances=disturbed))

    assert lost.cause.why == "link h1->s0 loses every packet (9 of 9)"
    assert broken.cause.why == (
        "`duplicate` copied 7 packets on h1->s0, "
        "and a message counts only if its packets arrive in order and without a gap"
    )


def test_a_known_cause_comes_before_an_unknown_one() -> None:
    flows = [WaitingFlow(0, 1, 0, 0, NOW_PS - 10**12, 100), WaitingFlow(2, 3, 0, 0, NOW_PS - 10**12, 100)]

    text = str(
        diagnose(Inside(), snapshot(flows=flows, links={"h2->s0": LinkOutcomes(3, 3, 0)}))
    ).splitlines()

    assert text[0] == "likely cause: link h2->s0 loses every packet (3 of 3)"
    assert text[3].startswith("  another cause: unknown: ")
