"""Files that a scenario names: the run folder keeps copies, so that the run can be repeated from it."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from sim.foreign import open_regular, read_bytes
from sim.plan import Plan
from sim.scenario import Scenario
from sim.scenario.models import TopologyFile
from sim.scenario.node import COMMAND_LINE
from sim.workload import FileSpec

_FILE_BYTES_MAX = 64 << 20
KEPT_BYTES_MAX = 16 << 20  # of a file of gradients: larger ones are told by their digest alone
_BLOCK_BYTES = 1 << 22


def named_files(plan: Plan) -> dict[str, bytes]:
    """Graph and profile files beside or below the scenario, by the path it gives them."""
    folder = Path(plan.scenario.file).parent
    paths = {one.topology.path for one in plan.scenario.variants if isinstance(one.topology, TopologyFile)}
    paths |= set(_profile_paths(plan.scenario, folder))
    paths |= {one.given for one in gradient_files(plan) if Path(one.path).stat().st_size <= KEPT_BYTES_MAX}
    kept = [path for path in paths if not Path(path).is_absolute() and ".." not in Path(path).parts]
    return {path: read_bytes(folder / path, _FILE_BYTES_MAX) for path in sorted(kept)}


def gradient_files(plan: Plan) -> list[FileSpec]:
    """The files of gradients that the variants use, each once."""
    specs = [job.workload for variant in plan.variants for job in variant.jobs]
    return list({one.given: one for one in specs if isinstance(one, FileSpec)}.values())


def inputs(plan: Plan) -> list[dict[str, Any]]:
    """What the summary says of files of gradients: path as given, size and SHA-256."""
    told = []
    for one in gradient_files(plan):
        digest, size_bytes = hashlib.sha256(), 0
        with open_regular(one.path) as file:
            while block := file.read(_BLOCK_BYTES):
                digest.update(block)
                size_bytes += len(block)
        told.append({"path": one.given, "bytes": size_bytes, "sha256": digest.hexdigest()})
    return told


def _profile_paths(scenario: Scenario, folder: Path) -> list[str]:
    """Profile files below the scenario's folder, relative to it: a profile's node knows its file."""
    listed = scenario.document.children.get("profiles")
    items = listed.value if listed is not None and isinstance(listed.value, tuple) else ()
    files = [Path(item.file) for item in items if item.file not in (scenario.file, COMMAND_LINE)]
    return [file.relative_to(folder).as_posix() for file in files if file.is_relative_to(folder)]
