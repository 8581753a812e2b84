"""Costs that a fusion rule weighs: measured in a warm-up, fitted, and beside times of a run."""

from __future__ import annotations

import json
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

import netfold
from netfold.errors import OptionError, RunError
from netfold.sim.plan.plan import JobPlan
from netfold.sim.report.compare import results_table
from netfold.sim.results.summary import summarize
from netfold.sim.run import encoding_costs as measure
from netfold.sim.run.encoding_costs import WarmUps, fit_stages, fitted_cost
from netfold.sim.run.encoding_costs import measure_costs as measured_costs
from netfold.sim.run.progress import ProgressReporter
from netfold.sim.run.run import run_variant
from netfold.sim.run.variant import VariantResult
from netfold.sim.scenario.load import load
from netfold.sim.scenario.resolve import resolve
from netfold.sim.workload.fusion_rules import Cost, Costs, LayerFusion, Sample, Stages
from netfold.sim.workload.layers import Layer
from netfold.sim.workload.synthetic import SyntheticSpec
from tests.examples import nightly
from tests.sim.report.test_report import Balance
from tests.sim.workload.fusion_drawn import PROFILES_FOLDER, measured

AS_MODELLED = "{buckets_in_flight: 100, encode: on_device, decode: last, network: in_turn}"
RING = "codec: {kind: none}\ncollective: {kind: ring}"
TOPK = "codec: {kind: topk, share: 0.01}\ncollective: {kind: all_gather}"
RULES = {
    "none": "{kind: none}",
    "one": "{kind: one}",
    "size": "{kind: size, bytes: 400KB}",
    "mg-wfbp": "{kind: mg_wfbp}",
    "omgs": "{kind: omgs}",
    "layer-fusion": "{kind: layer_fusion}",
}


class Shown(NamedTuple):
    """What a variant came to."""

    result: VariantResult
    entry: dict[str, Any]

    @property
    def simulated_us(self) -> float:
        return float(self.entry["metrics"]["iteration_time_us"])

    @property
    def predicted_us(self) -> float:
        return float(self.entry["metrics"]["predicted_iteration_time_us"])


def scenario(
    folder: Path,
    sends: str = RING,
    *,
    workload: str = "kind: synthetic, tensors: [a=3000, b=100, c=50000, d=20000]",
    rules: dict[str, str] = RULES,
    overlap: str = AS_MODELLED,
    device: str = "{kind: fixed, forward: 1ms, backward: 4ms, memory_rate: 20Gbps, launch: 20us}",
    topology: str = "{kind: star, hosts: 4, rate: 1Gbps, delay: 10us}",
    more: str = "",
) -> Path:
    """Write a scenario with a variant for each rule."""
    variants = "".join(
        f"  - {{name: {name}, workload: {{fusion: {rule}}}}}\n" for name, rule in rules.items()
    )
    file = folder / "scenario.yaml"
    file.write_text(
        f"name: scenario\nseed: 1\ntopology: {topology}\nworkers: 4\nworkload: {{{workload}}}\n"
        f"device: {device}\noverlap: {overlap}\n{sends}\n{more}variants:\n{variants}"
    )
    return file


def profile(name: str, shrink: int) -> str:
    """A workload of measured layers, made smaller."""
    return f"kind: synthetic, profile: '{PROFILES_FOLDER / name}.json', shrink: {shrink}"


def run_all(file: Path, *sets: str) -> dict[str, Shown]:
    """Run all variants, which share warm-ups as those of a run do."""
    plan = resolve(load(file, sets))
    warm_ups = WarmUps(plan)
    results = {variant.name: run_variant(plan, variant, warm_ups=warm_ups) for variant in plan.variants}
    return {
        name: Shown(result, summarize(result.facts, result.records)["variants"][0])
        for name, result in results.items()
    }


whole = st.integers(0, 10**6)


@given(whole, whole, st.lists(st.integers(1, 10**6), min_size=2, max_size=20, unique=True))
def test_a_line_is_found(start: int, slope: int, sizes: list[int]) -> None:
    found = fitted_cost(sizes, [start + slope * size for size in sizes])

    times = [start + slope * size for size in sizes]
    assert found.all_ps(sizes) == pytest.approx(times, rel=1e-6, abs=1e-3)


