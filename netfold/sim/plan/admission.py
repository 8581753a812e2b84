"""How the jobs of a variant get hosts and slots if they come and go."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from netfold.sim.plan.plan import JobPlan

RESERVED, FIFO = "reserved", "fifo"


class Admitted(NamedTuple):
    """A job with its hosts and slots, and whether it has its fallback for a collective."""

    job: JobPlan
    is_fallback: bool


class Placer(Protocol):
    """Hands out hosts and slots while a variant runs."""

    def place(self, index: int) -> Admitted | None:
        """A job on free hosts and slots, by its number; None if there are too few now."""
        ...

    def release_hosts(self, index: int) -> None:
        """Take back a job's hosts, before its slots."""
        ...

    def release(self, index: int) -> None:
        """Take back what a job has."""
        ...


@dataclass(frozen=True)
class Admission:
    """The jobs of a variant that come and go.

    With a placer, `VariantPlan.jobs` are as each is on the empty network; without one they are as they run.
    """

    kind: str  # RESERVED or FIFO
    placer: Callable[[], Placer] | None = None
    room: Mapping[int, int] = field(default_factory=dict)  # slots by switch, enough for all jobs at a time
    timeout_max_ps: int = 0  # the longest of any fallback
