"""Workloads before anything is run: layers, fusion, optimizers; what codecs need; the memory of it all."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import netfold
from netfold.homomorphic.codecs.dense import Dense
from netfold.homomorphic.message import StepFact
from netfold.sim.collectives.in_network.aggregation_tree import build_tree
from netfold.sim.engine.engine_data import Job, Overflow
from netfold.sim.engine.tree_paths import receivers_of
from netfold.sim.plan.idle_network import NO_LIMIT_BYTES, job_pace, job_traffic
from netfold.sim.plan.memory_footprint import Footprint
from netfold.sim.plan.plan import JobPlan, VariantPlan
from netfold.sim.scenario.resolve import summed_at_once
from netfold.sim.scenario.run_limits import JobSize
from netfold.sim.workload.fusion import ONE_BUCKET
from netfold.sim.workload.learning_rate import Cosine, Linear, StepDecay
from netfold.sim.workload.optimizers import Adam, AdamW, Sgd
from netfold.sim.workload.recording import AsRecorded
from netfold.sim.workload.synthetic import SyntheticSpec
from netfold.sim.workload.workload_keys import Evaluate, Training
from netfold.topologies.ecmp import planned_key
from netfold.topologies.kinds.leaf_spine import leaf_spine
from netfold.topologies.network import Network, compile_network, next_links
from netfold.topologies.topology_files import to_json
from tests.examples import examples
from tests.registry import known
from tests.sim.capture.folders import write_recording
from tests.sim.scenes import LINK, RING, TINY, job_of, job_plan, only, refused
from tests.topologies.graphs import topologies

TENSORS = "tensors: [conv.weight=8x3x3x3, norm.weight=8, fc.weight=10x8, fc.bias=10]"
LISTED = "layers, in gradient-ready order: 0 is 'conv', 1 is 'norm', 2 is 'fc'"


def synthetic(fusion: str) -> str:
    return f"workload={{kind: synthetic, {TENSORS}, fusion: {fusion}}}"


def training(fusion: str) -> str:
    return f"workload={{kind: training, model: mlp, fusion: {fusion}}}"


def test_layers_of_a_model_and_of_a_file_are_known_without_reading_them(tmp_path: Path) -> None:
    np.savez(
        tmp_path / "g.npz", **{"a.weight": np.ones((3, 2, 2), np.float32), "b": np.ones((3, 2), np.float32)}
    )
    of_file = "workload={kind: file, path: g.npz, fusion: {kind: partition, buckets: [[a], [c]]}}"

    assert "there is no layer 'fc'\n  layers, in gradient-ready order: 0 is '2', 1 is '0'" in refused(
        tmp_path, training("{kind: partition, buckets: [[fc], [0, 1]]}")
    )
    assert "there is no layer 'c'\n  layers, in gradient-ready order: 0 is 'a', 1 is 'b'" in refused(
        tmp_path, of_file
    )


@pytest.mark.parametrize(
    ("workload", "elements"),
    [
        (training("{kind: none}"), 8320),
        (training("{kind: size, bytes: 4KB}"), 1000),
        (synthetic("{kind: none}"), 216),
        (synthetic("{kind: partition, buckets: [[conv, norm], [fc]]}"), 224),
        ("workload={kind: synthetic, elements: 1001, bucket: 4KB}", 1000),
        ("workload={kind: synthetic, elements: 1001}", 1001),
    ],
)
def test_what_is_summed_at_once_is_a_full_bucket(tmp_path: Path, workload: str, elements: int) -> None:
    """Timeouts and the number of slots follow from it."""
    assert summed_at_once(job_plan(only(tmp_path, workload)).workload) == elements


def sized(job: JobPlan) -> JobSize:
    """What the memory of a job of three workers is counted from."""
    return JobSize(None, job.workload, 3, job.codec, job.collective)  # type: ignore[arg-type]  # no error is raised


def held_bytes(folder: Path, *sets: str) -> float:
    return sized(job_plan(only(folder, *sets))).bytes(Footprint(0.0, 0.0), records=False)


def test_gradients_of_layers_that_lie_apart_are_held_twice(tmp_path: Path) -> None:
    beside = held_bytes(tmp_path, synthetic("{kind: partition, buckets: [[conv, norm], [fc]]}"))
    apart = held_bytes(tmp_path, synthetic("{kind: partition, buckets: [[conv, fc], [norm]]}"))
    elements = 216 + 8 + 80 + 10
    assert apart - beside == pytest.approx(4 * 3 * elements, abs=8 * elements)  # buckets differ in size too


@dataclass(frozen=True)
class Needy(Dense):
    """A dense codec that would look at a step."""

    kind: ClassVar[str] = "needy"
    wants: str = "LEARNING_RATE"

    @property
    def needs(self) -> frozenset[StepFact]:
        """The facts that a test names."""
        return frozenset(StepFact[name] for name in self.wants.split())


@pytest.fixture
def needy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its codec is registered for a test."""
    known(monkeypatch, Needy)


