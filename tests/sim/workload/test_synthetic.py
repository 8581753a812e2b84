"""Made-up gradients: support laws unit by unit, values, keys; what a workload knows that trains nothing."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from netfold.errors import NetfoldError
from netfold.homomorphic.message import StepFact, Tensor
from netfold.sim.workload import synthetic as normals
from netfold.sim.workload.fusion import AsGiven, BySize, NoFusion
from netfold.sim.workload.layers import given_tensors, layers_of, place_tensors, read_profile, read_tensors
from netfold.sim.workload.synthetic import BLOCK_ELEMENTS, Distribution, Pattern, SyntheticSpec, fill_normal
from netfold.sim.workload.workload import Workload, keyed, refusal_of_needs
from tests.examples import scaled
from tests.sim.scenes import plan
from tests.sim.workload import fusion_drawn as drawn

PATTERNS: tuple[Pattern, ...] = get_args(Pattern)
DISTRIBUTIONS: tuple[Distribution, ...] = get_args(Distribution)

specs = st.builds(
    SyntheticSpec,
    elements=st.integers(1, 3000),
    density=st.floats(0, 1),
    pattern=st.sampled_from(PATTERNS),
    row_elements=st.integers(1, 70),
    overlap=st.floats(0, 1),
    distribution=st.just("integer"),  # never 0
)


def flat(workload: Workload, step: int = 0) -> NDArray[np.float32]:
    """Copy of the step's gradients, `(workers, elements)`."""
    return np.stack([np.concatenate(buckets) for buckets in workload.gradients(step)])