@given(st.lists(st.tuples(st.integers(1, 10**5), st.integers(0, 10**9)), min_size=3, max_size=30))
def test_no_other_line_without_negative_parts_is_closer(samples: list[tuple[int, int]]) -> None:
    """Against least squares with bounds, of SciPy's kind but by trying all four sets of columns."""
    sizes, times = (np.array(one, np.float64) for one in zip(*samples, strict=True))

    found = fitted_cost(*(list(map(int, one)) for one in (sizes, times)))

    assert found.start_ps >= 0
    assert found.element_ps >= 0
    ones = np.ones(sizes.size)
    closest = float((times**2).sum())
    for columns in ([ones], [sizes], [ones, sizes]):
        matrix = np.stack(columns, axis=1)
        scale = np.linalg.norm(matrix, axis=0)
        parts = np.linalg.lstsq(matrix / scale, times, rcond=None)[0] / scale
        if (parts >= 0).all():
            closest = min(closest, float(((matrix @ parts - times) ** 2).sum()))
    if np.unique(sizes).size > 1:
        squares = float(((found.all_ps(sizes) - times) ** 2).sum())
        assert squares <= closest * (1 + 1e-6) + 1e-3 * (1 + float(times.max()) ** 2) * 1e-6


def test_of_one_size_the_time_is_in_proportion() -> None:
    """One bucket does not tell a start from a rate."""
    assert fitted_cost([100], [500]) == Cost(0.0, pytest.approx(5.0))
    assert fitted_cost([100, 100], [400, 600]) == Cost(0.0, pytest.approx(5.0))


def test_no_time_costs_nothing() -> None:
    stages = fit_stages([Sample(size, 10 + size, 0, 3 * size) for size in (1, 5, 9)])

    assert stages.network == Cost(0.0, 0.0)
    assert stages.encode.ps(20) == pytest.approx(30)
    assert stages.decode.ps(20) == pytest.approx(60)


def test_how_far_samples_are_from_a_line() -> None:
    samples = (Sample(1, 10, 20, 30), Sample(2, 10, 20, 50))
    costs = Costs(0, 0, Stages(Cost(10), Cost(20), Cost(30)), samples)

    assert costs.fit_error == pytest.approx(20 / 140)
    assert Costs(0, 0, costs.stages).fit_error is None


# A sixty-fourth of ResNet-50, a 256th of the others; a device and links slower by about as much.
SCENES = {
    "resnet50": (64, "{kind: star, hosts: 4, rate: 300Mbps, delay: 20us}", 113, "60ms"),
    "vgg19": (256, "{kind: star, hosts: 4, rate: 200Mbps, delay: 20us}", 28, "120ms"),
    "bert-qa": (256, "{kind: star, hosts: 4, rate: 150Mbps, delay: 20us}", 28, "80ms"),
}


@pytest.mark.parametrize(
    ("name", "sends", "rules"),
    [
        pytest.param("resnet50", RING, RULES, marks=nightly),
        pytest.param("bert-qa", RING, RULES, marks=nightly),
        ("vgg19", TOPK, {name: RULES[name] for name in ("none", "one", "mg-wfbp", "layer-fusion")}),
    ],
    ids=["resnet50, none around a ring", "bert-qa, none around a ring", "vgg19, topk by all_gather"],
)
def test_steps_are_as_predicted_and_none_is_shorter_than_layer_fusion(
    tmp_path: Path, name: str, sends: str, rules: dict[str, str]
) -> None:
    """Within 1 % of the model (5 would do), for every rule; LayerFusion is above none by more than 1 %."""
    shrink, topology, memory_gbps, backward = SCENES[name]
    device = (
        f"{{kind: fixed, forward: 20ms, backward: {backward}, memory_rate: {memory_gbps}Gbps, launch: 50us}}"
    )
    workload = profile(name, shrink)

    found = run_all(
        scenario(tmp_path, sends, workload=workload, rules=rules, device=device, topology=topology)
    )

    assert {shown.entry["verdict"] for shown in found.values()} == {"pass"}
    for shown in found.values():
        assert shown.simulated_us == pytest.approx(shown.predicted_us, rel=0.01)
    best = found["layer-fusion"]
    assert best.simulated_us <= 1.01 * min(shown.simulated_us for shown in found.values())
    assert best.predicted_us <= min(shown.predicted_us for shown in found.values()) * (1 + 1e-9)
    assert found["none"].entry["metrics"]["buckets"] == len(measured(name))
    assert found["one"].entry["metrics"]["buckets"] == 1
    assert best.simulated_us < 0.97 * max(found[rule].simulated_us for rule in ("none", "one"))