@pytest.mark.usefixtures("needy")
def test_a_codec_that_needs_a_training_step_is_refused_without_one(tmp_path: Path) -> None:
    wants = "codec={kind: needy, wants: KEPT_WEIGHTS ALL_BUCKETS}"
    trained = "workload={kind: training, model: mlp}"

    assert refused(tmp_path, RING, wants) == (
        "--set: codec: needy needs gradients at weights that a worker has kept, a workload of the kind "
        "synthetic does not know it\n  use a scenario whose workload has the kind training, or another codec"
    )
    assert job_plan(only(tmp_path, RING, wants, trained)).codec.kind == "needy"
    assert job_plan(only(tmp_path, RING, "codec={kind: needy, wants: ALL_BUCKETS}")).codec.kind == "needy"


@pytest.mark.usefixtures("needy")
def test_weights_that_workers_keep_are_counted(tmp_path: Path) -> None:
    """A copy of the weights for each worker, and the gradients at them."""
    kept, plain = (
        held_bytes(
            tmp_path, RING, f"codec={{kind: needy, wants: {wants}}}", "workload={kind: training, model: mlp}"
        )
        for wants in ("KEPT_WEIGHTS", "LEARNING_RATE")
    )

    assert kept - plain == 2 * 4 * 3 * 9610


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    layers = [["fc", 1000, 1.0], ["conv", 501, 4.0]]
    (tmp_path / "layers.json").write_text(json.dumps({"layers": layers}))
    return tmp_path


def workload(keys: str) -> str:
    elements = "" if "elements" in keys else "elements: null, "  # in place of those of the scenario
    return f"workload={{kind: synthetic, {elements}{keys}}}"


def test_a_profile_gives_layers_and_when_they_are_ready(folder: Path) -> None:
    spec = job_plan(only(folder, workload("profile: layers.json, shrink: 2, fusion: {kind: none}"))).workload

    assert isinstance(spec, SyntheticSpec)
    assert spec.elements == 751
    assert [(one.name, one.elements, one.ready_share) for one in spec.layers] == [
        ("fc", 500, 0.25),
        ("conv", 251, 1.0),
    ]
    buckets = spec.workload(2, seed=1).buckets
    assert [(one.elements, one.ready_share) for one in buckets] == [(500, 0.25), (251, 1.0)]


def test_a_recording_has_its_own_buckets_unless_a_rule_is_given(tmp_path: Path) -> None:
    write_recording(tmp_path / "mine")
    recorded, fused = (
        job_plan(only(tmp_path, "workers=2", f"workload={{kind: trace, path: mine{rule}}}")).workload.fusion
        for rule in ("", ", fusion: {kind: one}")
    )

    assert recorded == AsRecorded(((0, 1), (2,)))
    assert fused == ONE_BUCKET


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("profile: layers.json, elements: 7", "workload: elements and profile are both given"),
        ("elements: 7, shrink: 2", "workload: shrink is given without a profile"),
        ("profile: nope.json", "cannot read 'nope.json': there is no such file\n  give the path"),
        ("profile: text.json", "text.json: is not JSON"),
        (
            "profile: layers.json, fusion: {kind: partition, buckets: [[fc]]}",
            "workload.fusion.buckets: layer 'conv' in no bucket",
        ),
    ],
)
def test_mistakes_are_reported_where_they_are(folder: Path, keys: str, message: str) -> None:
    (folder / "text.json").write_text("layers")

    assert message in refused(folder, workload(keys))


