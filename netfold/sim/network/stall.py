"""The diagnosis of a stall, from the state of workers, slots and links."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from netfold.errors import RunError
from netfold.sim.engine.engine_data import (
    Disturbance,
    Fate,
    Job,
    SlotState,
    WaitingFlow,
)
from netfold.switch.program import names_of
from netfold.topologies.network import Network
from netfold.units import TIME

# The diagnosis of a stall, as plain data and as text.


NAMES_MAX = 6
"""The most names in one list."""
GROUPS_MAX = 3  # causes with a sentence each
IDLE_MAX = 3  # workers with a sentence each
ROWS_MAX = 64
"""The most rows of each kind that a run folder keeps."""
CRASH_ADVICE = "remove the crash from `faults`: a job needs every worker"


@dataclass(frozen=True)
class Cause:
    """Most likely reason, and what to try; each a sentence without its full stop."""

    why: str
    advice: str
    is_consequence: bool = False
    """It follows from the causes of other rows."""
    is_unknown: bool = False  # no evidence points to one


@dataclass(frozen=True)
class StalledSlot:
    """A slot of a switch that workers wait for."""

    job: str  # "" where there is only one
    switch: str
    slot: int
    version: int
    stream: int
    unit: int
    waiting: tuple[int, ...]  # workers
    missing: tuple[str, ...]  # "worker 2", "switch leaf1": children whose bit is not set
    missing_count: int  # packets that its counter still waits for
    age_ps: int  # since the first waiting worker opened its stream
    last_event: str
    cause: Cause

    def __str__(self) -> str:
        lacks = f"{list_names(self.missing)} missing" if self.missing else "no worker missing"
        return (
            f"slot {self.slot}, version {self.version}, unit {self.unit} of stream {self.stream} "
            f"at {self.switch}: {lacks}, {self.last_event}"
        )


@dataclass(frozen=True)
class StalledMessage:
    """A message from host to host that is not delivered."""

    job: str
    source: str
    target: str
    age_ps: int  # since it was sent
    cause: Cause
    what: str = ""
    """For a schedule: the transfer, its operation and its flow."""

    def __str__(self) -> str:
        what = f" ({self.what})" if self.what else ""
        return f"a message from {self.source} to {self.target}{what}, sent {TIME.rough(self.age_ps)} ago"


@dataclass(frozen=True)
class IdleWorker:
    """A worker that does not wait for a slot."""

    job: str
    worker: int
    what: str  # its activity, or the fault that stopped it
    is_crashed: bool = False

    def __str__(self) -> str:
        return f"worker {self.worker}{_of_jobs([self.job])} {self.what}"


@dataclass(frozen=True)
class Diagnosis:
    """Why a variant cannot finish. Slots are ordered by job, stream and unit; messages by their start."""

    time_ps: int
    quiet_ps: int  # no progress for at least this long
    slots: tuple[StalledSlot, ...]
    messages: tuple[StalledMessage, ...]
    idle: tuple[IdleWorker, ...]

    def of(self, job: str) -> Diagnosis:
        """The part about one of several jobs."""
        return Diagnosis(
            self.time_ps,
            self.quiet_ps,
            tuple(row for row in self.slots if row.job == job),
            tuple(row for row in self.messages if row.job == job),
            tuple(row for row in self.idle if row.job == job),
        )

    def __str__(self) -> str:
        """The likely cause in the first line; then what to try, which workers wait, and other facts."""
        roots = [row for row in self.slots if not row.cause.is_consequence]
        groups = sorted(_by_cause([*roots, *self.messages]), key=lambda group: group[0].is_unknown)
        lines = self._without_traffic() if not groups else []
        for number, (cause, rows) in enumerate(groups[:GROUPS_MAX]):
            lines += [
                f"{'another' if number else 'likely'} cause: {cause.why}",
                f"try: {cause.advice}",
                _waiting(rows, has_example=not number),
            ]
        if len(groups) > GROUPS_MAX:
            more = len(groups) - GROUPS_MAX
            lines.append(f"{more} more {'causes are' if more > 1 else 'cause is'} in summary.json")
        if later := len(self.slots) - len(roots):
            lines.append(f"{later} more wait behind these, as the workers they lack are stalled in them")
        if not self.messages:  # messages name their senders and receivers
            lines += self._idle_lines()
        quiet = "no traffic can make progress"
        if self.quiet_ps:
            quiet = f"no traffic has made progress for {TIME.rough(self.quiet_ps)} of simulated time"
        return "\n  ".join([*lines, quiet])

    def _without_traffic(self) -> list[str]:
        """Lines for a stall without traffic: which workers have crashed."""
        crashed = [worker.worker for worker in self.idle if worker.is_crashed]
        nothing = "nothing is in flight and no event is left"
        if not crashed:
            return [nothing]
        has = "have" if len(set(crashed)) > 1 else "has"
        why = f"{list_workers(crashed)} {has} crashed, and a step ends when all workers have finished it"
        return [f"likely cause: {why}", f"try: {CRASH_ADVICE}", nothing]

    def _idle_lines(self) -> list[str]:
        """Activities of the first workers that do not wait for a slot."""
        lines = [str(worker) for worker in self.idle[:IDLE_MAX]]
        if more := len(self.idle) - len(lines):
            lines.append(f"{more} more {'are' if more > 1 else 'is'} not in an exchange")
        return lines

    def as_dict(self) -> dict[str, Any]:
        """Plain data for the run folder: the first rows of each kind, and how many there were."""
        data = asdict(self)
        for kind in ("slots", "messages"):
            rows = data[kind]
            data[f"{kind}_count"] = len(rows)
            data[kind] = [_plain(row) for row in rows[:ROWS_MAX]]
        data["idle"] = [str(worker) for worker in self.idle]
        return data


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """A row as flat JSON data, with the fields of its cause."""
    flat = {**row, **row["cause"]}
    del flat["cause"], flat["is_unknown"]  # the text says so
    if flat.get("what") == "":
        del flat["what"]
    return {name: list(value) if isinstance(value, tuple) else value for name, value in flat.items()}


def list_names(names: Sequence[str]) -> str:
    """Names with commas and "and", the first few of many."""
    if len(names) > NAMES_MAX:
        return f"{', '.join(names[:NAMES_MAX])} and {len(names) - NAMES_MAX} more"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def list_workers(workers: Iterable[int]) -> str:
    """ "worker 3", or "workers 0, 1 and 2"."""
    numbers = [str(worker) for worker in sorted(set(workers))]
    return f"worker{'s' if len(numbers) > 1 else ''} {list_names(numbers)}"


def _of_jobs(jobs: Iterable[str]) -> str:
    """ " of job a"; nothing where a variant has one job, which has no name."""
    names = sorted(set(jobs) - {""})
    return f" of job{'s' if len(names) > 1 else ''} {list_names(names)}" if names else ""


def _by_cause(
    rows: Sequence[StalledSlot | StalledMessage],
) -> Iterable[tuple[Cause, list[StalledSlot | StalledMessage]]]:
    groups: dict[Cause, list[StalledSlot | StalledMessage]] = {}
    for row in rows:
        groups.setdefault(row.cause, []).append(row)
    return groups.items()


def _waiting(rows: list[StalledSlot | StalledMessage], has_example: bool) -> str:
    """Which workers wait for how many slots, with the first row as an optional example."""
    slots = [row for row in rows if isinstance(row, StalledSlot)]
    of_jobs = _of_jobs(row.job for row in rows)
    if slots:
        workers = list_workers(worker for row in slots for worker in row.waiting)
        verb = "wait" if workers.startswith("workers") else "waits"
        waiting = f"{workers}{of_jobs} {verb} for {_format_count(slots, 'slot')}"
    else:
        waiting = f"{_format_count(rows, 'message')}{of_jobs} in flight"
    return f"{waiting}, first {rows[0]}" if has_example else waiting


def _format_count(rows: Sequence[object], noun: str) -> str:
    return f"{len(rows)} {noun}{'s' if len(rows) > 1 else ''}"


class StalledError(RunError):
    """A stall: a process waits for an event that cannot happen; `diagnosis` has the likely cause."""

    def __init__(self, diagnosis: Diagnosis) -> None:
        super().__init__(str(diagnosis))
        self.args = (diagnosis,)  # pickle passes these to __init__
        self.diagnosis = diagnosis


# Per-link packet outcomes, the evidence for a stall diagnosis.


_NAMES = {Fate.DUPLICATE: "duplicate", Fate.REORDER: "reorder", Fate.FLIP: "corruption"}
DID_TO_PACKETS = {Fate.DUPLICATE: "copied", Fate.REORDER: "delayed", Fate.FLIP: "flipped bits of"}


class LinkOutcomes(NamedTuple):
    """What happened to the packets put on a link in a time interval."""

    sent: int
    lost: int
    """Packets that were sent and lost."""
    dropped: int  # not sent: its buffer was full
    waiting: int = 0  # sent and not arrived at the end of the interval
    is_down: bool = False
    grown: int = 0  # increase of `waiting` over the interval
    is_corrupting: bool = False  # those lost were corrupted, and so discarded
    is_dead: bool = False  # it is down and drops all packets

    @property
    def tried(self) -> int:
        return self.sent + self.dropped


def link_outcomes(
    before: Sequence[Mapping[str, int]] | None,
    after: Sequence[Mapping[str, int]],
    down: Collection[int] = (),
    corrupting: Collection[int] = (),
    dead: Collection[int] = (),
) -> list[LinkOutcomes]:
    """Outcomes on each link between two readings of its counters; `before` None: since the start.

    `down` are the links that are down at the second reading, `corrupting` those on which packets were lost by
    corruption alone, `dead` those down links that drop all packets.
    """
    names = ("sent_packets", "lost_packets", "dropped_packets")
    start = before or [dict.fromkeys(names, 0)] * len(after)
    outcomes = []
    for link, (then, now) in enumerate(zip(start, after, strict=True)):
        sent, lost, dropped = (now[name] - then[name] for name in names)
        is_down = link in down
        waiting = now["in_flight_packets"]
        grown = waiting - then.get("in_flight_packets", 0)
        is_corrupting, is_dead = link in corrupting, link in dead
        outcomes.append(LinkOutcomes(sent, lost, dropped, waiting, is_down, grown, is_corrupting, is_dead))
    return outcomes


def why_undelivered(
    network: Network, outcomes: Sequence[LinkOutcomes], links: Sequence[int], packet_bytes: int
) -> Cause | None:
    """Why packets of one size do not pass some links, blocked links first; None if all pass."""
    if cause := why_blocked(network, outcomes, links, packet_bytes):
        return cause
    for link in links:
        cause = _why_lossy(network, link, outcomes[link])
        if cause:
            return cause
    return None


def why_blocked(
    network: Network,
    outcomes: Sequence[LinkOutcomes],
    links: Sequence[int],
    packet_bytes: int,
    *,
    repeats: bool = True,
) -> Cause | None:
    # A link that lost all of its packets is blocked if their sender `repeats` them: one packet says nothing.
    causes = (_why_link_blocked(network, link, outcomes[link], packet_bytes, repeats) for link in links)
    return next((cause for cause in causes if cause), None)


def why_not_repeated(
    network: Network,
    program: str,
    links: Sequence[int],
    *,
    outcomes: Sequence[LinkOutcomes],
    disturbances: Sequence[Disturbance],
    cleared: str,
) -> Cause | None:
    """Why a program without retransmission stalls; None if nothing was lost, duplicated or cleared.

    `outcomes` and `disturbances` count from the start of the run: such a program recovers from no loss.
    `cleared` says which switch lost its registers and when, or is empty.
    """
    facts, advice = [], []
    if cleared:
        facts.append(cleared)
        advice.append("no switch_reboot")
    losing = [link for link in links if outcomes[link].lost + outcomes[link].dropped]
    if losing:
        # The first of equal ones.
        worst = max(losing, key=lambda link: outcomes[link].lost + outcomes[link].dropped)
        outcome = outcomes[worst]
        lost = f"{outcome.lost + outcome.dropped} of {outcome.tried} packets"
        what, verb = ("corruption", "corrupted") if outcome.is_corrupting else ("loss", "lost")
        facts.append(f"link {network.link_names[worst]} {verb} {lost}")
        advice.append(f"a network without {what}")
    for fact in _disturbance_facts(
        network, [fault for fault in disturbances if fault.fate == Fate.DUPLICATE], links
    ):
        facts.append(f"{fact}, where a late copy counts as the slot's next packet")
        advice.append("no duplicate")
    if not facts:
        return None
    tried = ", ".join(dict.fromkeys(advice))
    other = names_of(lambda spec: spec.timeouts is not None)[0]
    return Cause(
        f"{list_names(facts)}, and program {program} never retransmits", f"{tried}, or program {other}"
    )


def why_incomplete(
    network: Network, disturbances: Sequence[Disturbance], links: Sequence[int]
) -> Cause | None:
    # A front end, or a worker's network card, discards the rest of a message after a gap in its numbers.
    rule = "a message counts only if its packets arrive in order and without a gap"
    return _why_disturbed(network, disturbances, links, (rule, "message_packets: 1"))


def why_late(network: Network, disturbances: Sequence[Disturbance], links: Sequence[int]) -> Cause | None:
    """Why packets of a unit arrive when its slot serves a later one; None if no fault caused it."""
    rule = "a late packet counts for a later unit of its slot"
    return _why_disturbed(network, disturbances, links, (rule, "a shorter delay of it"))


def why_diverged(
    network: Network, disturbances: Sequence[Disturbance], links: Sequence[int], workers: Sequence[int]
) -> Cause | None:
    """Why some workers send units that others do not; None if no bits flipped on the links to them."""
    flips = [fault for fault in disturbances if fault.fate == Fate.FLIP]
    facts = _disturbance_facts(network, flips, links)
    if not facts:
        return None
    return Cause(
        f"{list_workers(workers)} received corrupted words ({list_names(facts)}), "
        "and therefore sent what the others do not",
        "no corruption with `detected: false` in `faults`",
    )


def why_result_lost(worker: int, switch: str, cleared: str) -> Cause:
    """Why one worker has a result that the switch has not for the others; `cleared`: when it lost it."""
    has_it = f"worker {worker} already has this result, so it never sends the unit again"
    if not cleared:
        return Cause(
            f"{has_it}, and {switch} does not hold it for the others",
            f"fewer `faults`, or {_surviving()}",
        )
    return Cause(
        f"{has_it}: {switch} lost the slot after it was complete ({cleared}), before every worker had the "
        "result",
        f"no switch_reboot, no loss together with it, or {_surviving()}",
    )


def _surviving() -> str:
    return (
        f"a program whose results survive in a server ({', '.join(names_of(lambda spec: spec.has_server))})"
    )


def why_bitmap_full(switch: str, state: SlotState, cleared: str) -> Cause:
    """Why a bitmap is full and its counter is not; `cleared`: when the registers were cleared."""
    mismatch = (
        f"bitmap and counter of {switch} disagree after a fault: all {state.children_count} "
        f"children are marked, the counter waits for {state.missing_count} more"
    )
    if cleared:
        return Cause(f"{mismatch} ({cleared})", "no switch_reboot in `faults`")
    return Cause(mismatch, "fewer `faults`, to find the one that causes it")


def _why_disturbed(
    network: Network, disturbances: Sequence[Disturbance], links: Sequence[int], consequence: tuple[str, str]
) -> Cause | None:
    """A cause from the faults that struck on some links; `consequence`: why they matter, and a remedy."""
    rule, remedy = consequence
    met = [fault for fault in disturbances if fault.fate != Fate.FLIP and set(fault.links) & set(links)]
    if not met:
        return None
    kinds = dict.fromkeys(_NAMES[fault.fate] for fault in met)
    advice = f"no {' and no '.join(kinds)} in `faults`, or {remedy}"
    return Cause(f"{list_names(_disturbance_facts(network, met, links))}, and {rule}", advice)


def _disturbance_facts(
    network: Network, disturbances: Sequence[Disturbance], links: Sequence[int]
) -> list[str]:
    """What faults on some links did to packets that arrived, in words."""
    facts = []
    for fault in disturbances:
        names = [network.link_names[link] for link in fault.links if link in set(links)]
        count = f"{fault.packets_count} packet{'s' if fault.packets_count > 1 else ''}"
        if names:
            facts.append(
                f"`{_NAMES[fault.fate]}` {DID_TO_PACKETS[fault.fate]} {count} on {list_names(names)}"
            )
    return facts


def _why_link_blocked(
    network: Network, link: int, outcome: LinkOutcomes, packet_bytes: int, repeats: bool
) -> Cause | None:
    name = network.link_names[link]
    if outcome.is_dead:
        return Cause(
            f"link {name} has failed: it dropped {outcome.dropped} packets, and routes still lead over it, "
            "because no other path is left, because of `reroute: never`, or because its tree is not rebuilt",
            "a network with other paths, a limited duration (`for`) of the failure, a time for `reroute`, or "
            "no `admission: fifo`",
        )
    if outcome.is_down and outcome.waiting + outcome.dropped:
        refused = f", and it refused {outcome.dropped} because its buffer is full" if outcome.dropped else ""
        packets = "packet waits" if outcome.waiting == 1 else "packets wait"
        return Cause(
            f"link {name} is down: {outcome.waiting} {packets} for it{refused}",
            "a limited duration (`for`) of its link_down or switch_reboot in `faults`",
        )
    if repeats and outcome.sent and outcome.lost == outcome.sent and outcome.is_corrupting:
        return Cause(
            f"link {name} corrupts every packet ({outcome.lost} of {outcome.sent}), and what is corrupted is "
            "discarded where it arrives",
            "a corruption below 100% for it in `faults`",
        )
    if repeats and outcome.sent and outcome.lost == outcome.sent:
        return Cause(
            f"link {name} loses every packet ({outcome.lost} of {outcome.sent})",
            "a loss below 100% for it in `faults`",
        )
    if not outcome.dropped or outcome.sent:
        return None
    buffer_bytes = int(network.buffer_bytes[link])
    if not network.is_host[network.link_source[link]] and buffer_bytes < packet_bytes:
        return Cause(
            f"the buffer of link {name}, {buffer_bytes}B, is smaller than one packet, {packet_bytes}B",
            f"topology.buffer of {packet_bytes}B or more, better a full window",
        )
    return None


def _why_lossy(network: Network, link: int, outcome: LinkOutcomes) -> Cause | None:
    """Why a link passes too few packets."""
    name = network.link_names[link]
    if outcome.dropped:
        return Cause(
            f"the buffer of link {name} is too small for the traffic that meets there "
            f"({outcome.dropped} of {outcome.tried} packets refused)",
            "a larger topology.buffer, or fewer slots",
        )
    if 2 * outcome.grown > outcome.sent and network.is_inside(link):
        return Cause(
            f"host {name} is too slow for its packets: {outcome.waiting} wait for it",
            "more cores in `hosts`, a longer collective.timeout, or fewer slots",
        )
    if 2 * outcome.grown > outcome.sent:
        return Cause(
            f"link {name} is too slow for its traffic: {outcome.waiting} packets wait for it",
            "a higher rate for it (link_rate in `faults`), a longer collective.timeout, or fewer slots",
        )
    if outcome.lost:
        what, verb = ("corruption", "corrupts") if outcome.is_corrupting else ("loss", "loses")
        return Cause(
            f"link {name} {verb} so many packets that no message arrives complete "
            f"({outcome.lost} of {outcome.sent} packets)",
            f"less {what} in `faults`, or fewer packets per message",
        )
    return None


# Snapshot of the network taken when a stall is detected, and the view of the engine that diagnosis needs.


CRASHED, CLEARED = "crashed", "registers cleared"  # what happened to a node
HAS_CRASHED = "has crashed"  # activity of a crashed worker
Child = tuple[str, int]  # ("worker", rank) or ("point", number)


class JobOnSwitch(NamedTuple):
    """A job that has slots on switches."""

    owner: int  # index of the job in the variant; the engine numbers only jobs with slots
    job: Job
    ranks: tuple[int, ...] = ()
    """Ranks of its workers in the job of the variant; empty: it has all workers of that job."""

    def rank(self, worker: int) -> int:
        return self.ranks[worker] if self.ranks else worker


class NodeEvent(NamedTuple):
    """A fault that struck a node."""

    time_ps: int
    node: int
    what: str  # CRASHED or CLEARED


Opened = tuple[int, int]
"""How many aggregation streams a worker has opened, and when the last one."""


@dataclass(frozen=True)
class Snapshot:
    network: Network
    names: Sequence[str]
    """Names of the variant's jobs if there are several, else one empty name."""
    jobs: Sequence[JobOnSwitch]
    """The jobs, by the engine's number."""
    time_ps: int
    quiet_ps: int
    outcomes: Sequence[LinkOutcomes]
    """What happened on each link over the last part of the stall."""
    total_outcomes: Sequence[LinkOutcomes]
    """What happened on each link since the start."""
    disturbances: Sequence[Disturbance]  # since the start
    opened: Mapping[tuple[int, int], Opened]
    """The streams of each worker, by the engine's number of the job and worker."""
    flows: Sequence[WaitingFlow]
    node_events: Sequence[NodeEvent]
    activities: Mapping[tuple[int, int], str]
    """What each worker does, by job of the variant and worker."""