def test_steps_of_signs_are_as_predicted_though_the_first_is_in_full_precision(tmp_path: Path) -> None:
    """Within 1 % for every step of signs. A job of one step is predicted for that one, in full precision."""
    file = scenario(
        tmp_path,
        "codec: {kind: marsit}\ncollective: {kind: ring}",
        workload="kind: training, model: mlp_784, data: digits, batch: 2, learning_rate: 0.01, steps: 4",
        rules={"one": RULES["one"], "layer-fusion": RULES["layer-fusion"], "short": RULES["layer-fusion"]},
        topology="{kind: star, hosts: 4, rate: 300Mbps, delay: 10us}",
    )

    found = run_all(file, "variants.short.workload.steps=1")

    for name in ("one", "layer-fusion"):
        steps = found[name].result.jobs[0].journal.steps
        first, *signs = ((step.end_ps - step.start_ps) / 1e6 for step in steps)
        assert signs == pytest.approx([found[name].predicted_us] * 3, rel=0.01)
        assert first > 5 * max(signs)
    assert found["short"].simulated_us == pytest.approx(found["short"].predicted_us, rel=0.01)
    assert found["short"].simulated_us > 5 * found["layer-fusion"].predicted_us


MLP = "kind: training, model: mlp_784, batch: 8, steps: 2"


@pytest.mark.parametrize(
    "device", ["a100", pytest.param("{kind: roofline, name: t4, launch: 40us}", marks=nightly)]
)
def test_steps_are_predicted_with_the_times_of_layers_and_the_update(tmp_path: Path, device: str) -> None:
    rules = {name: RULES[name] for name in ("none", "mg-wfbp")}
    file = scenario(tmp_path, RING, workload=MLP, rules=rules, overlap=AS_MODELLED, device=device)

    for one in run_all(file).values():
        assert one.predicted_us == pytest.approx(one.simulated_us, rel=0.01)


def test_layers_are_paced_by_the_device_and_stay_in_order() -> None:
    layers = [Layer(name, 10, share) for name, share in (("a", 0.1), ("b", 0.2), ("c", 1.0))]
    costs = Costs(1, 2, Stages(), ready=(("a", 0.7), ("b", 0.3)))

    assert [one.ready_share for one in costs.pace(layers)] == list(accumulate((0.7, 0.3, 1.0), max))
    assert Costs(1, 2, Stages()).pace(layers) == tuple(layers)


US = 10**6
RINGS = {name: RULES[name] for name in ("none", "layer-fusion")}
GIVEN = "{kind: layer_fusion, costs: {network: {start: 520us, per_megabyte: 860us}, encode: {start: 7us}}}"


def settled_jobs(file: Path, *sets: str) -> dict[str, JobPlan]:
    """The only job of each variant, once its costs are known."""
    plan = resolve(load(file, sets))
    warm_ups = WarmUps(plan)
    return {one.name: warm_ups.settled(one, ProgressReporter()).jobs[0] for one in plan.variants}


def costs_of(file: Path, *sets: str) -> dict[str, object]:
    return {name: job.costs for name, job in settled_jobs(file, *sets).items()}


def warnings_of(file: Path) -> list[tuple[str, ...]]:
    return [job.warnings for job in settled_jobs(file).values()]


def test_what_is_measured_is_what_the_device_and_an_idle_ring_take(tmp_path: Path) -> None:
    """Decoding: a start of a kernel and a pass over memory. The ring: 2 (n − 1) / n of the words."""
    file = scenario(tmp_path, workload=profile("resnet50", 64), rules=RINGS)
    plan = resolve(load(file))

    found = measured_costs(plan, plan.variants[0], plan.variants[0].jobs[0])

    assert (found.forward_ps, found.backward_ps) == (1000 * US, 4000 * US)
    assert len(found.samples) == 54 + 7 + 1
    stages = found.stages
    assert stages.encode == Cost(0.0, 0.0)
    assert stages.decode.start_ps == pytest.approx(20 * US, rel=1e-3)
    words_ps = 2 * 3 / 4 * 32 * 1106 / 1024 / 1e9 * 1e12  # with headers, at 1 Gbps
    assert words_ps < stages.network.element_ps < 1.1 * words_ps
    assert stages.network.start_ps > 6 * 2 * 10 * US  # six hops over two links each
    one = found.samples[-1]
    assert one.elements == sum(sample.elements for sample in found.samples[:54])
    assert found.fit_error is not None
    assert found.fit_error < 0.05


