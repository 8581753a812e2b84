"""Files that a scenario names, read once before a run: their digests, and copies that make it repeatable."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from netfold.errors import DataError
from netfold.sim.capture.layout import NAME as LAYOUT
from netfold.sim.capture.layout import read_trace
from netfold.sim.files.foreign import UnreadableError, open_regular
from netfold.sim.resolve.plan import Plan
from netfold.sim.scenario import Scenario
from netfold.sim.scenario.node import COMMAND_LINE
from netfold.sim.workload.recording import ChakraTrace, Trace
from netfold.sim.workload.workload_keys import GradientFile, Synthetic, Training

KEPT_BYTES_MAX = 16 << 20  # of a gradient file or recording: of larger ones only the digests are recorded
_BLOCK_BYTES = 1 << 22

_State = tuple[int, ...]  # differs when a file was written or replaced


@dataclass(frozen=True)
class NamedFiles:
    """The files that a plan names, as they were before its first variant."""

    kept: Mapping[str, bytes]  # for the run folder, by their path in it
    inputs: list[dict[str, Any]]  # for the summary: path, whether it is kept, size and SHA-256 of every file
    states: Mapping[Path, _State]  # of gradient and model files, which are read while the variants run

    def require_unchanged(self) -> None:
        """Require that no gradient or model file was changed. A missing file fails later, when it is opened.

        Raises
        ------
        DataError
            A file is no longer the one whose digest is recorded.
        """
        for path, state in self.states.items():
            try:
                found = _state(path.stat())
            except OSError:
                continue
            if found != state:
                raise DataError(
                    f"{path}: was changed while the run was using it",
                    "run again, and do not change the file until the run ends",
                )


def read_named(plan: Plan) -> NamedFiles:
    """Read all files that the scenario of a plan names, including those of variants that are not run.

    A file is kept if it is beside or below the scenario and its name is free in a run folder: not hidden, and
    not the name of a file that every run folder has.

    Raises
    ------
    DataError
        A file cannot be read.
    """
    from netfold.sim.results.folder import is_free_name  # late: it imports polars

    folder = Path(plan.scenario.file).parent
    gradients, models = _gradient_paths(plan.scenario), _model_paths(plan.scenario)
    kept: dict[str, bytes] = {}
    inputs: list[dict[str, Any]] = []
    states: dict[Path, _State] = {}
    recorded = _recorded_paths(plan.scenario)
    gradients |= recorded.keys()
    for given in sorted(input_paths(plan.scenario) | _profile_paths(plan.scenario, folder)):
        path, is_gradient = folder / given, given in gradients
        is_kept, digest, size_bytes = is_free_name(given), hashlib.sha256(), 0
        try:
            with open_regular(path) as file:
                state = os.fstat(file.fileno())
                together = recorded.get(given, state.st_size)
                is_kept = is_kept and (not is_gradient or together <= KEPT_BYTES_MAX)
                blocks = []
                while block := file.read(_BLOCK_BYTES):
                    digest.update(block)
                    size_bytes += len(block)
                    blocks += [block] if is_kept else []
        except (UnreadableError, OSError) as error:
            why = error.message if isinstance(error, UnreadableError) else error.strerror or str(error)
            raise DataError(f"{path}: cannot be read: {why}", "put the file back, and run again") from None
        if is_kept:
            kept[given] = b"".join(blocks)
        if is_gradient or given in models:
            states[path] = _state(state)
        inputs.append({"path": given, "kept": is_kept, "bytes": size_bytes, "sha256": digest.hexdigest()})
    return NamedFiles(kept, inputs, states)


def input_paths(scenario: Scenario) -> set[str]:
    """The files that the variants of a scenario name, but profiles, which are part of it."""
    named = (_gradient_paths, _layer_paths, _model_paths, _device_paths, _graph_paths, _recorded_paths)
    return set().union(*(paths(scenario) for paths in named))


def _state(found: os.stat_result) -> _State:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _plain(path: str) -> str:
    """A path as run folders have it: without "." and doubled slashes."""
    return PurePosixPath(path).as_posix()


def _gradient_paths(scenario: Scenario) -> set[str]:
    sections = [job.workload for one in scenario.variants for job in one.jobs or (one,)]
    return {_plain(one.path) for one in sections if isinstance(one, GradientFile | ChakraTrace)}


def _recorded_paths(scenario: Scenario) -> dict[str, int]:
    """The files of the recorded folders that variants name, each with the bytes of its whole folder."""
    folder = Path(scenario.file).parent
    sections = [job.workload for one in scenario.variants for job in one.jobs or (one,)]
    found: dict[str, int] = {}
    for given in {_plain(one.path) for one in sections if isinstance(one, Trace)}:
        files = [LAYOUT, *(one.file for step in read_trace(folder / given).steps for one in step.ranks)]
        size_bytes = sum((folder / given / name).stat().st_size for name in files)
        found |= {f"{given}/{name}": size_bytes for name in files}
    return found


def _layer_paths(scenario: Scenario) -> set[str]:
    sections = [job.workload for one in scenario.variants for job in one.jobs or (one,)]
    profiles = [one.profile for one in sections if isinstance(one, Synthetic)]
    return {_plain(one) for one in profiles if one is not None}


def _model_paths(scenario: Scenario) -> set[str]:
    folder = Path(scenario.file).parent
    sections = [job.workload for one in scenario.variants for job in one.jobs or (one,)]
    models = [one.model for one in sections if isinstance(one, Training)]
    return {_plain(path) for model in models for path in model.files(folder)}


def _device_paths(scenario: Scenario) -> set[str]:
    sections = [job.device for one in scenario.variants for job in one.jobs or (one,)]
    return {_plain(path) for one in sections for path in one.files}


def _graph_paths(scenario: Scenario) -> set[str]:
    sections = [one.topology for one in scenario.variants]
    return {_plain(one.file) for one in sections if one.file is not None}


def _profile_paths(scenario: Scenario, folder: Path) -> set[str]:
    """Profile files, by the nodes of their profiles; relative to the scenario's folder if they are in it."""
    listed = scenario.document.children.get("profiles")
    items = listed.value if listed is not None and isinstance(listed.value, tuple) else ()
    files = [Path(item.file) for item in items if item.file not in (scenario.file, COMMAND_LINE)]
    return {(one.relative_to(folder) if one.is_relative_to(folder) else one).as_posix() for one in files}
