"""Gradients of a study and their tensors: made up or from a file, and what is said of wrong ones."""

from __future__ import annotations

import tracemalloc
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

import numpy as np
import pytest
from numpy.typing import NDArray

import netfold
import netfold.sim.studies.codec_study_inputs
from netfold.errors import DataError, NetfoldError, ScenarioError
from netfold.homomorphic.codec import Encoder, Exchange
from netfold.homomorphic.codecs.dense import Dense
from netfold.homomorphic.codecs.fixed_point import FixedPoint
from netfold.homomorphic.codecs.lossless import Lossless
from netfold.homomorphic.codecs.packed import Packed
from netfold.homomorphic.message import Gradient, Round, StepFact, Tensor
from netfold.sim.plan.memory_footprint import BASE_BYTES
from netfold.sim.studies.codec_study_inputs import (
    file_source,
    read_codec,
    read_codecs,
    refuse_more_than_fits,
    synthetic_source,
)
from tests.command_line import run_command

OPTIONS = {
    "elements": "1e3",
    "density": "10%,0.5",
    "pattern": "iid,rows",
    "row_elements": "10",
    "overlap": "0",
    "distribution": "integer",
}
WANTED = "it needs a float32 array: (elements,), the gradient of every worker, or (workers, elements)"
AT = "nan at [1, 1]\n  a gradient must be finite; look for an error in the training step that computed it"
SHARES = "use a number from 0 to 1 or a percentage, for example 0.01 or '1%'"
GRADIENTS = np.array([[0, 1, 0, 2], [0, 0, 0, 3]], np.float32)


def test_a_cell_for_each_pattern_and_density() -> None:
    source = synthetic_source(OPTIONS, workers=3, seed=1)

    assert [(cell.pattern, cell.density) for cell in source.cells] == [*product(("iid", "rows"), (0.1, 0.5))]
    assert (source.workers, source.elements) == (3, 1000)
    twice = {**OPTIONS, "density": "1%,0.01", "pattern": "iid"}
    assert len(synthetic_source(twice, 2, 1).cells) == 1  # the same share twice is one cell
    for cell in source.cells:
        seen = [[gradient.copy() for gradient in gradients] for gradients in cell.rounds(2)]
        assert [len(gradients) for gradients in seen] == [3, 3]
        assert all(np.count_nonzero(one) == 1000 * cell.density for gradients in seen for one in gradients)
        assert not np.array_equal(seen[0][0], seen[1][0])
        if cell.pattern == "rows":
            assert (np.count_nonzero(seen[0][0].reshape(100, 10), axis=1) % 10 == 0).all()


