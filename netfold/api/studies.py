"""Codecs without a network: study several side by side, fold once; every codec on every collective."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict, Unpack

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray
from rich.table import Table

from netfold.errors import DataError, NetfoldError, RunError
from netfold.homomorphic.codec import (
    Codec,
    CodecRefusedError,
    ContractError,
    DecodeError,
    EncodeError,
    LockStepError,
    make_encoders,
)
from netfold.homomorphic.fold import Folded
from netfold.homomorphic.fold import fold as fold_encoders
from netfold.homomorphic.message import Round
from netfold.sim.files import require_threads
from netfold.sim.report.shown import Shown
from netfold.sim.results.format import frame
from netfold.sim.run.context import Progress
from netfold.sim.studies import ROUNDS
from netfold.sim.studies.codec_measures import CodecRecord, MessageRecord, SpeedRecord, Study
from netfold.sim.studies.codec_study import make_study, study_table
from netfold.sim.studies.codec_study_gradients import (
    NamedCodec,
    Shapes,
    Source,
    array_source,
    file_source,
    read_codec,
    read_codecs,
    read_shapes,
    synthetic_source,
)
from netfold.sim.studies.matrix import Cell, Matrix, Wanted, make_matrix, matrix_table
from netfold.sim.workload.layers import elements_of
from netfold.sim.workload.workload import refusal_of_needs

Gradients = str | os.PathLike[str] | NDArray[np.float32]
Several = str | float | Sequence[str | float]


class SyntheticKeys(TypedDict, total=False):
    """Keys of a scenario's synthetic workload; `density` and `pattern` may have several values."""

    elements: str | float
    density: Several
    pattern: str | Sequence[str]
    row_elements: int
    overlap: str | float
    distribution: str


class Studied(Shown):
    """The results of a study as polars data frames; `print` shows the study's table.

    Attributes
    ----------
    codecs
        A row for every codec, pattern and density: bytes, errors, estimates and redone parts.
    messages
        Bytes that one worker sends up, per message.
    speeds
        Times of encoding and decoding on this machine.
    faults
        Violations of the law: errors beyond the codec's bound, workers that decode different bits.
    path
        The study's folder, or None.
    """

    def __init__(self, study: Study, path: Path | None) -> None:
        self._study = study
        self.codecs: pl.DataFrame = frame(CodecRecord, study.records)
        self.messages: pl.DataFrame = frame(MessageRecord, study.messages)
        self.speeds: pl.DataFrame = frame(SpeedRecord, study.speeds)
        self.faults: tuple[str, ...] = study.faults
        self.path: Path | None = path

    def table(self) -> Table:
        """The table that `netfold codecs study` prints."""
        return study_table(self._study)

    def __repr__(self) -> str:
        names = ", ".join(self.codecs["codec"].unique(maintain_order=True))
        return f"<netfold study of {names}: {len(self.faults)} faults>"


def study(
    codecs: Sequence[str] | Mapping[str, Codec],
    gradients: Gradients | None = None,
    *,
    workers: int | None = None,
    rounds: int = ROUNDS,
    seed: int = 1,
    out: str | os.PathLike[str] | None = None,
    shapes: Shapes | None = None,
    **synthetic: Unpack[SyntheticKeys],
) -> Studied:
    """Study codecs on gradients, without a network: bytes, speed on this machine, errors.

    Parameters
    ----------
    codecs
        Texts such as "packed" or "lossless:load=0.7", or a mapping of names in the tables to codecs.
    gradients
        A file of one array, or the array: float32, (elements,) or (workers, elements); or a file of several
        named arrays, each (workers, …), which are the tensors of a gradient. Left out, the gradients are
        synthetic, with the keys of a scenario's synthetic workload.
    out
        Parent of the study's folder, as for `netfold codecs study`; left out, nothing is written.
    shapes
        Shapes of the gradient's tensors, for codecs that work by tensor: (rows, columns) or "128x64", in a
        list, or by name in a mapping. Names such as "fc1.weight" say the layer; without names a matrix begins
        a layer, and the vectors after it belong to it. Left out, the tensors are those of the file, or
        unknown.

    Raises
    ------
    ScenarioError, DataError
        A codec, an option or gradients that cannot be used.
    RunError
        A codec cannot carry the gradients or cannot decode.
    """
    require_threads()
    if isinstance(codecs, str):
        codecs = [codecs]
    wanted = (
        tuple(NamedCodec(name, codec) for name, codec in codecs.items())
        if isinstance(codecs, Mapping)
        else read_codecs(codecs)
    )
    if not wanted:
        raise NetfoldError("no codec to study", "name one or more, such as 'packed'")
    source = _source(gradients, synthetic, workers, seed, shapes)
    out_dir = None if out is None else Path(out)
    return Studied(*make_study(wanted, source, rounds, seed, lambda *_: None, out_dir))


def _source(
    gradients: Gradients | None,
    synthetic: SyntheticKeys,
    workers: int | None,
    seed: int,
    shapes: Shapes | None,
) -> Source:
    if shapes is not None:
        tensors = read_shapes(shapes)
        if gradients is None and "elements" not in synthetic:
            synthetic = {**synthetic, "elements": elements_of(tensors)}
        return _source(gradients, synthetic, workers, seed, None).with_tensors(tensors)
    if gradients is None:
        return synthetic_source({key: _text(value) for key, value in synthetic.items()}, workers, seed)
    if synthetic:
        keys = ", ".join(synthetic)
        raise NetfoldError(f"{keys}: gradients are given", f"leave out {keys}, or the gradients")
    if isinstance(gradients, str | os.PathLike):
        return file_source(Path(gradients), workers)
    return array_source(np.asarray(gradients), workers)


