"""The keys of workloads in a scenario: where gradients come from, and which layers are sent together.

The rules of `sim.scenario.models` hold here too.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationInfo, WithJsonSchema, field_validator, model_validator

from netfold.sim.keys.fields import Count, Pair, Share
from netfold.sim.keys.section import Section
from netfold.sim.workload.fusion.one import OneSection
from netfold.sim.workload.fusion.registry import AnyFusion, ShortFusion
from netfold.sim.workload.fusion.size import DDP_BYTES, SizeSection
from netfold.sim.workload.layers import SHAPE_PATTERN, read_tensors
from netfold.sim.workload.trace.sections import ChakraTrace, Trace
from netfold.sim.workload.training.sizes import DATA


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


class Evaluate(Section):
    """Tests of a trained model on data that no worker is trained on."""

    every: Count = 10
    """Steps between two tests; the last step is followed by one, too."""


class Training(Section):
    """Gradients of a PyTorch model that is trained during the run, with one virtual worker per rank."""

    kind: Literal["training"]
    model: Literal["ncf", "mlp", "mlp_784"]
    """ncf: neural collaborative filtering on MovieLens-100K; mlp: a small classifier of digits, 64-128-10;
    mlp_784: a larger one, 784-512-10."""
    data: Literal["digits", "mnist-5k", "movielens-100k"] | None = None
    """What it is trained on. mlp_784: digits (enlarged to 28 by 28 pixels) or mnist-5k; left out, digits.
    Other models have one data set."""
    expand: Pair = (1, 1)
    """ncf: copies of the users and of the items; [147, 16] gives the size of MovieLens-20M."""
    batch: Count = 256
    """Samples per worker and step."""
    steps: Count = 1
    """Optimizer steps."""
    learning_rate: Annotated[float, Field(gt=0)] = 0.01
    """Step size of plain gradient descent."""
    evaluate: Evaluate | None = None
    """Tests on held-out data, {every: 10}: after every ten steps and the last. Held out are a fifth of the
    images (accuracy), or each user's last rating (HR@10): no worker is trained on these. Tests take no
    simulated time. Without this key nothing is held out."""
    fusion: AnyFusion = SizeSection.model_construct(kind="size", bytes=DDP_BYTES)
    """Which layers are sent together, as one bucket."""
    bucket: ShortFusion = None
    """Short for fusion by this size: {kind: size, bytes: …}."""

    @field_validator("expand")
    @classmethod
    def _only_ncf_expands(cls, expand: tuple[int, int], info: ValidationInfo) -> tuple[int, int]:
        if (model := info.data.get("model", "ncf")) != "ncf":
            raise ValueError(f"model {model} cannot be expanded\nremove expand, or use model ncf")
        return expand

    @field_validator("evaluate")
    @classmethod
    def _only_real_ratings_are_held_out(
        cls, evaluate: Evaluate | None, info: ValidationInfo
    ) -> Evaluate | None:
        if evaluate and info.data.get("expand", (1, 1)) != (1, 1):
            raise ValueError("expanded ratings cannot be held out\nremove evaluate, or expand")
        return evaluate

    @field_validator("data")
    @classmethod
    def _data_fits_model(cls, data: str | None, info: ValidationInfo) -> str | None:
        model = info.data.get("model")
        if model and data and data not in DATA[model]:
            others = " or ".join(other for other, known in DATA.items() if data in known)
            raise ValueError(
                f"model {model} is not trained on {data}\nuse {' or '.join(DATA[model])}, or a model that is "
                f"trained on {data}: {others}"
            )
        return data


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
    fusion: AnyFusion = OneSection()
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
    fusion: AnyFusion = OneSection()
    """Which layers are sent together, as one bucket."""
    bucket: ShortFusion = None
    """Short for fusion by this size: {kind: size, bytes: …}."""


Workload = Annotated[Training | Synthetic | GradientFile | Trace | ChakraTrace, Field(discriminator="kind")]
