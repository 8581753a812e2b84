"""A study from beginning to end: refused or run, and written down if there is a folder for it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from netfold.errors import NetfoldError
from netfold.homomorphic.contract import refusal_of
from netfold.sim.files.out_folder import require_writable
from netfold.sim.study.folder import FOLDER, write_study
from netfold.sim.study.measure import Progress, Study, run_study
from netfold.sim.study.memory import refuse_more_than_fits
from netfold.sim.study.options import NamedCodec
from netfold.sim.study.source import Source
from netfold.sim.workload.workload import refusal_of_needs


def make_study(
    codecs: Sequence[NamedCodec],
    source: Source,
    rounds: int,
    seed: int,
    progress: Progress,
    out_dir: Path | None,
) -> tuple[Study, Path | None]:
    """A study, and its folder below `out_dir`.

    Raises
    ------
    DataError
        The folder cannot be written.
    NetfoldError
        It takes more memory than there is, or a codec needs facts of a training step or has no room for the
        workers.
    RunError
        A codec cannot carry the gradients or cannot decode.
    """
    if out_dir is not None:
        require_writable(out_dir, FOLDER)
    for named in codecs:
        if refusal := refusal_of_needs(named.codec, frozenset(), "a study"):
            raise NetfoldError(f"{named.name}: {refusal.message}", refusal.hint)
        if refused := refusal_of(named.codec, source.workers):
            raise NetfoldError(f"{named.name}: {refused.reason}", f"use {refused.remedy}")
    refuse_more_than_fits(codecs, source)
    started_at, started_s = datetime.now(UTC), time.perf_counter()
    found = run_study(codecs, source, rounds, seed, progress)
    if out_dir is None:
        return found, None
    return found, write_study(out_dir, found, started_at, time.perf_counter() - started_s)