def test_a_run_keeps_the_profile(folder: Path) -> None:
    (folder / "scenario.yaml").write_text(
        "name: kept\nseed: 1\ntopology: {kind: star, hosts: 2, rate: 1Gbps, delay: 1us}\nworkers: 2\n"
        "workload: {kind: synthetic, profile: layers.json}\ncodec: {kind: none}\ncollective: {kind: ring}\n"
    )

    run = netfold.run(folder / "scenario.yaml", out=folder / "runs")

    assert (run.path / "layers.json").read_bytes() == (folder / "layers.json").read_bytes()
    assert [one["path"] for one in run.summary["inputs"]] == ["layers.json"]
    assert (
        netfold.run(run.path / "scenario.yaml", out=folder / "again").summary["tables"]
        == run.summary["tables"]
    )


TEXT = """\
name: recipes
topology: {kind: star, hosts: 4, rate: 10Gbps}
workers: 3
workload: {kind: training, model: mlp, batch: 8, steps: 7}
codec: {kind: none}
collective: {kind: ring}
"""
UPDATES = "codec {} makes updates of weights, or decides by them, and takes an update to be learning_rate"
KEPT = "codec sasg compares what a worker sends with the same from weights that it kept"


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        (
            "workload.optimizer={kind: sgd, momentum: 0.9, nesterov: true, weight_decay: 0.1}",
            {"optimizer": Sgd(0.9, True, 0.1)},
        ),
        (
            "workload.optimizer={kind: adam, betas: [0.5, 0.6], eps: 0.1, weight_decay: 0.2}",
            {"optimizer": Adam((0.5, 0.6), 0.1, 0.2)},
        ),
        ("workload.optimizer={kind: adamw}", {"optimizer": AdamW((0.9, 0.999), 1e-8, 0.01)}),
        ("workload.schedule={kind: step, every: 4}", {"schedule": StepDecay(4, 0.1)}),
        ("workload.schedule={kind: cosine, floor: 10%}", {"schedule": Cosine(0.1)}),
        (
            "workload.schedule={kind: linear, floor: 0.5, warmup: 1}",
            {"schedule": Linear(0.5, warmup=1)},
        ),
        ("workload.evaluate={target: 95%}", {"evaluate": Evaluate(target=0.95)}),
    ],
)
def test_what_a_scenario_says(tmp_path: Path, setting: str, expected: dict[str, Any]) -> None:
    plain, spec = (job_plan(only(tmp_path, *sets, text=TEXT)).workload for sets in ((), (setting,)))
    assert isinstance(plain, Training)
    assert plain.steps == 7
    assert spec == replace(plain, **expected) != plain


SERVER = "collective={kind: parameter_server}"
ADAM, MOMENTUM = "workload.optimizer={kind: adam}", "workload.optimizer={kind: sgd, momentum: 0.9}"
LOCAL = "workload.local_steps=2"


@pytest.mark.parametrize("optimizer", [ADAM, MOMENTUM, "workload.optimizer={kind: sgd, weight_decay: 0.1}"])
@pytest.mark.parametrize(
    "codec", ["codec={kind: marsit}", "codec={kind: sasg}", "codec={kind: sasg, alpha: 0}"]
)
def test_codecs_that_make_updates_need_plain_sgd(tmp_path: Path, optimizer: str, codec: str) -> None:
    """Or local steps, whose differences are averaged as they are."""
    collective = () if "marsit" in codec else (SERVER,)
    message = refused(tmp_path, optimizer, codec, *collective, text=TEXT)

    assert "workload.optimizer: " in message
    assert UPDATES.format("marsit" if "marsit" in codec else "sasg") in message
    assert only(tmp_path, codec, *collective, text=TEXT)
    assert only(tmp_path, codec, *collective, LOCAL, text=TEXT)


@pytest.mark.parametrize("codec", ["marsit", "sasg, alpha: 0", "count_sketch", "bird"])
def test_other_codecs_carry_local_steps_of_any_optimizer(tmp_path: Path, codec: str) -> None:
    collective = "ring" if codec == "marsit" else "parameter_server"
    for optimizer in (ADAM, MOMENTUM):
        assert only(
            tmp_path,
            optimizer,
            LOCAL,
            f"codec={{kind: {codec}}}",
            f"collective={{kind: {collective}}}",
            text=TEXT,
        )


