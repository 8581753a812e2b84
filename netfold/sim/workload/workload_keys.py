"""The keys of workloads in a scenario: where gradients come from, and which layers are sent together.

The rules of `sim.scenario.models` hold here too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from netfold.errors import OptionError
from netfold.homomorphic.message import Tensor
from netfold.kinds import register
from netfold.sim.keys import ByKind, Count, OneOf, Option, Pair
from netfold.sim.workload.fusion import DDP_BYTES, AnyFusion, BySize
from netfold.sim.workload.gradient_files import GradientFile
from netfold.sim.workload.layers import Layer, layers_of
from netfold.sim.workload.model import Model, TaskSettings
from netfold.sim.workload.models.registry import AnyModel, data_names, facts_of, model_kinds, read_model
from netfold.sim.workload.recording import Recording, Trace
from netfold.sim.workload.synthetic import RandomValues, Synthetic, SyntheticSpec
from netfold.sim.workload.training_keys import Recipe, metric_named
from netfold.sim.workload.workload import GradientSource, Workload, WorkloadOption
from netfold.units import FRACTION_PATTERN, parse_fraction


def _read_target(value: object) -> object:
    # Pydantic reads all but a percentage.
    return parse_fraction(value) if isinstance(value, str) else value


Target = Annotated[
    float,
    BeforeValidator(_read_target),
    Field(ge=-1e300, le=1e300),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number"},
                {"type": "string", "pattern": FRACTION_PATTERN},
            ],
            "examples": ["95%", 0.95, 120],
        }
    ),
]


# Keys that leave a workload the same: how it is trained, tested, and cut into buckets.
CHOICES = (
    *("steps", "learning_rate", "optimizer", "schedule", "local_steps", "evaluate"),
    *("fusion", "bucket"),
)


@dataclass(frozen=True)
class Evaluate(Option):
    """Tests of a trained model on data that no worker is trained on."""

    every: Count = 10
    """Steps between two tests; the last step is followed by one, too."""
    target: Target | None = None
    """A score to reach, such as 95% (accuracy, HR@10) or 120 (perplexity, of which less is better). Results
    say after which time, steps and bytes a test first reached it. The training goes on after that."""


_DDP_FUSION = BySize(DDP_BYTES)


@dataclass(frozen=True)
class Training(Recipe, WorkloadOption):
    """Gradients of a PyTorch model that is trained during the run, with one virtual worker per rank."""

    kind: ClassVar[str] = "training"
    file_key: ClassVar[str] = "model"
    model: AnyModel
    """What is trained: the name of a model; a mapping with its kind and its options; or a function of your
    own, ./mine.py:make, that returns a module, data and a loss."""
    data: Annotated[str, OneOf(data_names)] | None = None
    """What it is trained on, one of the model's data sets; left out, its first."""
    expand: Pair = (1, 1)
    """ncf: copies of the users and of the items; [147, 16] gives the size of MovieLens-20M."""
    batch: Count = 256
    """Samples per worker and step."""
    learning_rate: Annotated[float, Field(gt=0)] = 0.01
    """Step size of the optimizer."""
    evaluate: Evaluate | None = None
    """Tests on held-out data, {every: 10}: after every ten steps and the last. Held out are a fifth of the
    images (accuracy), or the data set's own test part, or each user's last rating (HR@10): no worker is
    trained on these. Tests take no simulated time. Without this key nothing is held out but a data set's own
    test part."""
    fusion: AnyFusion = field(default=_DDP_FUSION, kw_only=True)
    """Which layers are sent together, as one bucket."""

    def __post_init__(self) -> None:
        if isinstance(self.model, str):
            object.__setattr__(self, "model", read_model(self.model))
        if self.data:
            self._check_data(self.data)
        if self.expand != (1, 1):
            self._check_expand()
        if self.evaluate:
            self._check_evaluate(self.evaluate)

    def _check_data(self, data: str) -> None:
        names = [known.name for known in self.model.facts.data]
        if not names:
            raise OptionError("data", f"{self.model.facts.title} has data of its own", "remove data")
        if data not in names:
            others = " or ".join(
                kind for kind in model_kinds() if data in [known.name for known in facts_of(kind).data]
            )
            raise OptionError(
                "data",
                f"model {self.model.kind} is not trained on {data}",
                f"use {' or '.join(names)}, or a model that is trained on {data}: {others}",
            )

    def _check_expand(self) -> None:
        if "expand" not in self.model.facts.options:
            others = " or ".join(kind for kind in model_kinds() if "expand" in facts_of(kind).options)
            raise OptionError(
                "expand",
                f"model {self.model.kind} cannot be expanded",
                f"remove expand, or use model {others}",
            )
        if "expand" in self.model.written:
            raise OptionError("expand", "the model says expand, too", "leave out one of them")

    def _check_evaluate(self, evaluate: Evaluate) -> None:
        facts, target = self.whole_model().facts, evaluate.target
        if facts.untestable:
            raise OptionError("evaluate", *facts.untestable.split("\n"))
        metric = metric_named(facts.metric)
        if target is not None and metric.is_share and not 0 < target <= 1:
            raise OptionError(
                "evaluate",
                f"the target must be more than 0 and at most 1, found {target:g}: {metric.name} is a share",
                "use for example 0.95 or 95%",
            )
        if target is not None and target < metric.least:
            raise OptionError(
                "evaluate",
                f"the target must be at least {metric.least:g}, found {target:g}: no {metric.name} is less",
                "use for example 120",
            )

    def whole_model(self) -> Model:
        # With `expand` among its options.
        if self.expand == (1, 1):
            return self.model
        written = self.model.written if isinstance(self.model.written, dict) else {"kind": self.model.kind}
        return read_model({**written, "expand": self.expand})

    def resolved(self, folder: Path, workers: int, seed: int) -> Training:
        """The same with its whole model; a user's own is read and tried."""
        settings = TaskSettings(self.data or "", self.batch, workers, seed, self.evaluate is not None)
        return replace(self, model=self.whole_model().locate(folder, settings), expand=(1, 1))

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return self.model.tensors

    @property
    def stands_in_for(self) -> str:
        # Empty where data are the benchmark's own.
        return self.model.data_named(self.data).stands_in_for

    @property
    def elements(self) -> int:
        return self.model.elements

    @property
    def held_elements(self) -> int:
        # Fewer than all where some are kept as rows.
        return self.model.held_elements(self.batch)

    @property
    def layers(self) -> tuple[Layer, ...]:
        return layers_of(self.tensors, ready_shares=[1.0] * len(self.tensors) if self.is_local else ())

    def workload(self, workers: int, seed: int) -> Workload:
        # The data set is fetched on first use.
        from netfold.sim.workload.training import TrainingWorkload

        data = self.model.data_named(self.data).name
        task = self.model.task(TaskSettings(data, self.batch, workers, seed, self.evaluate is not None))
        test_every = self.evaluate.every if self.evaluate else None
        settings = workers, self.learning_rate, self.fusion, seed, test_every, self
        return TrainingWorkload(task, *settings, is_ours=not self.model.code)