def test_a_warm_up_is_deterministic_and_sees_no_faults(tmp_path: Path) -> None:
    file = scenario(tmp_path, rules=RINGS)
    faults = "faults=[{kind: loss, rate: 5%}, {kind: slow_host, worker: 1, factor: 3}]"

    assert costs_of(file) == costs_of(file) == costs_of(file, faults)


def test_jobs_that_differ_in_fusion_alone_share_a_warm_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = []
    monkeypatch.setattr(
        measure,
        "measure_costs",
        lambda plan, variant, *rest: counted.append(variant.name) or measured_costs(plan, variant, *rest),
    )
    file = scenario(tmp_path)

    found = costs_of(file)

    assert counted == ["none"]
    assert len(set(map(id, found.values()))) == 1
    counted.clear()
    slower = costs_of(file, "variants.one.topology.rate=500Mbps")
    assert counted == ["none"]
    assert slower["one"] is None  # nobody weighs costs on that network
    assert slower["size"] == found["size"]
    assert costs_of(file, "variants.one.device.launch=21us")["one"] is None  # nor on that device


def test_costs_that_are_given_are_taken(tmp_path: Path) -> None:
    file = scenario(tmp_path, rules={"none": RULES["none"], "given": GIVEN, "measured": RULES["mg-wfbp"]})

    found = run_all(file)

    given = found["given"].entry["fusion"]["costs"]
    assert given["samples"] == 0
    assert given["fit_error"] is None
    assert given["stages"]["network"] == {"start_us": 520, "element_us": 0.00344, "sort_us": 0}
    assert given["stages"]["encode"] == {"start_us": 7, "element_us": 0, "sort_us": 0}
    assert (given["forward_us"], given["backward_us"]) == (1000, 4000)
    assert found["measured"].entry["fusion"]["costs"]["samples"] > 0
    assert found["none"].entry["fusion"]["costs"] == given  # of the first such job


def test_sorting_is_given_by_elements_and_their_logarithm(tmp_path: Path) -> None:
    """OMGS-SGD's model of top-k is s · x · log2 x, with s = 2.19e-10 s: 219 us for each million, doubling."""
    rule = "{kind: omgs, costs: {encode: {sorting: 219us}, network: {start: 1600us, per_megabyte: 10ms}}}"

    (shown,) = run_all(scenario(tmp_path, TOPK, rules={"omgs": rule})).values()

    assert shown.entry["fusion"]["costs"]["stages"]["encode"]["sort_us"] == pytest.approx(219 / 1e6)
    assert Cost(sort_ps=219.0).ps(2**20) == pytest.approx(219.0 * 2**20 * 20)


def test_another_overlap_is_warned_of(tmp_path: Path) -> None:
    rules = {"layer-fusion": RULES["layer-fusion"]}

    def warned(overlap: str) -> bool:
        (words,) = warnings_of(scenario(tmp_path, rules=rules, overlap=overlap))
        return any("this job overlaps otherwise" in text for text in words)

    assert not warned("{buckets_in_flight: 4, encode: on_device, decode: last, network: in_turn}")
    assert warned("{buckets_in_flight: 4, encode: on_device, decode: last}")
    assert warned("{buckets_in_flight: 4, encode: on_device, network: in_turn}")
    assert warned("{buckets_in_flight: 4, decode: last, network: in_turn}")
    every = RULES["none"]
    # In the same words, however many buckets there are: what variants share is said once.
    words = warnings_of(scenario(tmp_path, rules={"none": every, **rules}, overlap="{buckets_in_flight: 3}"))
    assert words[0] == words[1]
    assert any("this job overlaps otherwise" in text for text in words[0])


def test_a_codec_that_looks_at_all_gradients_first_is_warned_of(tmp_path: Path) -> None:
    """SASG compares gradients of a whole step; with alpha 0 it compares nothing."""
    training = "kind: training, model: mlp, batch: 8, steps: 2, learning_rate: 0.1"
    rules = {"layer-fusion": RULES["layer-fusion"]}

    def warned(alpha: int) -> bool:
        sends = f"codec: {{kind: sasg_summed, alpha: {alpha}}}\ncollective: {{kind: ring}}"
        (words,) = warnings_of(scenario(tmp_path, sends, workload=training, rules=rules))
        return any("all of a step's gradients" in text for text in words)

    assert warned(10)
    assert not warned(0)