def test_differences_at_kept_weights_need_an_optimizer_that_forgets(tmp_path: Path) -> None:
    codec = "codec={kind: sasg}"

    assert KEPT in refused(tmp_path, ADAM, LOCAL, codec, SERVER, text=TEXT)
    assert KEPT in refused(tmp_path, MOMENTUM, LOCAL, codec, SERVER, text=TEXT)
    decay = "workload.optimizer={kind: sgd, weight_decay: 0.1}"
    assert only(tmp_path, decay, LOCAL, codec, SERVER, text=TEXT)


def test_momentum_that_is_taken_twice_is_warned_of(tmp_path: Path) -> None:
    sketch = "codec={kind: count_sketch, momentum: 0.5}"

    def warnings(*sets: str) -> str:
        return " ".join(job_plan(only(tmp_path, *sets, "collective={kind: in_network}", text=TEXT)).warnings)

    twice = "momentum is taken twice: codec count_sketch has workers keep 0.5 of theirs, and "
    assert f"{twice}the optimizer has 0.9 (sgd)" in warnings(sketch, MOMENTUM)
    assert f"{twice}the optimizer has 0.9 (adam)" in warnings(sketch, ADAM)
    assert f"{twice}workers' optimizers have 0.9 (sgd)" in warnings(sketch, MOMENTUM, LOCAL)
    assert "momentum" not in warnings(sketch)
    assert "momentum" not in warnings("codec={kind: count_sketch}", MOMENTUM)


def test_memory_counts_what_optimizers_remember(tmp_path: Path) -> None:
    """For each weight; with local steps at every worker, beside a worker's own weights and gradient."""

    def size(*sets: str) -> float:
        job = job_plan(only(tmp_path, *sets, text=TEXT))
        return sized(job).bytes(Footprint(0.0, 0.0)) / job.workload.elements

    plain = size()
    assert size(MOMENTUM) - plain == pytest.approx(4)
    assert size(ADAM) - plain == pytest.approx(8)
    assert size(LOCAL) - plain == pytest.approx(8)
    assert size(ADAM, LOCAL) - plain == pytest.approx(8 + 3 * 8)


def test_memory_counts_a_layer_that_is_larger_than_a_full_bucket(tmp_path: Path) -> None:
    """Such as the first linear layer of VGG. Layers are put together until there are 1000 elements."""
    text = TEXT.replace("kind: training, model: mlp, batch: 8, steps: 7", "kind: synthetic, tensors: %s")

    def at_once(tensors: str, bucket: str = "") -> int:
        job = job_plan(
            only(tmp_path, *([f"workload.bucket={bucket}"] if bucket else []), text=text % tensors)
        )
        return sized(job).at_once

    assert at_once("[8000, 3000x1, 500x1]", "4KB") == 11500  # all there is
    assert at_once("[1000x1, 8000x1, 3000x1, 500x1, 900x9]", "4KB") == 2 * (500 + 8100)
    assert at_once("[1000x1, 800x1, 300x1, 500x1, 900x1]", "4KB") == 2 * (500 + 900)


def test_local_steps_leave_nothing_to_overlap(tmp_path: Path) -> None:
    """All differences are ready at the end, so rules of fusion see layers that are ready then."""
    local, plain = (job_plan(only(tmp_path, *sets, text=TEXT)).workload for sets in ((LOCAL,), ()))

    assert {layer.ready_share for layer in local.layers} == {1.0}
    assert len({layer.ready_share for layer in plain.layers}) == 2


RACKS = """\
name: racks
seed: 1
topology: {kind: leaf_spine, leaves: 4, spines: 4, hosts_per_leaf: 4, rate: 100Gbps, uplink_rate: 40Gbps,
  switch: tofino1}
workers: 16
workload: {kind: synthetic, elements: 300000}
codec: {kind: fixed_point}
collective: {kind: in_network, frame: udp-256}
"""
TREE = "collective.aggregators=tree"
LEAVES = ["leaf0", "leaf1", "leaf2", "leaf3"]


def shape(folder: Path, *sets: str, text: str = RACKS) -> list[list[str]]:
    """Names of the points of each tree, the root first."""
    variant = only(folder, *sets, text=text)
    trees = job_plan(variant).collective.aggregations
    return [[variant.network.nodes[node] for node in tree.points] for tree in trees]


def aggregators(folder: Path, wanted: object, *sets: str, text: str = RACKS) -> list[str]:
    (tree,) = shape(folder, f"collective.aggregators={wanted}", *sets, text=text)
    return tree


