"""The contract of a model: what is known of it without building it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from netfold.homomorphic.message import Tensor
from netfold.sim.keys import Section, count_of
from netfold.sim.workload.layers import elements_of, placed, tensor_of

if TYPE_CHECKING:
    import torch
    from torch import nn

    from netfold.sim.workload.workload import Score


class Data(NamedTuple):
    """A data set that a model can be trained on."""

    name: str
    """A name in `data_sets.DATA_SETS`."""
    stands_in_for: str = ""
    """The benchmark's own data, of which it takes the place; empty: nothing."""


class TaskSettings(NamedTuple):
    """What a task depends on besides its model."""

    data: str  # name of one of the model's data sets
    batch: int  # samples per worker and step
    workers: int
    seed: int
    holds_out: bool = False  # whether a part of the data is kept for tests


class Density(NamedTuple):
    """Share of a model's gradient elements that are not zero, as measured with another implementation of it.

    At the first step, from random weights; `union` is over 8 workers. There is one measurement, with one
    random start.
    """

    batch: int
    """Samples per worker."""
    own: float
    """Share of one worker's elements."""
    union: float
    """Share of the elements of the workers' sum."""
    options: Mapping[str, Any] = MappingProxyType({})
    """Options of the model beyond the defaults."""
    data: str | None = None
    """One of the model's data sets; None: the default."""


class Task(Protocol):
    """A model with data for a fixed number of workers: loss, samples of each worker, a test on others.

    Samples depend on (seed, step, worker) alone. Each worker draws from its own shard of the data, with
    replacement. A task that holds out a part of its data for tests divides only the rest into shards.
    """

    def build(self) -> nn.Module:
        """Return the model with new weights from PyTorch's global generator."""

    def samples(self, step: int, worker: int) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
        """Inputs of the model and targets of the loss: one batch."""

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Mean over the batch, a scalar."""

    def score(self, model: nn.Module) -> Score | None:
        """How well a model in evaluation mode does on the held-out data; None if nothing is held out."""


class Model(Section, ABC):
    """A model that can be trained: a frozen section whose fields are its options, `kind` first.

    What it says, it says without PyTorch, which is imported when `module` or `task` is called.
    """

    kind: str  # a literal
    title: ClassVar[str]
    source: ClassVar[str]  # the paper or the code that has its layers and sizes
    data: ClassVar[tuple[Data, ...]]  # the first is the default
    metric: ClassVar[str]  # what tests on held-out data measure
    densities: ClassVar[tuple[Density, ...]] = ()  # known ones
    sample_bytes: ClassVar[int] = 0  # memory of a pass for each sample of a batch, as measured; 0: little

    @classmethod
    def name(cls) -> str:
        """Its kind, by which a scenario names it."""
        return str(cls.model_fields["kind"].default)

    @classmethod
    def default(cls) -> Model:
        # With its default options; one without a default is a ValidationError.
        return cls.model_validate({"kind": cls.name()})

    @property
    def code(self) -> str:
        """The Python file that is run for it, as given; empty for netfold's own."""
        return ""

    @property
    @abstractmethod
    def tensors(self) -> tuple[Tensor, ...]:
        """Its parameters, one after another in gradient-ready order."""

    @abstractmethod
    def module(self) -> nn.Module:
        """The module with new weights from PyTorch's global generator."""

    @abstractmethod
    def task(self, settings: TaskSettings) -> Task:
        """The model with its data, for a number of workers.

        Raises
        ------
        DataError
            The data set is not available, or has fewer samples than there are workers.
        """

    @classmethod
    def known(cls) -> Iterator[tuple[Model, Density]]:
        """Models of this kind whose densities are known."""
        for density in cls.densities:
            yield cls.model_validate({"kind": cls.name(), **density.options}), density

    @property
    def elements(self) -> int:
        return elements_of(self.tensors)

    @property
    def untestable(self) -> str:
        """Why nothing can be held out for tests, with a hint on a second line; empty if it can."""
        return ""

    @property
    def table_bytes(self) -> int:
        """Memory of tables that its data need, beside the data set itself."""
        return 0

    def row_tables(self, batch: int) -> Mapping[str, int]:
        """The parameters whose gradients PyTorch gives as rows of a table, with most rows of a batch."""
        return {}

    def held_elements(self, batch: int) -> int:
        """Elements that are kept of one worker's gradient, at most: all, or of a table its rows."""
        most = self.row_tables(batch)
        return sum(
            tensor.elements // tensor.shape[0] * most.get(tensor.name, tensor.shape[0])
            for tensor in self.tensors
        )

    @property
    def written(self) -> str | dict[str, Any]:
        """The model as a scenario writes it: its kind, with the options that differ from their defaults."""
        options = self.model_dump(mode="json", exclude_defaults=True, exclude={"kind"})
        return {"kind": self.kind, **options} if options else self.kind

    def files(self, folder: Path) -> set[str]:
        """The user's files that it is made of, relative to the folder of the scenario."""
        return set()

    def located(self, folder: Path, settings: TaskSettings) -> Model:
        """The model as it is in the file that it names, in a folder; itself if it names none.

        Raises
        ------
        UserModelError
            The file cannot be used.
        """
        return self

    def stands_in_for(self, data: str | None) -> str:
        """What a data set takes the place of; empty if it is the benchmark's own. None: the default."""
        return self.data_named(data).stands_in_for

    def data_named(self, name: str | None) -> Data:
        """One of its data sets, a KeyError if it is not trained on such data; None: the default."""
        if name is None:
            return self.data[0] if self.data else Data("")  # "": its own
        return {one.name: one for one in self.data}[name]