def _text(value: Any) -> str:
    # The command line puts commas between several values.
    return str(value) if isinstance(value, str | int | float) else ",".join(map(str, value))


def fold(
    codec: Codec | str,
    gradients: Sequence[ArrayLike] | NDArray[Any],
    *,
    seed: int = 1,
    shapes: Shapes | None = None,
) -> Folded:
    """Aggregate one gradient per worker with a codec, in this process: `decoded` has every worker's sum.

    Parameters
    ----------
    codec
        A codec, or a text such as "lossless:load=0.7".
    gradients
        A row for each worker, all of one length; converted to float32.
    shapes
        Shapes of the gradient's tensors, as `study` takes them.

    Raises
    ------
    ScenarioError, DataError
        A codec, gradients or shapes that cannot be used: the codec has no room for the workers, or cannot
        carry a value.
    RunError
        Merged messages cannot be decoded, or the codec does not keep its contract.
    """
    if isinstance(codec, str):
        codec = read_codec(codec).codec
    if refusal := refusal_of_needs(codec, frozenset(), "fold"):
        raise DataError(*refusal)
    rows = _rows(gradients)
    lengths = {row.shape for row in rows}
    if len(lengths) != 1 or rows[0].ndim != 1:
        found = ", ".join(str(row.shape) for row in rows) or "none"
        raise DataError(f"the gradients have the shapes {found}", "give each worker a row, all of one length")
    tensors = () if shapes is None else read_shapes(shapes, elements=rows[0].size)
    round = Round(0, 0, len(rows), seed, tensors=tensors)
    try:
        encoders = make_encoders(codec, len(rows), seed)
        return fold_encoders(encoders, rows, round, server=codec.server(len(rows), seed))
    except CodecRefusedError as error:
        raise DataError(error.refusal.reason, f"use {error.refusal.remedy}") from None
    except EncodeError as error:
        raise DataError(str(error), "use another codec, or other gradients") from None
    except (DecodeError, LockStepError, ContractError) as error:
        hint = "netfold.testing.check_codec says what a codec must do"
        raise RunError(f"codec {codec.kind!r}: {error}", hint) from error


def _rows(gradients: Sequence[ArrayLike] | NDArray[Any]) -> list[NDArray[np.float32]]:
    """A float32 array for each worker; what is beyond float32 is infinite, as it would be in a training."""
    try:
        with np.errstate(over="ignore"):
            return [np.ascontiguousarray(row, np.float32) for row in gradients]
    except (TypeError, ValueError) as error:
        raise DataError(f"the gradients are no numbers: {error}", "give each worker a row") from None


# Every codec on every collective.


class Matrixed(Shown):
    """What every codec on every collective came to; `print` shows the matrix.

    Attributes
    ----------
    cells
        A row for every codec, collective, choice (such as a switch program) and loss: verdict ("refused"
        with reason and hint where it does not work), time, bytes, and how much the checks have examined.
    """

    def __init__(self, matrix: Matrix) -> None:
        self._matrix = matrix
        self.cells: pl.DataFrame = frame(Cell, matrix.cells)

    @property
    def passes(self) -> bool:
        """Whether every cell that ran passed all checks."""
        return not self._matrix.failed

    def table(self) -> Table:
        """The table that `netfold codecs matrix` prints."""
        return matrix_table(self._matrix)

    def __repr__(self) -> str:
        ran = self.cells.filter(pl.col("verdict") != "refused").height
        return f"<netfold matrix: {ran} of {self.cells.height} cells ran, {len(self._matrix.failed)} failed>"


def matrix(
    codecs: Sequence[str] = (),
    *,
    collectives: Sequence[str] = (),
    loss: str = "1%",
    workers: int = 4,
    switch: str = "",
    seed: int = 1,
    progress: Progress | None = None,
) -> Matrixed:
    """Run codecs on collectives, each without loss and with it: a few training steps on a star.

    Parameters
    ----------
    codecs
        Texts such as "packed" or "lossless:load=0.7"; left out, all that are registered.
    collectives
        Kinds of collectives; left out, all. in_network is run with every switch program.
    loss
        Share of the packets that every link loses in the second run of a cell; "0%": no second run.
    switch
        Profile of the switch; left out, for every cell the one that can do least of those that carry it.
    progress
        Called with the current codec, the codecs done and all codecs; `print` works.

    Raises
    ------
    ScenarioError, NetfoldError
        A codec, an option, a collective, a switch or a loss that cannot be used.
    DataError
        The training data is not available.
    """
    require_threads()
    named = [codecs] if isinstance(codecs, str) else codecs
    kinds = [collectives] if isinstance(collectives, str) else collectives
    wanted = Wanted(tuple(named), tuple(kinds), loss, workers, switch, seed)
    return Matrixed(make_matrix(wanted, progress or _ignore_progress))


def _ignore_progress(what: str, done: float, total: float) -> None:
    """Default: progress is discarded."""