@pytest.mark.parametrize(
    ("key", "text", "message", "hint"),
    [
        ("elements", "0", "must be at least 1, found 0", "--elements: Elements of the gradient."),
        ("elements", "many", "must be a whole number, found 'many'", "--elements: Elements of the gradient."),
        ("density", "1%,2", "2 is not a fraction from 0 to 1", SHARES),
        (
            "pattern",
            "iid,rwos",
            "cannot use 'rwos'",
            "did you mean 'rows'? allowed: iid, rows, columns, blocks",
        ),
        ("row_elements", "[2", "broken YAML: ", ""),
    ],
)
def test_a_wrong_option_is_reported(key: str, text: str, message: str, hint: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        synthetic_source({**OPTIONS, key: text}, 2, 1)

    told, _, then = str(caught.value).partition("\n  ")
    assert told.startswith(f"--{key.replace('_', '-')}: {message}")
    assert then.startswith(hint)


def test_a_gradient_for_each_worker_or_one_for_all(tmp_path: Path) -> None:
    """Numbers of the other byte order are this machine's where codecs have them: kernels look at bits."""
    np.save(tmp_path / "g.npy", np.asfortranarray(GRADIENTS))
    np.save(tmp_path / "other.npy", GRADIENTS.astype(">f4"))
    np.savez_compressed(tmp_path / "g.npz", whatever=GRADIENTS)
    for path in (tmp_path / "g.npy", tmp_path / "other.npy", tmp_path / "g.npz"):
        source = file_source(path, None)
        (cell,) = source.cells

        assert (source.workers, source.elements, source.notes) == (2, 4, ())
        assert (cell.pattern, cell.density) == ("input", 3 / 8)
        for gradients in cell.rounds(2):
            assert np.array_equal(np.stack(gradients), GRADIENTS)
            assert all(one.flags.c_contiguous and one.dtype.isnative for one in gradients)
    path = tmp_path / "one.npy"
    np.save(path, GRADIENTS[0])
    source = file_source(path, 3)
    assert file_source(path, None).workers == 8
    assert source.notes == (f"all 3 workers have the same gradient, from {path}: it is also their union",)
    assert all(np.array_equal(one, GRADIENTS[0]) for one in next(source.cells[0].rounds(1)))


@pytest.mark.parametrize("name", ["g.npy", "g.npz"])
def test_a_file_that_does_not_fit_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """8 MiB of zeros: with what two workers decode and the sums, 10 times as much."""
    save = np.save if name == "g.npy" else np.savez_compressed
    save(tmp_path / name, np.zeros((2, 1 << 20), np.float32))
    monkeypatch.setattr(
        netfold.sim.studies.codec_study_inputs, "available_bytes", lambda: BASE_BYTES + (79 << 20)
    )
    tracemalloc.start()
    with pytest.raises(NetfoldError) as caught:
        file_source(tmp_path / name, None)
    taken = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert str(caught.value) == (
        f"{tmp_path / name}: 2,097,152 numbers for 2 workers take at least 330 MiB, "
        "329 MiB of this machine's memory are available\n  use a file of fewer workers or elements"
    )
    assert taken < 4 << 20


def test_the_hint_of_a_study_that_does_not_fit_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        netfold.sim.studies.codec_study_inputs, "available_bytes", lambda: BASE_BYTES + (40 << 20)
    )
    one_kind = {**OPTIONS, "density": "1", "pattern": "iid"}
    codecs = read_codecs(["exact"])
    with pytest.raises(NetfoldError) as caught:
        refuse_more_than_fits(codecs, synthetic_source({**one_kind, "elements": "1e9"}, 8, 1))
    most = caught.value.hint.split()[1].replace(",", "")

    refuse_more_than_fits(codecs, synthetic_source({**one_kind, "elements": most}, 8, 1))


def test_a_study_that_does_not_fit_is_refused_before_anything_is_drawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """1,000 elements of 8 workers: at least their gradients and sums, 4 bytes each, and 250 MiB of Python."""
    source = synthetic_source({**OPTIONS, "density": "1", "pattern": "iid"}, workers=8, seed=1)
    codecs = read_codecs(["none"])
    available = mock.Mock(side_effect=[2 * BASE_BYTES, BASE_BYTES + 8 * 2 * 4 * 1000 - 1])
    monkeypatch.setattr(netfold.sim.studies.codec_study_inputs, "available_bytes", available)
    refuse_more_than_fits(codecs, source)
    with pytest.raises(NetfoldError, match=r"1,000 elements of 8 workers take about 250 MiB, "):
        refuse_more_than_fits(codecs, source)


@pytest.mark.parametrize(
    ("array", "workers", "message"),
    [
        (
            GRADIENTS.astype(np.float64),
            None,
            f"holds float64 values\n  {WANTED}; convert it with array.astype(numpy.float32)",
        ),
        (np.float32(1), None, f"holds an array of shape ()\n  {WANTED}"),
        (np.array([[0, 1], [2, np.nan]], np.float32), None, f"holds numbers that are not finite: {AT}"),
        (GRADIENTS, 3, "holds the gradients of 2 workers, --workers says 3\n  leave out --workers"),
        (
            np.ones((4097, 8), np.float32),
            None,
            "shape (4097, 8) is that of 4097 workers with 8 elements each, a study takes up to 4096 workers\n"
            "  did you mean the transpose? numpy.save('gradients.npy', array.T)",
        ),
        (
            "hello",
            None,
            "damaged, of Python objects, or not written by numpy.save or savez\n"
            "  of a PyTorch tensor: numpy.save('gradient.npy', tensor.float().cpu().numpy())",
        ),
        (None, None, "cannot be read: there is no such file\n  give the path of a file"),
    ],
)
def test_a_wrong_file_is_reported(tmp_path: Path, array: Any, workers: int | None, message: str) -> None:
    """Others are where files are read: `tests/sim/workload/files`."""
    path = tmp_path / "g.npy"
    if isinstance(array, str):
        path.write_text(array)
    elif array is not None:
        np.save(path, array)

    with pytest.raises(DataError) as caught:
        file_source(path, workers)

    assert str(caught.value) == f"{path}: {message}"
    np.save(path, np.ones((4096, 2), np.float32))
    assert file_source(path, None).workers == 4096