def test_a_rule_without_a_network_says_what_it_lacks() -> None:
    spec = SyntheticSpec(100, fusion=LayerFusion())

    with pytest.raises(OptionError) as caught:
        spec.workload(2, seed=1)

    assert "which is not known here" in caught.value.message
    assert "run it in a scenario" in caught.value.hint


def test_a_warm_up_that_does_not_end_says_so(tmp_path: Path) -> None:
    """Numbers beyond what fixed point can carry: the codec refuses the gradient, in the warm-up too."""
    np.savez(tmp_path / "g.npz", a=np.full((4, 10), 3e38, np.float32), b=np.ones((4, 10), np.float32))
    file = scenario(
        tmp_path,
        "codec: {kind: fixed_point, factor: 1e6}\ncollective: {kind: ring}",
        workload="kind: file, path: g.npz",
        rules={"layer-fusion": RULES["layer-fusion"]},
    )
    plan = resolve(load(file))

    with pytest.raises(RunError) as caught:
        run_variant(plan, plan.variants[0])

    assert "what its buckets cost cannot be measured" in str(caught.value)
    assert "workload.fusion.costs" in caught.value.hint


@pytest.mark.usefixtures("plain")
def test_a_run_records_which_layers_were_fused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("netfold.sim.report.html_report.BUCKETS_MAX", 3)
    file = scenario(tmp_path, RING)

    run = netfold.run(file, out=tmp_path / "runs")

    written = json.loads((run.path / "summary.json").read_text("utf-8"))
    for entry in written["variants"]:
        names = [name for bucket in entry["fusion"]["buckets"] for name in bucket["layers"]]
        assert names == ["a", "b", "c", "d"]
        assert sum(bucket["elements"] for bucket in entry["fusion"]["buckets"]) == 73_100
        assert entry["metrics"]["buckets"] == len(entry["fusion"]["buckets"])
        predicted = entry["metrics"]["predicted_iteration_time_us"]
        assert predicted == entry["fusion"]["predicted_iteration_time_us"]
        assert predicted == pytest.approx(entry["metrics"]["iteration_time_us"], rel=0.01)
    assert run.variants["buckets"].to_list()[:2] == [4, 1]
    report = run.report().read_text("utf-8")
    assert "Fusion of layers" in report
    assert "LayerFusion, reconstructed" in report
    assert "a … d (4)" in report
    assert "1 more" in report
    page = Balance()
    page.feed(report)
    assert page.open == []
    console = Console(width=200, color_system=None)
    with console.capture() as capture:
        console.print(results_table(run.summary))
    assert "fusion of one (one bucket): 4 layers in 1 bucket;" in capture.get()


def test_fused_or_not_the_weights_are_the_same(tmp_path: Path) -> None:
    """Bit for bit: the losses of training depend on every weight."""
    sends = "codec: {kind: exact}\ncollective: {kind: ring}"
    rules = {name: RULES[name] for name in ("none", "one", "size")}
    training = "kind: training, model: mlp, batch: 8, steps: 4, learning_rate: 0.5"

    shown = run_all(scenario(tmp_path, sends, workload=training, rules=rules))

    losses = {name: [step.loss for step in one.result.steps] for name, one in shown.items()}
    assert len(set(losses["none"])) == 4
    assert all(own == losses["none"] for own in losses.values())
    assert len({one.entry["metrics"]["buckets"] for one in shown.values()}) > 1


def test_several_jobs_are_measured_each_alone(tmp_path: Path) -> None:
    jobs = "jobs: [{name: a}, {name: b, start: 1ms}]\n"
    topology = "{kind: star, hosts: 8, rate: 1Gbps, delay: 10us}"
    file = scenario(tmp_path, rules=RINGS, topology=topology, more=jobs)
    plan = resolve(load(file))

    settled = WarmUps(plan).settled(plan.variants[0], ProgressReporter())

    alone = costs_of(scenario(tmp_path, rules=RINGS, topology=topology))["none"]
    first, second = settled.jobs
    assert first.costs == alone
    assert second.costs is not None
    assert second.costs.stages.network.element_ps == pytest.approx(
        first.costs.stages.network.element_ps, rel=0.02
    )