def test_a_root_that_is_named(tmp_path: Path) -> None:
    assert aggregators(tmp_path, "tor", "collective.switch=leaf2") == ["leaf2", "leaf0", "leaf1", "leaf3"]
    assert aggregators(tmp_path, "core", "collective.switch=spine3") == ["spine3"]
    text = refused(tmp_path, "collective.aggregators=tor", "collective.switch=spine0", text=RACKS)
    assert text == (
        "--set: collective.aggregators: no switch next to a worker can be the root: their profiles are "
        "'tofino1' on 4, and the root may be spine0 (tier 2, tofino1)\n"
        "  use aggregators: tree, or give these switches a programmable profile"
    )


def test_no_switch_of_the_wanted_tier_can_aggregate(tmp_path: Path) -> None:
    graph = leaf_spine(2, 1, 2, LINK, LINK, "plain")
    graph.nodes["spine0"]["profile"] = "tofino1"
    (tmp_path / "net.json").write_text(to_json(graph))
    sets = ("topology={kind: file, path: net.json}", "workers=4")

    assert aggregators(tmp_path, "core", *sets) == aggregators(tmp_path, "tree", *sets) == ["spine0"]
    text = refused(tmp_path, *sets, "collective.aggregators=tor", text=RACKS)
    assert "no switch next to a worker can be the root: their profiles are 'plain' on 2" in text
    assert "the root may be spine0 (tier 2, tofino1)" in text


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        ("tree", ["spine0", *LEAVES]),
        ("tor", LEAVES),
        ("core", ["spine0"]),
        ("one", ["spine0"]),
        (1, ["spine0"]),
        (3, ["spine0", "leaf0", "leaf1"]),
        (4, LEAVES),
        (5, ["spine0", *LEAVES]),
    ],
)
def test_so_many_switches(tmp_path: Path, count: int | str, expected: list[str]) -> None:
    """Of equal leaves the first; four leaves put 3 streams on a link, a spine above three of them 4."""
    assert aggregators(tmp_path, count) == expected


def test_so_many_are_the_fastest_and_of_these_the_ones_with_the_least_traffic(tmp_path: Path) -> None:
    """Racks of 2 and 4 workers: the larger one saves more links, unless the other one's uplink is slow."""
    sets = ("workers={count: 6, placement: [h0, h1, h4, h5, h6, h7]}", "collective.switch=spine0")
    fast = (*sets, "topology.uplink_rate=1Tbps", "topology.switch=ideal")
    slow = (*fast, "topology.links=[{match: leaf0-spine0, rate: 10Gbps}]")

    assert aggregators(tmp_path, 2, *fast) == ["spine0", "leaf1"]
    assert aggregators(tmp_path, 2, *slow) == ["spine0", "leaf0"]


FUSIONS = [
    (
        "{kind: partition, buckets: [[conv, norm], [fcc]]}",
        f"there is no layer 'fcc'\n  did you mean 'fc'? {LISTED}",
    ),
    ("{kind: partition, buckets: [[conv, norm], [fc, 0]]}", "the layer 'conv' is in the buckets 0 and 1"),
    ("{kind: partition, buckets: [[conv, norm]]}", "layer 'fc' in no bucket\n  name every layer once"),
    ("{kind: partition, buckets: [[3]]}", f"there is no layer 3, the last of 3 is 2\n  {LISTED}"),
]
SETTINGS = [
    ("optimizer={kind: sgd, nesterov: true}", "optimizer: nesterov is given without momentum\n"),
    ("optimizer={kind: adam, betas: [0.9, 1]}", "optimizer.betas.1: must be less than 1.0, found 1"),
    ("optimizer={kind: adam, eps: 0}", "optimizer.eps: must be more than 0.0, found 0"),
    ("evaluate={target: 0}", "the target must be more than 0 and at most 1, found 0: accuracy is a share\n"),
    ("evaluate={target: 120%}", "evaluate.target: '120%' is not a fraction from 0 to 1\n"),
]
COUNTED = "must be auto, one, tree, tor, core or a number of switches, at least 1; found "


