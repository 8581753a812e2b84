"""The diagnosis of a stall, as plain data and as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from netfold.errors import RunError
from netfold.units import TIME

NAMES_MAX = 6  # in one list
GROUPS_MAX = 3  # causes with a sentence each
IDLE_MAX = 3  # workers with a sentence each
ROWS_MAX = 64  # of each kind that a run folder keeps
CRASH_ADVICE = "remove the crash from `faults`: a job needs every worker"


@dataclass(frozen=True)
class Cause:
    """Most likely reason, and what to try; each a sentence without its full stop."""

    why: str
    advice: str
    is_consequence: bool = False  # of the causes of other rows
    is_unknown: bool = False  # no evidence points to one


@dataclass(frozen=True)
class StuckSlot:
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
    last_event: str  # at this slot
    cause: Cause

    def __str__(self) -> str:
        lacks = f"{listed(self.missing)} missing" if self.missing else "no worker missing"
        return (
            f"slot {self.slot}, version {self.version}, unit {self.unit} of stream {self.stream} "
            f"at {self.switch}: {lacks}, {self.last_event}"
        )


@dataclass(frozen=True)
class StuckMessage:
    """A message from host to host that is not delivered."""

    job: str
    source: str
    target: str
    age_ps: int  # since it was sent
    cause: Cause
    what: str = ""  # of a schedule: the transfer, its operation and its flow

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
    slots: tuple[StuckSlot, ...]
    messages: tuple[StuckMessage, ...]
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
            lines.append(f"{later} more wait behind these, as the workers they lack are stuck in them")
        if not self.messages:  # which name their senders and receivers
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
        why = f"{workers_listed(crashed)} {has} crashed, and a step ends when all workers have finished it"
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


def listed(names: Sequence[str]) -> str:
    """Names with commas and "and", the first few of many."""
    if len(names) > NAMES_MAX:
        return f"{', '.join(names[:NAMES_MAX])} and {len(names) - NAMES_MAX} more"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def workers_listed(workers: Iterable[int]) -> str:
    """ "worker 3", or "workers 0, 1 and 2"."""
    numbers = [str(worker) for worker in sorted(set(workers))]
    return f"worker{'s' if len(numbers) > 1 else ''} {listed(numbers)}"


def _of_jobs(jobs: Iterable[str]) -> str:
    """ " of job a"; nothing where a variant has one job, which has no name."""
    names = sorted(set(jobs) - {""})
    return f" of job{'s' if len(names) > 1 else ''} {listed(names)}" if names else ""


def _by_cause(
    rows: Sequence[StuckSlot | StuckMessage],
) -> Iterable[tuple[Cause, list[StuckSlot | StuckMessage]]]:
    groups: dict[Cause, list[StuckSlot | StuckMessage]] = {}
    for row in rows:
        groups.setdefault(row.cause, []).append(row)
    return groups.items()


def _waiting(rows: list[StuckSlot | StuckMessage], has_example: bool) -> str:
    """Which workers wait for how many slots, with the first row as an optional example."""
    slots = [row for row in rows if isinstance(row, StuckSlot)]
    of_jobs = _of_jobs(row.job for row in rows)
    if slots:
        workers = workers_listed(worker for row in slots for worker in row.waiting)
        verb = "wait" if workers.startswith("workers") else "waits"
        waiting = f"{workers}{of_jobs} {verb} for {_counted(slots, 'slot')}"
    else:
        waiting = f"{_counted(rows, 'message')}{of_jobs} in flight"
    return f"{waiting}, first {rows[0]}" if has_example else waiting


def _counted(rows: Sequence[object], noun: str) -> str:
    return f"{len(rows)} {noun}{'s' if len(rows) > 1 else ''}"


class StuckError(RunError):
    """A stall: a process waits for an event that cannot happen; `diagnosis` has the likely cause."""

    def __init__(self, diagnosis: Diagnosis) -> None:
        super().__init__(str(diagnosis))
        self.args = (diagnosis,)  # pickle passes these to __init__
        self.diagnosis = diagnosis
