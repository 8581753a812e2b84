"""Warm-ups: what they measure, who shares them, and what is said where they cannot be had."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import netfold
from netfold.sim.errors import RunError
from netfold.sim.report.table import results_table
from netfold.sim.resolve import resolve
from netfold.sim.run.costs import measure
from netfold.sim.run.costs.measure import WarmUps, measured
from netfold.sim.run.progress import ProgressReporter
from netfold.sim.run.run import run_variant
from netfold.sim.scenario import load
from netfold.sim.workload import SyntheticSpec, synthetic_workload
from netfold.sim.workload.fusion.costs import Cost
from netfold.sim.workload.fusion.layer_fusion import LayerFusion
from netfold.sim.workload.fusion.rule import FusionError
from tests.sim.report.test_report import Balance
from tests.sim.run.costs.scene import RING, RULES, TOPK, profile, run_all, scenario

US = 10**6
RINGS = {name: RULES[name] for name in ("none", "layer-fusion")}
GIVEN = "{kind: layer_fusion, costs: {network: {start: 520us, per_megabyte: 860us}, encode: {start: 7us}}}"


def costs_of(file: Path, *sets: str) -> dict[str, object]:
    plan = resolve(load(file, sets))
    warm_ups = WarmUps(plan)
    return {one.name: warm_ups.settled(one, ProgressReporter()).jobs[0].costs for one in plan.variants}


def test_what_is_measured_is_what_the_device_and_an_idle_ring_take(tmp_path: Path) -> None:
    """Decoding: a start of a kernel and a pass over memory. The ring: 2 (n − 1) / n of the words."""
    file = scenario(tmp_path, workload=profile("resnet50", 64), rules=RINGS)
    plan = resolve(load(file))

    found = measured(plan, plan.variants[0], plan.variants[0].jobs[0])

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
        "measured",
        lambda plan, variant, *rest: counted.append(variant.name) or measured(plan, variant, *rest),
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
        (shown,) = run_all(scenario(tmp_path, rules=rules, overlap=overlap)).values()
        return any("this job overlaps otherwise" in text for text in shown.result.jobs[0].facts.warnings)

    assert not warned("{buckets_in_flight: 4, encode: on_device, decode: last, network: in_turn}")
    assert warned("{buckets_in_flight: 4, encode: on_device, decode: last}")
    assert warned("{buckets_in_flight: 4, encode: on_device, network: in_turn}")
    assert warned("{buckets_in_flight: 4, decode: last, network: in_turn}")
    every = RULES["none"]
    three = run_all(scenario(tmp_path, rules={"none": every, **rules}, overlap="{buckets_in_flight: 3}"))
    # In the same words, however many buckets there are: what variants share is said once.
    words = [one.result.jobs[0].facts.warnings for one in three.values()]
    assert words[0] == words[1]
    assert any("this job overlaps otherwise" in text for text in words[0])


def test_a_codec_that_looks_at_all_gradients_first_is_warned_of(tmp_path: Path) -> None:
    """SASG compares gradients of a whole step; with alpha 0 it compares nothing."""
    training = "kind: training, model: mlp, batch: 8, steps: 2, learning_rate: 0.1"
    rules = {"layer-fusion": RULES["layer-fusion"]}

    def warned(alpha: int) -> bool:
        sends = f"codec: {{kind: sasg_summed, alpha: {alpha}}}\ncollective: {{kind: ring}}"
        (shown,) = run_all(scenario(tmp_path, sends, workload=training, rules=rules)).values()
        return any("all of a step's gradients" in text for text in shown.result.jobs[0].facts.warnings)

    assert warned(10)
    assert not warned(0)


def test_a_rule_without_a_network_says_what_it_lacks() -> None:
    spec = SyntheticSpec(100, fusion=LayerFusion())

    with pytest.raises(FusionError) as caught:
        synthetic_workload(spec, 2, seed=1)

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
    monkeypatch.setattr("netfold.sim.report.html.BUCKETS_MAX", 3)
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
    file = scenario(
        tmp_path, sends, workload="kind: training, model: mlp, batch: 8, steps: 4, learning_rate: 0.5"
    )

    run = netfold.run(file, out=tmp_path / "runs")

    losses = {name: own["loss"].to_list() for (name,), own in run.steps.group_by("variant")}
    assert len(losses) == len(RULES)
    assert len(set(losses["none"])) == 4
    assert all(own == losses["none"] for own in losses.values())
    assert len(set(run.variants["buckets"].to_list())) > 1


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
