"""The keys of workloads in a scenario: where gradients come from, and which layers are sent together.

The rules of `sim.scenario.models` hold here too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from netfold.sim.keys import ByKind, Count, OneOf, Pair, Section, Share
from netfold.sim.workload import (
    FileSpec,
    SyntheticSpec,
    TrainingSpec,
    file_workload,
    synthetic_workload,
    training_workload,
)
from netfold.sim.workload.fusion import DDP_BYTES, ONE_BUCKET, BySize
from netfold.sim.workload.fusion_rules import AnyFusion, ShortFusion
from netfold.sim.workload.layers import SHAPE_PATTERN, read_tensors
from netfold.sim.workload.learning_rate import Constant, RateSchedule
from netfold.sim.workload.model import Model
from netfold.sim.workload.models.registry import AnyModel, data_names, facts_of, model_kinds, read_model
from netfold.sim.workload.optimizers import Optimizer, Sgd
from netfold.sim.workload.recipe import Recipe, metric_named
from netfold.sim.workload.recording import ChakraTrace, Trace
from netfold.sim.workload.workload import Workload
from netfold.units import FRACTION_PATTERN, parse_fraction


def _read_tensors(items: tuple[str | int, ...] | None) -> tuple[str | int, ...] | None:
    """Refuse items that are no tensors."""
    if items is not None:
        read_tensors(items)
    return items


TensorShapes = Annotated[
    tuple[
        Annotated[
            str | int,
            WithJsonSchema({"type": ["string", "integer"], "pattern": f"^{SHAPE_PATTERN}$", "minimum": 1}),
        ],
        ...,
    ],
    Field(min_length=1),
    AfterValidator(_read_tensors),
]


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


class Evaluate(Section):
    """Tests of a trained model on data that no worker is trained on."""

    every: Count = 10
    """Steps between two tests; the last step is followed by one, too."""
    target: Target | None = None
    """A score to reach, such as 95% (accuracy, HR@10) or 120 (perplexity, of which less is better). Results
    say after which time, steps and bytes a test first reached it. The training goes on after that."""


class Training(Section):
    """Gradients of a PyTorch model that is trained during the run, with one virtual worker per rank."""

    kind: Literal["training"]
    model: AnyModel
    """What is trained: the name of a model; a mapping with its kind and its options; or a function of your
    own, ./mine.py:make, that returns a module, data and a loss."""
    data: Annotated[str, OneOf(data_names)] | None = None
    """What it is trained on, one of the model's data sets; left out, its first."""
    expand: Pair = (1, 1)
    """ncf: copies of the users and of the items; [147, 16] gives the size of MovieLens-20M."""
    batch: Count = 256
    """Samples per worker and step."""
    steps: Count = 1
    """Optimizer steps; with local_steps, exchanges."""
    learning_rate: Annotated[float, Field(gt=0)] = 0.01
    """Step size of the optimizer."""
    optimizer: Annotated[Optimizer, ByKind()] = Sgd()
    """How the mean of the workers' gradients moves the weights."""
    schedule: Annotated[RateSchedule, ByKind()] = Constant()
    """How the learning rate changes from step to step."""
    local_steps: Count = 1
    """Optimizer steps that each worker takes on weights of its own before an exchange. From 2 on it is the
    difference of its weights that is exchanged, and all go on with the mean of their weights (local SGD)."""
    evaluate: Evaluate | None = None
    """Tests on held-out data, {every: 10}: after every ten steps and the last. Held out are a fifth of the
    images (accuracy), or the data set's own test part, or each user's last rating (HR@10): no worker is
    trained on these. Tests take no simulated time. Without this key nothing is held out but a data set's own
    test part."""
    fusion: AnyFusion = BySize(DDP_BYTES)
    """Which layers are sent together, as one bucket."""
    bucket: ShortFusion = None
    """Short for fusion by this size: {kind: size, bytes: …}."""

    @field_validator("expand")
    @classmethod
    def _model_expands(cls, expand: tuple[int, int], info: ValidationInfo) -> tuple[int, int]:
        model = info.data.get("model")
        if model is None:
            return expand
        if "expand" not in model.facts.options:
            others = " or ".join(kind for kind in model_kinds() if "expand" in facts_of(kind).options)
            raise ValueError(f"model {model.kind} cannot be expanded\nremove expand, or use model {others}")
        if "expand" in model.written:
            raise ValueError("the model says expand, too\nleave out one of them")
        return expand

    @field_validator("evaluate")
    @classmethod
    def _model_can_be_tested(cls, evaluate: Evaluate | None, info: ValidationInfo) -> Evaluate | None:
        model = info.data.get("model")
        if evaluate and model:
            facts = _expand(model, info.data.get("expand", (1, 1))).facts
            if facts.untestable:
                raise ValueError(facts.untestable)
        return evaluate

    @field_validator("evaluate")
    @classmethod
    def _target_can_be_reached(cls, evaluate: Evaluate | None, info: ValidationInfo) -> Evaluate | None:
        model = info.data.get("model")
        if model is None or evaluate is None or evaluate.target is None:
            return evaluate
        metric, target = metric_named(model.facts.metric), evaluate.target
        if metric.is_share and not 0 < target <= 1:
            raise ValueError(
                f"the target must be more than 0 and at most 1, found {target:g}: {metric.name} is a share\n"
                "use for example 0.95 or 95%"
            )
        if target < metric.least:
            raise ValueError(
                f"the target must be at least {metric.least:g}, found {target:g}: no {metric.name} is less\n"
                "use for example 120"
            )
        return evaluate

    @field_validator("data")
    @classmethod
    def _data_fits_model(cls, data: str | None, info: ValidationInfo) -> str | None:
        model: Model | None = info.data.get("model")
        if model is None or not data:
            return data
        names = [known.name for known in model.facts.data]
        if not names:
            raise ValueError(f"{model.facts.title} has data of its own\nremove data")
        if data not in names:
            others = " or ".join(
                kind for kind in model_kinds() if data in [known.name for known in facts_of(kind).data]
            )
            raise ValueError(
                f"model {model.kind} is not trained on {data}\nuse {' or '.join(names)}, or a model that is "
                f"trained on {data}: {others}"
            )
        return data

    def whole_model(self) -> Model:
        # Options given by their short forms are among its own.
        return _expand(self.model, self.expand)

    def recipe(self) -> Recipe:
        """How weights are learned."""
        target = self.evaluate.target if self.evaluate else None
        return Recipe(self.optimizer, self.schedule, self.steps, self.local_steps, target)


