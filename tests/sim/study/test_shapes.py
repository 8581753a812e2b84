"""Shapes of tensors in a study and a fold: encoders see them, and wrong ones are reported."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray
from typer.testing import CliRunner

import netfold
from netfold.homomorphic.codec import Encoder, Exchange
from netfold.homomorphic.codecs.dense.kinds import Dense
from netfold.homomorphic.message import Gradient
from netfold.homomorphic.round import Round, StepFact, Tensor
from netfold.sim.commands.main import app
from netfold.sim.errors import DataError, NetfoldError
from netfold.sim.study.source import file_source

SEEN: list[tuple[Tensor, ...]] = []
ARRAYS = {"fc1.weight": (4, 3), "fc1.bias": (4,), "fc2.weight": (2, 4)}


class Looking(Encoder):
    """An encoder that notes the tensors of its rounds."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        """The wrapped encoder's."""
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
        """The facts that a test names."""
        return self.facts

    def worker(self, rank: int, workers: int, seed: int) -> Encoder:
        """A dense encoder that looks."""
        return Looking(super().worker(rank, workers, seed))


@pytest.fixture(autouse=True)
def seen() -> list[tuple[Tensor, ...]]:
    """What encoders saw."""
    SEEN.clear()
    return SEEN


def names(tensors: tuple[Tensor, ...]) -> list[tuple[str, tuple[int, ...], str, int]]:
    return [tuple(tensor) for tensor in tensors]


def gradients(workers: int = 2) -> NDArray[np.float32]:
    return np.arange(workers * 24, dtype=np.float32).reshape(workers, 24)


EXPECTED = [
    ("fc1.weight", (4, 3), "fc1", 0),
    ("fc1.bias", (4,), "fc1", 12),
    ("fc2.weight", (2, 4), "fc2", 16),
]


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
    assert [names(tensors) for tensors in seen] == [EXPECTED] * (3 * 2 + 2)  # a warm-up, two rounds, a fold
    seen.clear()
    netfold.study({"t": Tensors()}, gradients(), rounds=1)
    netfold.fold(Tensors(), gradients())
    assert set(seen) == {()}


def test_shapes_alone_say_how_many_elements_are_drawn(seen: list[tuple[Tensor, ...]]) -> None:
    codec = Tensors(values="float32")
    found = netfold.study({"t": codec}, shapes=[(128, 64), 128, "10x128", 10], density="100%", workers=2)

    assert found.codecs["up_bytes"].to_list() == [4 * 9610]
    assert names(seen[0]) == [
        ("tensor0", (128, 64), "layer0", 0),
        ("tensor1", (128,), "layer0", 8192),
        ("tensor2", (10, 128), "layer1", 8320),
        ("tensor3", (10,), "layer1", 9600),
    ]


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
    assert names(seen[-1]) == EXPECTED
    with pytest.raises(DataError, match="shapes: the file has the tensors' shapes\n  leave out shapes"):
        netfold.study({"t": Tensors()}, path, shapes=ARRAYS)


def test_arrays_without_workers_are_reported(tmp_path: Path) -> None:
    np.savez(tmp_path / "g.npz", **{name: np.ones(shape, np.float32) for name, shape in ARRAYS.items()})
    np.savez(tmp_path / "many.npz", a=np.ones((5000, 2), np.float32), b=np.ones((5000, 3), np.float32))

    with pytest.raises(DataError, match=r"fc1.bias: holds an array of shape \(4,\)"):
        file_source(tmp_path / "g.npz", None)
    with pytest.raises(DataError, match="its arrays are those of 5000 workers, a study takes up to 4096"):
        file_source(tmp_path / "many.npz", None)


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
        done = CliRunner().invoke(app, ["codecs", "study", "none", *place, *words])
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
