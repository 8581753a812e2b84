"""What each rank writes, and how it becomes one folder.

While a training runs, all is in a hidden folder beside the wanted one: `begun-0003.json` when a rank begins,
a file of gradients for each of its steps, and `rank-0003.json` when it has all of them, or `failed-0003.txt`.
The rank that completes the set joins it: it writes trace.json and renames the folder.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from netfold.errors import DataError, RunError
from netfold.sim.capture.layout import FORMAT, NAME, TRACE_BYTES_MAX, read_trace
from netfold.sim.files.durable import sync_folder, write_file

_BEGUN = re.compile(r"begun-(\d+)\.json")


class Parts:
    """The hidden folder of a recording.

    Parameters
    ----------
    wanted
        The folder that it becomes.
    run
        Tells it from those of other runs.
    is_watched
        Whether a launcher reports what became of each rank, and removes the hidden folder. Else the last rank
        that ends removes it.
    """

    def __init__(self, wanted: Path, run: str, is_watched: bool = True) -> None:
        self.wanted, self._is_watched = wanted, is_watched
        self.path = wanted.parent / f".{wanted.name}.parts-{run}"

    def begin(self, rank: int, facts: Mapping[str, Any]) -> None:
        """Say that a rank begins; `facts` has the `world_size`."""
        self.path.mkdir(parents=True, exist_ok=True)
        write_file(self.path / f"begun-{rank:04d}.json", json.dumps(facts).encode())

    def fail(self, rank: int, why: str) -> None:
        """Say why a rank has nothing to give."""
        with contextlib.suppress(OSError):  # the disk may be the reason
            write_file(self.path / f"failed-{rank:04d}.txt", why.encode())
            self._remove_failed(rank)

    def finish(self, rank: int, part: Mapping[str, Any]) -> None:
        """Keep what a rank has recorded, and join all parts if it is the last.

        Raises
        ------
        RunError
            The parts do not fit each other.
        """
        write_file(self.path / f"rank-{rank:04d}.json", json.dumps(part).encode())
        self._join(int(part["world_size"]))
        with contextlib.suppress(OSError):  # joined
            self._remove_failed(rank)

    def _remove_failed(self, rank: int) -> None:
        """Remove the hidden folder if all ranks have ended and some have failed, and no launcher will."""
        if self._is_watched:
            return
        ranks = range(json.loads((self.path / f"begun-{rank:04d}.json").read_bytes())["world_size"])
        names = {path.name for path in self.path.iterdir()}
        failed = [f"failed-{one:04d}.txt" in names for one in ranks]
        if any(failed) and all(
            f"rank-{one:04d}.json" in names or is_failed for one, is_failed in zip(ranks, failed, strict=True)
        ):
            shutil.rmtree(self.path, ignore_errors=True)

    def _join(self, ranks: int) -> None:
        names = [f"rank-{rank:04d}.json" for rank in range(ranks)]
        if not all((self.path / name).exists() for name in names):
            return
        joining = self.path.with_name(f"{self.path.name}-joining")
        try:
            os.rename(self.path, joining)
        except OSError:  # another rank was faster
            return
        try:
            parts = [json.loads((joining / name).read_bytes()) for name in names]
            trace = joined(parts)
            kept = {one["file"] for step in trace["steps"] for one in step["ranks"]}
            for path in joining.iterdir():
                if path.name not in kept:
                    path.unlink()
            content = json.dumps(trace, separators=(",", ":")).encode()
            if len(content) > TRACE_BYTES_MAX:
                raise RunError(
                    f"{NAME} would have {len(content)} bytes, at most {TRACE_BYTES_MAX} are read",
                    "record fewer steps",
                )
            write_file(joining / NAME, content)
            read_trace(joining)
            sync_folder(joining)
            os.rename(joining, self.wanted)
            sync_folder(self.wanted.parent)
        except BaseException:
            shutil.rmtree(joining, ignore_errors=True)
            raise

    def report(self) -> tuple[str, ...]:
        """What became of each rank, where there is no trace; removes the hidden folder."""
        lines = []
        names = {path.name for path in self.path.iterdir()} if self.path.is_dir() else set()
        begun = sorted(int(match[1]) for match in map(_BEGUN.fullmatch, names) if match)
        facts = json.loads((self.path / f"begun-{begun[0]:04d}.json").read_bytes()) if begun else {}
        for rank in range(facts.get("world_size", 0)):
            count = sum(name.endswith(f"-rank-{rank:04d}.safetensors") for name in names)
            if rank not in begun:
                what = "never wrapped a model in DistributedDataParallel"
            elif f"failed-{rank:04d}.txt" in names:
                what = (self.path / f"failed-{rank:04d}.txt").read_text()
            elif f"rank-{rank:04d}.json" in names:
                what = f"recorded {count} steps"
            else:
                what = f"ended after {count} of {facts['steps']} recorded steps, without a word"
            lines.append(f"rank {rank}: {what}")
        shutil.rmtree(self.path, ignore_errors=True)
        return tuple(lines)


def joined(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The trace of all ranks' parts: the steps that all of them recorded with finite numbers.

    Raises
    ------
    RunError
        Ranks differ in their model, or have no step in common.
    """
    first = parts[0]
    for rank, part in enumerate(parts):
        if part["tensors"] != first["tensors"]:
            raise RunError(
                f"rank {rank} has other tensors than rank 0", "all ranks must train the same model"
            )
        if part["buckets"] != first["buckets"]:
            raise RunError(f"rank {rank} has other buckets than rank 0", "record again, and skip more steps")
    by_rank = [{one["step"]: one["times"] for one in part["steps"]} for part in parts]
    common = sorted(set.intersection(*map(set, by_rank)))
    good = [step for step in common if all(own[step] is not None for own in by_rank)]
    notes = list(first["notes"])
    if dropped := len(common) - len(good):
        notes.append(f"{dropped} steps whose gradients were not finite are left out, as a loss scaler does")
    if len(common) < first["wanted_steps"]:
        notes.append(f"{first['wanted_steps']} steps were wanted, all ranks recorded {len(common)}")
    if not good:
        counts = ", ".join(f"rank {rank}: {len(own)}" for rank, own in enumerate(by_rank))
        raise RunError(
            f"there is no step that all ranks recorded with finite gradients ({counts} steps)",
            "train longer: the first steps are skipped, since DDP makes new buckets after its first",
        )
    return {
        "format": FORMAT,
        "model": first["model"],
        "world_size": len(parts),
        "tensors": first["tensors"],
        "buckets": first["buckets"],
        "steps": [{"step": step, "ranks": [own[step] for own in by_rank]} for step in good],
        "made_by": first["made_by"],
        "notes": notes,
    }


def require_space(folder: Path, needed_bytes: int) -> None:
    """Require that a disk has room for a recording.

    Raises
    ------
    DataError
        It has not.
    """
    free_bytes = shutil.disk_usage(folder).free
    if needed_bytes > free_bytes:
        raise DataError(
            f"{folder}: the recording takes up to {needed_bytes:,} bytes, {free_bytes:,} are free",
            "record fewer steps, or name a folder on another disk",
        )