def _expand(model: Model, expand: tuple[int, int]) -> Model:
    if expand == (1, 1):
        return model
    written = model.written if isinstance(model.written, dict) else {"kind": model.kind}
    return read_model({**written, "expand": expand})


class Synthetic(Section):
    """Random gradients of a given size and sparsity; nothing is trained."""

    kind: Literal["synthetic"]
    elements: Count | None = None
    """Elements of the gradient. Without them it needs tensors or a profile."""
    tensors: TensorShapes | None = None
    """Tensors of the gradient, which otherwise is one vector: in gradient-ready order, such as 128x64, or
    with a name fc1.weight=128x64."""
    profile: str | None = None
    """A JSON file with a model's layers, and when each was ready in a backward pass, instead of tensors; its
    path is relative to the scenario file."""
    shrink: Count = 1
    """The elements of each layer of the profile are divided by this, and rounded up. If rates of links and
    memory are divided by it too, times stay as they are."""
    steps: Count = 1
    """Optimizer steps."""
    density: Share = 1.0
    """Share of non-zero elements at each worker."""
    pattern: Literal["iid", "rows", "columns", "blocks"] = "iid"
    """Which elements are zero together: iid: each on its own; rows, columns: whole rows or columns; blocks:
    runs as long as a row."""
    row_elements: Count = 64
    """Elements of a row."""
    overlap: Share = 0.0
    """Share of a worker's non-zero positions that all workers have in common."""
    distribution: Literal["normal", "lognormal", "loguniform", "integer"] = "normal"
    """Distribution of the non-zero elements."""
    fusion: AnyFusion = ONE_BUCKET
    """Which layers are sent together, as one bucket."""
    bucket: ShortFusion = None
    """Short for fusion by this size: {kind: size, bytes: …}."""

    @model_validator(mode="after")
    def _elements_or_tensors(self) -> Synthetic:
        if self.profile is not None:
            if self.elements is not None or self.tensors is not None:
                other = "elements" if self.elements is not None else "tensors"
                raise ValueError(
                    f"{other} and profile are both given\nthe profile has the layers: leave out {other}"
                )
            return self
        if self.shrink != 1:
            raise ValueError("shrink is given without a profile\nit makes the layers of a profile smaller")
        if self.elements is None and self.tensors is None:
            raise ValueError(
                "the key 'elements' is missing\ngive the elements of the gradient, or its tensors, or a "
                "profile of layers"
            )
        if self.elements is not None and self.tensors is not None:
            raise ValueError(
                "elements and tensors are both given\nthe tensors say how many: leave out elements"
            )
        return self


class GradientFile(Section):
    """Your own gradients, from a file; nothing is trained."""

    kind: Literal["file"]
    path: str
    """A .npy, .npz, .safetensors or .pt file, relative to the scenario file: a gradient for each worker."""
    steps: Count | None = None
    """Optimizer steps; by default those in the file. Further steps start again at its first."""
    per_step: bool = False
    """For named tensors: true: the first axis is the step, the second the worker; false: the first axis is
    the worker."""
    fusion: AnyFusion = ONE_BUCKET
    """Which layers are sent together, as one bucket."""
    bucket: ShortFusion = None
    """Short for fusion by this size: {kind: size, bytes: …}."""


AnyWorkload = Annotated[Training | Synthetic | GradientFile | Trace | ChakraTrace, ByKind()]


# Workloads that variants share: built once, and restarted for the next variant.


Spec = TrainingSpec | SyntheticSpec | FileSpec
Key = tuple[int, Spec, int]  # number of the job in its variant, what it is, workers


class Workloads:
    """The workloads of a run.

    Jobs of one variant never share a workload, since they are at different steps.

    Parameters
    ----------
    wanted
        Keys of the workloads of every variant, in the order in which variants run.
    seed
        Of the run.
    """

    def __init__(self, wanted: Iterable[Iterable[Key]], seed: int) -> None:
        self._later = [set(keys) for keys in wanted]
        self._seed = seed
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
            self._made[key] = _make(key, self._seed)
        return self._made[key]


def _make(key: Key, seed: int) -> Workload:
    _, spec, workers = key
    if isinstance(spec, SyntheticSpec):
        return synthetic_workload(spec, workers, seed)
    if isinstance(spec, FileSpec):
        return file_workload(spec, workers)
    return training_workload(spec, workers, seed)