# Recordings of other tools: `chakra.py` reads the file.


@dataclass(frozen=True, kw_only=True)
class ChakraTrace(RandomValues, Recording):
    """Compute times and all-reduces of a Chakra execution trace (MLCommons), with random gradients."""

    kind: ClassVar[str] = "chakra"
    path: str
    """The trace of one rank, relative to the scenario file: .et, .et.gz, or .json as chakra_jsonizer or the
    feeder writes it. All workers compute as this rank does."""
    times: Literal["recorded", "device"] = "recorded"
    """recorded: computations take their durations in the trace, whatever the device; device: the device's
    times; gradients are ready after the trace's shares of backward."""
    element_bytes: Annotated[Literal[1, 2, 4, 8], Field(alias="element_bytes")] = 4
    """Bytes of an element of the traced all-reduces; the gradients here are float32."""
    group: str | None = None
    """Only all-reduces of this process group (pg_name); needed where the trace has those of several."""
    fusion: AnyFusion | None = None
    """Which all-reduces are sent together, as one bucket; by default each is a bucket."""

    def resolved(self, folder: Path, workers: int, seed: int) -> SyntheticSpec:
        # Late: few scenarios have a trace.
        from netfold.sim.workload.chakra import chakra_spec

        return chakra_spec(
            folder / self.path,
            self.path,
            self,
            group=self.group,
            element_bytes=self.element_bytes,
            fusion=self.fusion,
            with_times=self.times == "recorded",
        )


for _option in (Training, Synthetic, GradientFile, Trace, ChakraTrace):
    register(_option)
AnyWorkload = Annotated[WorkloadOption, ByKind()]


# Workloads that variants share: built once, and restarted for the next variant.


Key = tuple[int, GradientSource, int, int]  # number of the job in its variant, what it is, workers, seed


class Workloads:
    """The workloads of a run.

    Jobs of one variant never share a workload, since they are at different steps.

    Parameters
    ----------
    wanted
        Keys of the workloads of every variant, in the order in which variants run.
    """

    def __init__(self, wanted: Iterable[Iterable[Key]] = ()) -> None:
        self._later = [set(keys) for keys in wanted]
        self._made: dict[Key, Workload] = {}

    def begin_variant(self) -> None:
        """Begin the next variant: if it needs a new workload, drop those that it does not use."""
        now = self._later.pop(0) if self._later else set()
        if any(key not in self._made for key in now):  # free memory; dropped ones are built again if needed
            self._made = {key: made for key, made in self._made.items() if key in now}

    def end_variant(self) -> None:
        """End a variant: drop workloads that no later variant uses."""
        later = set().union(*self._later)
        self._made = {key: made for key, made in self._made.items() if key in later}

    def get(self, key: Key) -> Workload:
        # It is before its first step, whether it is new or not.
        if key in self._made:
            self._made[key].restart()
        else:
            _, source, workers, seed = key
            self._made[key] = source.workload(workers, seed)
        return self._made[key]