SEEN: list[tuple[Tensor, ...]] = []
ARRAYS = {"fc1.weight": (4, 3), "fc1.bias": (4,), "fc2.weight": (2, 4)}


class Looking(Encoder):
    """An encoder that notes the tensors of its rounds."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        assert sum(tensor.elements for tensor in round.tensors) in (0, gradient.size)
        SEEN.append(round.tensors)
        return self._encoder.exchange(gradient, round)


@dataclass(frozen=True)
class Tensors(Dense):
    """A codec that notes the tensors of its rounds."""

    kind: ClassVar[str] = "tensors"
    facts: frozenset[StepFact] = frozenset()

    @property
    def needs(self) -> frozenset[StepFact]:
        return self.facts

    def worker(self, rank: int, workers: int, seed: int) -> Encoder:
        return Looking(super().worker(rank, workers, seed))


@pytest.fixture(autouse=True)
def seen() -> list[tuple[Tensor, ...]]:
    """What encoders saw."""
    SEEN.clear()
    return SEEN


def gradients(workers: int = 2) -> NDArray[np.float32]:
    return np.arange(workers * 24, dtype=np.float32).reshape(workers, 24)


EXPECTED = (
    Tensor("fc1.weight", (4, 3), "fc1", 0),
    Tensor("fc1.bias", (4,), "fc1", 12),
    Tensor("fc2.weight", (2, 4), "fc2", 16),
)


@pytest.mark.parametrize(
    "shapes",
    [ARRAYS, "fc1.weight=4x3,fc1.bias=4,fc2.weight=2x4", ["fc1.weight=4x3", "fc1.bias=4", "fc2.weight=2x4"]],
)
def test_encoders_see_the_tensors_in_every_round(shapes: Any, seen: list[tuple[Tensor, ...]]) -> None:
    """Of a study and of a fold; without shapes nothing is known."""
    found = netfold.study({"t": Tensors()}, gradients(), shapes=shapes, rounds=2)
    folded = netfold.fold(Tensors(), gradients(), shapes=shapes)

    assert found.faults == ()
    assert folded.decoded[0].tolist() == gradients().sum(axis=0).tolist()
    assert seen == [EXPECTED] * (3 * 2 + 2)  # a warm-up, two rounds, a fold
    seen.clear()
    netfold.study({"t": Tensors()}, gradients(), rounds=1)
    netfold.fold(Tensors(), gradients())
    assert set(seen) == {()}


def test_a_file_of_named_arrays_says_its_tensors(tmp_path: Path, seen: list[tuple[Tensor, ...]]) -> None:
    path = tmp_path / "g.npz"
    rows, stops = gradients(), np.cumsum([int(np.prod(shape)) for shape in ARRAYS.values()])
    parts = np.split(rows, stops[:-1], axis=1)
    np.savez(path, **{name: part.reshape(2, *ARRAYS[name]) for name, part in zip(ARRAYS, parts, strict=True)})
    source = file_source(path, None)

    (found,) = source.cells[0].rounds(1)
    assert np.stack(found).tolist() == rows.tolist()
    assert (source.workers, source.elements, source.cells[0].density) == (2, 24, 47 / 48)
    assert source.description["tensors"] == ["fc1.weight=4x3", "fc1.bias=4", "fc2.weight=2x4"]
    netfold.study({"t": Tensors()}, path, rounds=1)
    assert seen[-1] == EXPECTED
    with pytest.raises(DataError, match="shapes: the file has the tensors' shapes\n  leave out shapes"):
        netfold.study({"t": Tensors()}, path, shapes=ARRAYS)
    np.savez(path, a=np.ones((5000, 2), np.float32), b=np.ones((5000, 3), np.float32))
    with pytest.raises(DataError, match="its arrays are those of 5000 workers, a study takes up to 4096"):
        file_source(path, None)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (
            "4x",
            "cannot read the tensor '4x'\n  a tensor is written 128x64, or with its name fc1.weight=128x64",
        ),
        ([(4, 3)], "the tensors have 12 elements, each gradient has 24\n  give the shape of every tensor"),
    ],
)
def test_wrong_shapes_are_reported(shapes: object, message: str) -> None:
    for call in (netfold.study, netfold.fold):
        with pytest.raises(DataError) as caught:
            call("none", gradients(), shapes=shapes)  # type: ignore[operator]

        assert str(caught.value) == f"shapes: {message}"


def test_on_the_command_line(tmp_path: Path) -> None:
    def run(*words: str) -> tuple[int, str]:
        place = ("--out", str(tmp_path), "--workers", "2", "--rounds", "1")
        done = run_command("codecs", "study", "none", *place, *words)
        return done.exit_code, " ".join((done.output + str(done.exception or "")).split())

    code, text = run("--shape", "128x64,128,10x128,10", "--density", "1%", "--json")
    assert code == 0
    assert '"tensors": [ "tensor0=128x64", "tensor1=128", "tensor2=10x128", "tensor3=10" ]' in text
    assert '"elements": 9610' in text
    code, text = run("--shape", "3x4", "--elements", "13")
    assert (code, "--shape: the tensors have 12 elements, each gradient has 13" in text) == (2, True)
    assert "--shape: cannot read the tensor '3y4'" in run("--shape", "3y4")[1]


@pytest.mark.parametrize("fact", list(StepFact))
def test_codecs_that_need_a_training_step_are_refused(fact: StepFact) -> None:
    codec = Tensors(facts=frozenset({fact}))
    hint = "\n  use a scenario whose workload has the kind training, or another codec"

    with pytest.raises(NetfoldError) as caught:
        netfold.study({"mine": codec}, gradients())
    assert str(caught.value) == f"mine: tensors needs {fact.value}, a study does not know it{hint}"
    with pytest.raises(DataError) as caught:
        netfold.fold(codec, gradients())
    assert str(caught.value) == f"tensors needs {fact.value}, fold does not know it{hint}"


BROKEN = "expected ',' or ']', but got '<stream end>'\n  check its brackets and quotes"
LISTS = "`netfold codecs` lists codecs and their options"
EXAMPLE = "use KIND:OPTION=VALUE,OPTION=VALUE, for example lossless:load=0.7,block_elements=1024"


def test_a_kind_with_options() -> None:
    texts = ["packed", "lossless:load=0.5,block_elements=1024", "fixed_point:factor=1e6,block_elements=null"]

    assert [(text, codec) for text, codec in read_codecs(texts)] == [
        (texts[0], Packed()),
        (texts[1], Lossless(load=0.5, block_elements=1024)),
        (texts[2], FixedPoint(factor=1e6)),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pakced", "cannot use 'pakced' as a kind\n  did you mean 'packed'? allowed: "),
        ("lossless:lod=0.7", "lod: unknown key 'lod'\n  did you mean 'load'? allowed: setting, "),
        ("none:load=0.7", "load: unknown key 'load'\n  none has no options"),
        ("lossless:load=x", f"load: must be a number, found 'x'\n  {LISTS}"),
        ("packed:block_elements=7", "block_elements is 7: must be a power of two from 64 to 65536, "),
        ("packed:", f"cannot read ''\n  {EXAMPLE}"),
        ("packed:kind=none", "the key 'kind' appears twice\n  name each option once"),
        ("lossless:load=[1", f"load: broken YAML: {BROKEN}"),
    ],
)
def test_what_is_wrong_is_reported(text: str, message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        read_codec(text)

    assert str(caught.value).startswith(f"{text}: {message}")
    assert caught.value.exit_code == 2


def test_no_codec_twice() -> None:
    with pytest.raises(ScenarioError) as caught:
        read_codecs(["packed", "none", "packed"])

    assert str(caught.value) == "packed: appears twice\n  name each codec once"