def unit_of(index: int, spec: SyntheticSpec) -> int:
    width, block = spec.row_elements, index // BLOCK_ELEMENTS
    return {"iid": index, "rows": index // width, "columns": index % width, "blocks": block}[spec.pattern]


@given(specs, st.integers(1, 4), st.integers(0, 99))
def test_support_law(spec: SyntheticSpec, workers: int, seed: int) -> None:
    gradients = flat(spec.workload(workers, seed))
    units = [unit_of(index, spec) for index in range(spec.elements)]
    units_count = max(units) + 1
    chosen = round(spec.density * units_count)
    live_units = []
    for gradient in gradients:
        live = {unit for unit, value in zip(units, gradient, strict=True) if value}
        assert chosen == len(live)
        assert all((unit in live) == bool(value) for unit, value in zip(units, gradient, strict=True))
        live_units.append(live)

    assert len(set.intersection(*live_units)) >= round(spec.overlap * chosen)


@pytest.mark.parametrize("overlap", [0.0, 0.4, 1.0])
def test_union_of_workers_is_as_announced(overlap: float) -> None:
    units, workers, density = 100_000, 8, 0.1
    spec = SyntheticSpec(units, density=density, overlap=overlap, distribution="integer")
    union = int((flat(spec.workload(workers, 3)) != 0).any(axis=0).sum())
    chosen, common = density * units, overlap * density * units
    private_share = (chosen - common) / (units - common)
    expected = common + (units - common) * (1 - (1 - private_share) ** workers)

    assert union == pytest.approx(expected, abs=5 * math.sqrt(units) / 2)


@pytest.mark.parametrize("density", [0.0, 1.0])
def test_a_row_longer_than_the_gradient_is_all_of_it(density: float) -> None:
    """However long: nothing of its length is ever made."""
    spec = SyntheticSpec(elements=10, density=density, pattern="rows", row_elements=10**12)
    assert np.count_nonzero(flat(spec.workload(1, 1))) == 10 * density


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_signs_are_even(distribution: Distribution) -> None:
    values = flat(SyntheticSpec(10_000, distribution=distribution).workload(1, 1))

    assert np.float32 == values.dtype
    assert np.isfinite(values).all()
    assert (values > 0).mean() == pytest.approx(0.5, abs=5 * 0.5 / 100)


def test_same_key_same_bits_and_every_part_of_the_key_counts() -> None:
    spec = SyntheticSpec(100, density=0.5)
    workload = spec.workload(2, seed=1)
    first = flat(workload, step=0)

    assert not np.array_equal(first[0], first[1])
    assert not np.array_equal(first, flat(workload, step=1))
    assert not np.array_equal(first, flat(spec.workload(2, seed=2)))
    assert first.tobytes() == flat(workload, step=0).tobytes()
    # a worker's gradient does not depend on how many others there are
    assert first.tobytes() == flat(spec.workload(3, seed=1))[:2].tobytes()


def test_buckets_cut_the_same_gradient() -> None:
    whole = SyntheticSpec(1000).workload(2, seed=1)
    cut = SyntheticSpec(1000, fusion=BySize(1201)).workload(2, seed=1)

    assert [(b.start, b.elements) for b in cut.buckets] == [(0, 301), (301, 301), (602, 301), (903, 97)]
    (bucket,) = whole.buckets
    assert bucket.tensors == (Tensor("part0", (1000,), ""),)
    assert [b.ready_share for b in cut.buckets] == [0.301, 0.602, 0.903, 1.0]
    assert flat(whole).tobytes() == flat(cut).tobytes()


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("overlap", [0.0, 0.3, 1.0])
def test_a_dense_gradient_is_all_the_draws_of_its_key(distribution: Distribution, overlap: float) -> None:
    """The values are those drawn from the worker's own key, in order, for any overlap between workers."""
    spec = SyntheticSpec(1000, overlap=overlap, distribution=distribution)
    generator, doubles = keyed(5, "gradient", 2, 1), np.float64  # rounded to float32 at the end, once
    wanted = {
        "normal": lambda: generator.standard_normal(1000, np.float32),
        "lognormal": lambda: np.exp(doubles(generator.standard_normal(1000, np.float32) * np.float32(3))),
        "loguniform": lambda: np.exp2(doubles(generator.random(1000, np.float32) * np.float32(-24))),
        "integer": lambda: generator.integers(1, 127, 1000, np.int8, endpoint=True),
    }[distribution]()
    found = flat(spec.workload(2, 5), step=2)[1]

    np.testing.assert_array_equal(np.abs(found), np.abs(wanted.astype(np.float32)))


def test_without_training_there_are_no_weights() -> None:
    workload = SyntheticSpec(6).workload(2, seed=1)

    assert workload.facts == SyntheticSpec(6).facts == {StepFact.ALL_BUCKETS}
    assert (workload.learning_rate, workload.update_norm) == (None, None)
    with pytest.raises(RuntimeError, match="nothing is trained: there are no weights to keep"):
        workload.keep_weights(0)
    with pytest.raises(RuntimeError, match="nothing is trained: there are no gradients at kept weights"):
        workload.kept_gradients(0, 0)


def test_a_codec_that_needs_more_is_refused() -> None:
    """One fact that is missing is told by the study's tests, for each."""
    several = (StepFact.KEPT_WEIGHTS, StepFact.LEARNING_RATE, StepFact.UPDATE_NORM, StepFact.ALL_BUCKETS)
    codec: Any = SimpleNamespace(kind="lazy", needs=frozenset(several))
    refusal = refusal_of_needs(codec, frozenset({StepFact.ALL_BUCKETS}), "a study")

    assert refusal_of_needs(codec, frozenset(StepFact), "a study") is None
    assert refusal is not None
    assert refusal.message == (
        "lazy needs the learning rate, the norm of the last update and gradients at weights that a "
        "worker has kept, a study does not know them"
    )


def test_a_state_without_training_is_the_next_step() -> None:
    first, second = (SyntheticSpec(6).workload(2, seed=1) for _ in range(2))
    first.apply(4, [np.zeros(6, np.float32)], [True])
    second.restore(first.state())

    assert second.next_step == first.next_step == 5
    second.restart()
    assert second.next_step == 0


def test_synthetic_tensors_are_views_of_the_same_gradient() -> None:
    """Tensors and buckets change the cut and not the values."""
    tensors = read_tensors(["a.weight=4x3", "a.bias=4", "b.weight=2x4", "c=5"])
    whole = np.concatenate(SyntheticSpec(29).workload(2, seed=1).gradients(3)[1])
    for fusion, buckets in (
        (BySize(2**20), [["a.weight", "a.bias", "b.weight", "c"]]),
        (NoFusion(), [["a.weight", "a.bias"], ["b.weight"], ["c"]]),
        (AsGiven((("c", "a"), ("b",))), [["b.weight"], ["a.weight", "a.bias", "c"]]),
    ):
        workload = SyntheticSpec(29, shapes=tensors, fusion=fusion).workload(2, seed=1)
        assert [[one.name for one in bucket.tensors] for bucket in workload.buckets] == buckets
        for step in (0, 3):  # the call for a step overwrites what is in the arrays of another
            found = workload.gradients(step)[1]
        for bucket, part in zip(workload.buckets, found, strict=True):
            for tensor in bucket.tensors:
                (source,) = [one for one in tensors if one.name == tensor.name]
                assert part[tensor.place].tobytes() == whole[source.place].tobytes()


TRAINING, SYNTHETIC = "kind: training, model: mlp", "kind: synthetic, elements: 1000"
KEYS = {
    "elements": "kind: synthetic, elements: {}",
    "row_elements": f"{SYNTHETIC}, row_elements: {{}}",
    "steps": f"{SYNTHETIC}, steps: {{}}",
    "batch": f"{TRAINING}, batch: {{}}",
    "local_steps": f"{TRAINING}, local_steps: {{}}",
    "warmup": f"{TRAINING}, schedule: {{{{kind: cosine, warmup: {{}}}}}}",
    "every": f"{TRAINING}, evaluate: {{{{every: {{}}}}}}",
    "expand": "kind: training, model: ncf, expand: [{}, 1]",
    "hidden": "kind: training, model: {{kind: mlp_784, hidden: [{}]}}",
}


@pytest.mark.parametrize("number", [2**53 + 1, 2**63, 2**64, 10**30])
@pytest.mark.parametrize("key", KEYS)
def test_numbers_beyond_all_use_are_refused(tmp_path: Path, key: str, number: int) -> None:
    with pytest.raises(NetfoldError) as caught:
        plan(tmp_path, f"workload={{{KEYS[key].format(number)}}}")

    assert key in str(caught.value)
    assert f"must be at most 9007199254740992, found {number}" in str(caught.value)


def generators(seed: int) -> tuple[np.random.Generator, np.random.Generator]:
    return np.random.Generator(np.random.PCG64([seed, 7])), np.random.Generator(np.random.PCG64([seed, 7]))


@pytest.mark.parametrize("seed", range(2))
def test_values_are_those_of_numpy_to_the_bit(seed: int) -> None:
    """So many draws meet the tail some 80 times, and a layer's edge some hundred times."""
    ours, theirs = generators(seed)
    values = np.empty(scaled(300_000), np.float32)
    fill_normal(values, ours)

    expected = theirs.standard_normal(values.size, np.float32)
    assert np.array_equal(values.view(np.uint32), expected.view(np.uint32))
    assert ours.bit_generator.state == theirs.bit_generator.state
    assert np.abs(expected).max() > 3.6541528853610088


@pytest.mark.parametrize("size", [0, 1, 2, 7])
def test_a_half_that_is_kept_is_used_before_and_after(size: int) -> None:
    ours, theirs = generators(9)
    for generator in (ours, theirs):
        generator.integers(0, 9, dtype=np.int32)  # takes 32 of 64 bits
    values = np.empty(size, np.float32)
    fill_normal(values, ours)

    assert values.tolist() == theirs.standard_normal(size, np.float32).tolist()
    assert ours.bit_generator.state == theirs.bit_generator.state
    assert ours.random() == theirs.random()


def test_pieces_that_a_signal_may_part_are_one_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(normals, "_DRAWN_AT_ONCE", 1000)
    ours, theirs = generators(3)
    values = np.empty(4321, np.float32)
    fill_normal(values, ours)

    assert values.tolist() == theirs.standard_normal(4321, np.float32).tolist()


def test_names_say_the_layer_up_to_their_last_dot() -> None:
    found = read_tensors(["body.0.conv.weight=8x3x3x3", "body.0.conv.bias=8", "scale=4", "fc.weight=10x8"])

    assert [(one.name, one.shape, one.layer, one.start) for one in found] == [
        ("body.0.conv.weight", (8, 3, 3, 3), "body.0.conv", 0),
        ("body.0.conv.bias", (8,), "body.0.conv", 216),
        ("scale", (4,), "scale", 224),
        ("fc.weight", (10, 8), "fc", 228),
    ]


def test_without_names_a_matrix_begins_a_layer_and_vectors_follow() -> None:
    found = read_tensors([5, "128x64", 128, "128", "10x128", "10"])

    assert [one.layer for one in found] == ["layer0", "layer1", "layer1", "layer1", "layer2", "layer2"]
    assert [one.name for one in found] == [f"tensor{index}" for index in range(6)]
    assert [one.start for one in found] == [0, 5, 8197, 8325, 8453, 9733]


def test_python_may_give_shapes_texts_and_mappings() -> None:
    texts = given_tensors("128x64,128,10x128,10")

    assert given_tensors([(128, 64), (128,), "10x128", 10]) == texts
    assert given_tensors([np.empty((128, 64)).shape, [128], "10x128", np.int64(10)]) == texts  # type: ignore[list-item]  # they work too
    assert given_tensors({"a.weight": (2, 3), "a.bias": (2,)}) == read_tensors(["a.weight=2x3", "a.bias=2"])


@pytest.mark.parametrize(
    ("items", "message"),
    [
        *(
            ([item], f"cannot read the tensor '{item}'\na tensor is written 128x64, or with its name ")
            for item in ("128x", "0x3", 0, True, "3 x 4", "=3", "3,4")
        ),
        (
            [f"{2**30}x{2**23}", 1],
            "the tensors have 9,007,199,254,740,993 elements\nuse 9,007,199,254,740,992 at most",
        ),
        (["a=3", "a=4"], "the name 'a' appears twice\ngive each tensor a name of its own"),
        (["a=3", "4x5"], "the tensor 4x5 has no name, others have one\nname all tensors, or none"),
    ],
)
def test_wrong_tensors_are_reported(items: list[str | int], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        read_tensors(items)

    assert str(caught.value).startswith(message)


def test_as_many_elements_as_there_may_be() -> None:
    """A product beyond 64 bits must not become a small number, which would pass for little memory."""
    (found,) = read_tensors([f"{2**30}x{2**23}"])

    assert found.elements == 2**53
    assert Tensor("w", (2**33, 2**32), "").elements == 2**65
    assert (Tensor("w", (), "").elements, Tensor("w", (3, 0), "").elements) == (1, 0)


def test_layers_come_in_the_order_of_their_last_tensor() -> None:
    last, first = Tensor("d.bias", (4,), "tied"), Tensor("c", (2, 3), "c")
    tensors = place_tensors([last, first, Tensor("a", (5,), ""), Tensor("e", (3, 3), "tied")])
    layers = layers_of(tensors, flops=(10, 30, 30, 70))

    assert [(each.name, each.elements, each.members, each.ready_share) for each in layers] == [
        ("c", 6, (1,), 10 / 24),
        ("a", 5, (2,), 15 / 24),
        ("tied", 13, (0, 3), 1.0),
    ]
    assert [layer.backward_flops for layer in layers] == [30, 0, 40]
    assert [layer.backward_flops for layer in layers_of(tensors)] == [0, 0, 0]


LAYERS = [["fc", 1001, 0.5], ["conv2", 30, 2.0], ["conv1", 7, 4.0]]


def text(layers: Any) -> str:
    return json.dumps({"description": "three layers", "layers": layers})


@pytest.mark.parametrize(("shrink", "elements"), [(1, [1001, 30, 7]), (10, [101, 3, 1]), (2000, [1, 1, 1])])
def test_layers_in_the_order_in_which_they_are_ready(shrink: int, elements: list[int]) -> None:
    """Sizes are rounded up. Without times, a layer is ready after its share of elements."""
    tensors, ready_shares = read_profile(text(LAYERS), shrink)
    names, (fc, conv2, conv1) = ["fc", "conv2", "conv1"], elements

    assert [(one.name, one.shape, one.layer, one.start) for one in tensors] == [
        *zip(names, ((size,) for size in elements), names, (0, fc, fc + conv2), strict=True)
    ]
    assert ready_shares == (0.125, 0.5, 1.0)
    layers = layers_of(tensors, ready_shares=ready_shares)
    assert [(one.name, one.elements) for one in layers] == [*zip(names, elements, strict=True)]
    assert tuple(one.ready_share for one in layers) == ready_shares
    total = fc + conv2 + conv1
    without = [one.ready_share for one in layers_of(tensors)]
    assert without == [fc / total, (fc + conv2) / total, 1.0]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "has no list 'layers' of 1 to 10000 layers"),
        (text([]), "has no list 'layers'"),
        (text([["a", 1, 1.0]] * 10_001), "has no list 'layers'"),
        (text([["a", 1]]), 'layer 0: cannot read ["a", 1]'),
        (text([["a", 1, 1.0], ["b", 0, 2.0]]), 'layer 1: cannot read ["b", 0, 2.0]'),
        (text([["a", 1.5, 1.0]]), "layer 0: cannot read"),
        (text([["", 1, 1.0]]), "layer 0: cannot read"),
        (text([["a", 1, -1.0]]), "layer 0: cannot read"),
        ('{"layers": [["a", 1, 1e999]]}', "layer 0: cannot read"),
        (text([["a", 1, 10**400]]), "layer 0: cannot read"),
        (text([["a", 1, 1.0], ["a", 1, 2.0]]), "layer 1: the name 'a' appears twice"),
        (text([["a", 1, 2.0], ["b", 1, 1.0]]), "layer 1: 'b' is ready at 1 ms, before the layer before it"),
        (text([["a", 1, 0.0], ["b", 1, 1.0]]), "layer 0: 'a' is ready at 0 ms"),
        (text([["a", 2**53 + 1, 1.0]]), "its layers have too many elements"),
    ],
)
def test_what_is_no_profile_is_reported(content: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        read_profile(content)

    found, _, hint = str(caught.value).partition("\n")
    assert message in found
    assert hint


@pytest.mark.parametrize(
    ("name", "layers", "elements"),
    [("resnet50", 54, 25_557_032), ("vgg19", 19, 143_667_240), ("bert-qa", 76, 108_893_186)],
)
def test_the_profiles_that_come_with_netfold(name: str, layers: int, elements: int) -> None:
    """As many weights as the models have: torchvision's two, and BERT-base with two outputs."""
    found = drawn.measured(name)

    assert len(found) == layers
    assert sum(one.elements for one in found) == elements
    shares = [one.ready_share for one in found]
    assert shares == sorted(shares)
    assert shares[-1] == 1