# Tensors of common layers as PyTorch names them, in the order in which their gradients become ready.


def linear(name: str, inputs: int, outputs: int) -> tuple[Tensor, ...]:
    # The bias is ready first.
    return tensor_of(f"{name}.bias", (outputs,)), tensor_of(f"{name}.weight", (outputs, inputs))


def embedding(name: str, rows: int, columns: int) -> tuple[Tensor, ...]:
    return (tensor_of(f"{name}.weight", (rows, columns)),)


def convolution(name: str, inputs: int, outputs: int, kernel: int, bias: bool = True) -> tuple[Tensor, ...]:
    """Weight and bias of a convolution with a square kernel: the weight is ready first."""
    weight = tensor_of(f"{name}.weight", (outputs, inputs, kernel, kernel))
    return (weight, tensor_of(f"{name}.bias", (outputs,))) if bias else (weight,)


def norm(name: str, channels: int, layer: str) -> tuple[Tensor, ...]:
    """Weight and bias of a norm, which belongs to a layer: the weight is ready first."""
    weight, bias = (tensor_of(f"{name}.{part}", (channels,)) for part in ("weight", "bias"))
    return weight._replace(layer=layer), bias._replace(layer=layer)


def lstm(name: str, inputs: int, hidden: int, layers: int) -> tuple[Tensor, ...]:
    """Weights and biases of an LSTM's layers, from the last on: PyTorch gives those of a layer at once."""
    shapes = [
        (f"{part}_l{layer}", shape)
        for layer in reversed(range(layers))
        for part, shape in (
            ("weight_ih", (4 * hidden, hidden if layer else inputs)),
            ("weight_hh", (4 * hidden, hidden)),
            ("bias_hh", (4 * hidden,)),
            ("bias_ih", (4 * hidden,)),
        )
    ]
    return tuple(tensor_of(f"{name}.{part}", shape) for part, shape in shapes)


def in_ready_order(layers: Iterable[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    """All tensors, those of the last layer first; each layer's as they are given."""
    return placed(tensor for layer in reversed(list(layers)) for tensor in layer)


_EXPANSION = 4
"""Outputs of a bottleneck for each channel of its 3 x 3 convolution."""


class ResidualStage(NamedTuple):
    """Blocks of a residual network with the same number of channels."""

    width: int
    """Channels of the convolutions 3 x 3."""
    blocks: int
    stride: int
    """Stride of the first block."""
    is_bottleneck: bool = False
    pads: bool = False
    """Whether shortcuts have no parameters (option A)."""

    @property
    def outputs(self) -> int:
        return self.width * _EXPANSION if self.is_bottleneck else self.width


# Options that several models of text have.


if TYPE_CHECKING:
    Tokens = int
    Pieces = int
    Sequence = int
else:
    Tokens = count_of(2)
    """Size of a vocabulary: one token stands for all that it leaves out."""
    Pieces = count_of(1000)
    """Size of a vocabulary of pieces: more than the special ones and the characters."""
    Sequence = count_of(16)
    """Tokens of a sequence, with room for a question and a text."""


def check_heads(heads: int, width: int) -> None:
    """Require heads that divide the width; the error's hint is on a second line."""
    if width % heads:
        raise ValueError(f"{heads} heads do not divide the width {width}\nuse a multiple of {heads}")
