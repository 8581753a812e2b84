"""Files that a scenario names: the run folder keeps copies, so that the run can be repeated from it."""

from __future__ import annotations

from pathlib import Path

from sim.foreign import read_bytes
from sim.plan import Plan
from sim.scenario import Scenario
from sim.scenario.models import TopologyFile
from sim.scenario.node import COMMAND_LINE

_FILE_BYTES_MAX = 64 << 20


def named_files(plan: Plan) -> dict[str, bytes]:
    """Graph and profile files beside or below the scenario, by the path it gives them."""
    folder = Path(plan.scenario.file).parent
    paths = {one.topology.path for one in plan.scenario.variants if isinstance(one.topology, TopologyFile)}
    paths |= set(_profile_paths(plan.scenario, folder))
    kept = [path for path in paths if not Path(path).is_absolute() and ".." not in Path(path).parts]
    return {path: read_bytes(folder / path, _FILE_BYTES_MAX) for path in sorted(kept)}


def _profile_paths(scenario: Scenario, folder: Path) -> list[str]:
    """Profile files below the scenario's folder, relative to it: a profile's node knows its file."""
    listed = scenario.document.children.get("profiles")
    items = listed.value if listed is not None and isinstance(listed.value, tuple) else ()
    files = [Path(item.file) for item in items if item.file not in (scenario.file, COMMAND_LINE)]
    return [file.relative_to(folder).as_posix() for file in files if file.is_relative_to(folder)]
