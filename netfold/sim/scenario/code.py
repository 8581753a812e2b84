"""Python files that a scenario names: netfold runs them and says so, or refuses them where that is wanted."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from netfold.errors import Mistakes
from netfold.sim.keys.location import Location
from netfold.sim.report.words import escaped
from netfold.sim.workload.workload_keys import Training

if TYPE_CHECKING:
    from netfold.sim.scenario.load import Scenario

_HINT = "name a model of netfold's, or, if you trust {}, leave out --no-code (from Python: code=False)"


@dataclass(frozen=True)
class _Policy:
    allows: bool
    told: set[str] = field(default_factory=set)


# None: files run without a word, as in the workers of a sweep, which has said it.
_policy: ContextVar[_Policy | None] = ContextVar("policy", default=None)


@contextmanager
def running_code(allowed: bool) -> Iterator[None]:
    """In the block, a scenario that is read may name Python files, each of which is said once, or may not."""
    token = _policy.set(_Policy(allowed))
    try:
        yield
    finally:
        _policy.reset(token)


def check_code(scenario: Scenario) -> None:
    """Say on stderr which Python files a scenario names, before they run.

    Raises
    ------
    ScenarioError
        None may run; every key that names such a file, at its line.
    """
    policy, mistakes = _policy.get(), Mistakes()
    if policy is None:
        return
    for variant in scenario.variants:
        for job in variant.jobs or (variant,):
            if not isinstance(job.workload, Training) or not job.workload.model.code:
                continue
            file = job.workload.model.code
            if not policy.allows:
                location = Location(scenario, variant.name, job.name if variant.jobs else "")
                message = f"names the Python file {file!r}, and no code of a scenario may run"
                mistakes.add(location.job_error("workload.model", message, _HINT.format(file)))
            elif file not in policy.told:
                policy.told.add(file)
                print(escaped(f"runs code from {file}"), file=sys.stderr)
    mistakes.raise_any()
