"""The contract of a model: what is known of it without building it, and the parts of a training."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from netfold.homomorphic.message import Tensor
from netfold.kinds import family
from netfold.sim.keys import Option, Section, written
from netfold.sim.workload.layers import elements_of

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


class Rows(NamedTuple):
    """Most rows of a table that a batch uses: `each` for every `per` samples, and `more`."""

    each: int = 1
    per: int = 1
    more: int = 0

    def most(self, batch: int) -> int:
        return self.each * -(-batch // self.per) + self.more


class ModelFacts(Section):
    """What is known of a model with certain options without building it: what estimates and plans need.

    `models/table.json` has those of netfold's own models, so that a scenario is checked without PyTorch.
    """

    title: str
    meaning: str
    source: str  # the paper or the code that has its layers and sizes
    metric: str  # what tests on held-out data measure
    chance: float | None = None  # the score of guessing, if it is known
    data: tuple[Data, ...] = ()  # the first is the default
    densities: tuple[Density, ...] = ()  # known ones
    options: Mapping[str, tuple[Any, str]] = {}  # default and meaning of each key
    sample_bytes: int = 0  # memory of a pass for each sample of a batch, as measured; 0: little
    table_bytes: int = 0  # memory of tables that its data need, beside the data set itself
    untestable: str = ""  # why nothing can be held out for tests, with a hint on a second line
    rows: Mapping[str, Rows] = {}  # the parameters whose gradients PyTorch gives as rows of a table
    tensors: tuple[Tensor, ...] = ()  # its parameters, one after another in gradient-ready order


class Parts(NamedTuple):
    """A training: what `make` of a model returns, a user's or one of netfold's own."""

    module: nn.Module
    data: Any
    """Items (input, target) by number, with a length; or `Batches`, which makes whole batches."""
    loss: Callable[[Any, Any], Any]
    """Of outputs and targets: the mean over the batch, a scalar."""
    score: Callable[[nn.Module], Any] | None = None
    """How good a module in evaluation mode is on data that are held out; None: nothing is."""

    @property
    def trained(self) -> dict[str, nn.Parameter]:
        return {name: weight for name, weight in self.module.named_parameters() if weight.requires_grad}


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


@family("models")
class Model(Option, ABC):
    """A model that can be trained: a frozen dataclass whose fields are its options.

    What it says, it says without PyTorch, which is imported when `module` or `task` is called.
    """

    kind: ClassVar[str]

    @property
    @abstractmethod
    def facts(self) -> ModelFacts:
        """What is known of it with these options."""

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

    @property
    def code(self) -> str:
        # The Python file that is run for it, as given; empty for netfold's own.
        return ""

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        # One after another in gradient-ready order.
        return self.facts.tensors

    @property
    def elements(self) -> int:
        return elements_of(self.tensors)

    def row_tables(self, batch: int) -> Mapping[str, int]:
        """The parameters whose gradients PyTorch gives as rows of a table, with most rows of a batch."""
        rows = self.facts.rows
        return {
            tensor.name: min(tensor.shape[0], rows[tensor.name].most(batch))
            for tensor in self.tensors
            if tensor.name in rows
        }

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
        options = written(self, exclude_defaults=True)
        return options if len(options) > 1 else self.kind

    def files(self, folder: Path) -> set[str]:
        # The user's files that it is made of, relative to the folder of the scenario.
        return set()

    def locate(self, folder: Path, settings: TaskSettings) -> Model:
        # The model as it is in the file that it names, in a folder; a DataError if that cannot be used.
        return self

    def data_named(self, name: str | None) -> Data:
        """One of its data sets, None: the default; a KeyError if it is not trained on such data."""
        data = self.facts.data
        if name is None:
            return data[0] if data else Data("")  # "": its own
        return {data_set.name: data_set for data_set in data}[name]