@pytest.mark.parametrize(
    ("text", "sets", "message"),
    [
        *((TINY, [synthetic(fusion)], f"workload.fusion.buckets: {message}") for fusion, message in FUSIONS),
        *((TEXT, [f"workload.{setting}"], message) for setting, message in SETTINGS),
        *((RACKS, [f"collective.aggregators={wanted}"], COUNTED) for wanted in ("0", "all", "[leaf0]")),
        (
            RACKS.replace(", frame: udp-256", ""),
            ["collective={kind: in_network, program: atp}", "collective.trees=2"],
            "trees belongs to programs switchml and tree, found program atp",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_in_words(
    tmp_path: Path, text: str, sets: list[str], message: str
) -> None:
    assert message in refused(tmp_path, *sets, text=text)


def test_trees_in_parallel_spread_over_the_spines(tmp_path: Path) -> None:
    for count in (1, 2, 3, 4):
        trees = shape(tmp_path, TREE, f"collective.trees={count}")
        assert sorted(tree[0] for tree in trees) == [f"spine{number}" for number in range(count)]
        assert all(tree[1:] == LEAVES for tree in trees)
    roots = [tree[0] for tree in shape(tmp_path, TREE, "collective.trees=6")]
    assert sorted(roots.count(f"spine{number}") for number in range(4)) == [1, 1, 2, 2]


def test_trees_with_one_root_take_different_paths(tmp_path: Path) -> None:
    variant = only(tmp_path, TREE, "collective.trees=4", "collective.switch=leaf0", text=RACKS)
    trees = job_plan(variant).collective.aggregations

    assert {tree.switch for tree in trees} == {variant.network.nodes.index("leaf0")}
    load = job_traffic(variant.network, *trees).load
    names = variant.network.link_names
    assert [load[names.index(f"leaf1->spine{spine}")] for spine in range(4)] == [1, 1, 1, 1]


def test_slots_are_divided_among_trees_and_do_not_meet(tmp_path: Path) -> None:
    variant = only(tmp_path, TREE, "collective.trees=3", "collective.slots=100", text=RACKS)
    trees = job_plan(variant).collective.aggregations

    assert [(tree.slot_base, tree.slots_count) for tree in trees] == [(0, 33), (33, 33), (66, 33)]
    assert job_plan(variant).collective.sender.window == 99
    messages = ("collective.frame=roce-1024", "topology.leaves=2", "workers=8")
    variant = only(tmp_path, TREE, "collective.trees=3", "collective.slots=100", *messages, text=RACKS)
    assert [tree.slots_count for tree in job_plan(variant).collective.aggregations] == [32] * 3


def test_more_trees_than_slots(tmp_path: Path) -> None:
    sets = (TREE, "collective.slots=4", "topology.leaves=2", "workers=8")

    assert len(shape(tmp_path, *sets, "collective.trees=4")) == 4
    text = refused(tmp_path, *sets, "collective.trees=5", text=RACKS)
    assert "4 slots cannot be divided among 5 trees in whole messages of 1 packets" in text
    assert "use 4 trees at most" in text
    assert "must be at most 64, found 65" in refused(tmp_path, "collective.trees=65", text=RACKS)


def test_the_pace_of_parallel_trees(tmp_path: Path) -> None:
    """Uplinks of 40 Gbps carry one stream of a tree; four trees are limited by hosts' links."""
    words = 64 / 332 / 8
    for count, bps in ((1, 40e9), (2, 80e9), (4, 100e9)):
        variant = only(tmp_path, TREE, f"collective.trees={count}", "collective.slots=4096", text=RACKS)
        trees = job_plan(variant).collective.aggregations
        assert job_pace(variant.network, *trees).elements_per_s == pytest.approx(words * bps)
        (bound,) = job_plan(variant).references
        assert bound.elements_per_s == pytest.approx(words * bps)


@pytest.mark.parametrize(
    ("workers", "profile", "text"),
    [
        (33, "tofino1", "tell 33 workers apart: its bitmap is one 32-bit word\n  use 32 workers at most"),
        (65, "ideal", "tell 65 workers apart: its bitmap is 64 bits wide\n  use 64 workers at most"),
    ],
)
def test_more_workers_than_one_switch_can_tell_apart(
    tmp_path: Path, workers: int, profile: str, text: str
) -> None:
    for wanted in ("collective.aggregators=auto", "collective.aggregators=one", TREE):
        last, first = (
            (f"topology={{kind: star, hosts: {count}, switch: {profile}}}", f"workers={count}", wanted)
            for count in (workers - 1, workers)
        )
        assert only(tmp_path, *last, text=RACKS)
        assert text in refused(tmp_path, *first, text=RACKS)


def wide(hosts: int, spines: int = 1, leaves: int = 1) -> tuple[str, ...]:
    kind = f"{{leaves: {leaves}, spines: {spines}, hosts_per_leaf: {hosts}}}"
    return (f"topology={kind}", f"workers={hosts * leaves}")


@pytest.mark.parametrize(("hosts", "spines", "points"), [(33, 1, 2), (64, 2, 3), (94, 2, 3)])
def test_other_switches_relieve_a_full_one(tmp_path: Path, hosts: int, spines: int, points: int) -> None:
    """One leaf of Tofinos with bitmaps of 32 bits: each spine beside it takes 32 workers."""
    variant = only(tmp_path, *wide(hosts, spines), text=RACKS)
    job = job_of(variant)

    assert len(job.points) == points
    counts = [len(job.children_of(point)) for point in range(points)]
    assert max(counts) <= 32
    assert sum(counts) == hosts + points - 1


def test_multicast_is_off_unless_wanted(tmp_path: Path) -> None:
    one = ("collective.aggregators=one", "collective.switch=spine0")
    plain = job_of(only(tmp_path, *one, text=RACKS))
    assert plain.splits == ()
    for wanted in ("auto", "on"):
        variant = only(tmp_path, *one, f"collective.multicast={wanted}", text=RACKS)
        assert split_names(variant, job_of(variant)) == [(f"leaf{leaf}", 4) for leaf in range(4)]
        assert len(set(job_of(variant).routes)) == 1
    tree = job_of(only(tmp_path, TREE, "collective.multicast=on", text=RACKS))
    assert tree.splits == ()


def split_names(variant: VariantPlan, job: Job) -> list[tuple[str, int]]:
    """The switch of each split, and its number of receivers."""
    first = len(job.points)
    return [
        (variant.network.nodes[split.switch], len(receivers_of(job, first + number)))
        for number, split in enumerate(job.splits)
    ]


def test_multicast_below_a_leaf_goes_over_one_spine(tmp_path: Path) -> None:
    sets = ("collective.aggregators=one", "collective.switch=leaf0", "collective.multicast=on")
    variant = only(tmp_path, *sets, text=RACKS)
    found = split_names(variant, job_of(variant))

    assert found[0][0].startswith("spine")
    assert found == [(found[0][0], 3), ("leaf1", 4), ("leaf2", 4), ("leaf3", 4)]


def test_a_switch_that_cannot_multicast(tmp_path: Path) -> None:
    graph = leaf_spine(2, 1, 2, LINK, LINK, "tofino1")
    graph.nodes["leaf0"]["profile"] = "fpga"
    (tmp_path / "net.json").write_text(to_json(graph))
    sets = ("topology={kind: file, path: net.json}", "workers=4", "collective.aggregators=one")
    named = (*sets, "collective.switch=spine0")

    variant = only(tmp_path, *named, "collective.multicast=auto", text=RACKS)
    assert split_names(variant, job_of(variant)) == [("leaf1", 2)]
    assert refused(tmp_path, *named, "collective.multicast=on", text=RACKS) == (
        "--set: collective.multicast: switch leaf0 (profile 'fpga') cannot copy results that split there\n"
        "  use multicast: auto, or a switch profile with multicast"
    )


def test_parallel_trees_of_least_traffic_are_chosen_by_it_first(tmp_path: Path) -> None:
    """Two workers on two of three switches in a triangle: a tree at the third one uses idle links, but more.

    At one of their own, packets pass each worker's link and the one between, up and down: 6 links.
    """
    triangle = "topology={kind: torus, dimensions: [3], switch: ideal}"
    for tree, expected in (("traffic", [6, 6]), ("depth", [6, 8])):
        sets = (triangle, "workers=2", TREE, "collective.trees=2", f"collective.tree={tree}")
        variant = only(tmp_path, *sets, text=RACKS)
        trees = job_plan(variant).collective.aggregations

        assert [sum(job_traffic(variant.network, one).load.values()) for one in trees] == expected


TWO_RACKS = TINY.replace(
    "{kind: star, hosts: 4, rate: 100Gbps, delay: 1us, switch: tofino1}",
    "{kind: leaf_spine, leaves: 2, spines: 2, hosts_per_leaf: 4, switch: tofino1}",
).replace("workers: 3", "workers: {count: 6, placement: spread}")
SPINE = "collective.switch=spine0"
SHARP = "collective={kind: in_network, program: tree, frame: roce-2048}"


def test_the_leaves_below_a_spine_add_up(tmp_path: Path) -> None:
    variant = only(tmp_path, TREE, SPINE, text=TWO_RACKS)
    job = job_of(variant)

    assert shape(tmp_path, TREE, SPINE, text=TWO_RACKS) == [["spine0", "leaf0", "leaf1"]]
    assert [branch.parent for branch in job.branches] == [0, 0]
    assert job.homes == (1, 2, 1, 2, 1, 2)
    loopbacks = [job.loopback_link, *(branch.loopback_link for branch in job.branches)]
    names = [variant.network.link_names[link] for link in loopbacks]
    assert names == ["spine0->spine0", "leaf0->leaf0", "leaf1->leaf1"]


def test_a_trip_through_a_tree(tmp_path: Path) -> None:
    tree = "collective.aggregators=tree", "collective.slots=512"
    # Up: a window of 512 packets in a row, two links and passes, each point's loopback; and back.
    packet_ps = 332 * 80
    up_ps = 512 * packet_ps + 1_600_000 + packet_ps + 1_600_000
    inside_ps = 2 * (packet_ps + 600_000)
    down_ps = packet_ps + 1_600_000 + packet_ps + 1_000_000
    trip_ps = up_ps + inside_ps + down_ps

    assert only(tmp_path, SPINE, *tree, f"collective.timeout={trip_ps + 1}ps", text=TWO_RACKS)
    assert "is too short" in refused(
        tmp_path, SPINE, *tree, f"collective.timeout={trip_ps}ps", text=TWO_RACKS
    )


def test_sharp_needs_no_timers_and_nothing_is_dropped(tmp_path: Path) -> None:
    variant = only(
        tmp_path, SHARP, "collective.slots=16", "topology.switch=ideal", "codec={kind: none}", text=TWO_RACKS
    )
    job = job_of(variant)

    assert (job.program.name, job.overflow, job.unit_packets) == ("tree", Overflow.WRAP, 1)
    assert (job.sender.timeout_ps, job.sender.first_timeout_ps, job.sender.timeout_max_ps) == (0, 0, 0)
    assert (job.frame.elements, job.frame.overhead_bytes, job.slots_count) == (512, 82, 16)
    assert set(variant.network.buffer_bytes.tolist()) == {NO_LIMIT_BYTES}
    assert variant.timeout_max_ps == 0


def walk(network: Network, node: int, root: int, number: int) -> list[int]:
    """Switches on the way to the root, it included, if every node takes link `number mod count`."""
    nodes = []
    while node != root:
        links = next_links(network, node, root)
        node = int(network.link_target[links[number % len(links)]])
        nodes.append(node)
    return nodes


@given(graph=topologies(), data=st.data())
@examples(100)
def test_a_tree_against_walks_along_its_ways(graph: nx.Graph, data: st.DataObject) -> None:
    network = compile_network(graph)
    hosts = [node for node, is_host in enumerate(network.is_host) if is_host]
    root = data.draw(st.sampled_from([node for node, is_host in enumerate(network.is_host) if not is_host]))
    route = data.draw(st.integers(0, 2**31 - 1))
    able = {node for node, kind in enumerate(network.profiles, start=len(hosts)) if kind == "tofino1"}

    tree = build_tree(network, hosts, root, planned_key(route), able.__contains__)

    points = tree.switches
    assert points[0] == root
    assert len(set(points)) == len(points)
    depths = [len(walk(network, node, root, route)) for node in points]
    assert depths == sorted(depths)
    senders = [(host, tree.homes[index]) for index, host in enumerate(hosts)]
    senders += [(node, tree.parents[number]) for number, node in enumerate(points) if number > 0]
    crossing: dict[int, set[int]] = {}
    for sender, receiver in senders:
        way = walk(network, sender, root, route)
        first = next(node for node in way if node in points)
        assert points[receiver] == first
        for node in way[: way.index(first)]:
            crossing.setdefault(node, set()).add(sender)
    for number, node in enumerate(points[1:], start=1):
        assert node in able
        assert tree.children_count(number) >= 2
    for node, streams in crossing.items():
        assert node not in able or len(streams) < 2
