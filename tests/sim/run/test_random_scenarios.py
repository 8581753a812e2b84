"""Random small scenarios with random faults: each ends exact or with a reason, never wrong and silent.

What is wrong is found here by plain NumPy, not by netfold's own checks. HYPOTHESIS_PROFILE=nightly draws
other scenarios every time.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import netfold.sim.run.job
from netfold.homomorphic.codec import Decoded
from netfold.sim.resolve import resolve
from netfold.sim.run.outcome import JobResult
from netfold.sim.run.run import run_variant
from netfold.sim.scenario import load
from tests.examples import examples
from tests.soak.merges import has_wrong_words

TIMES_US = st.integers(0, 60)
PLACES = st.sampled_from(["*", "h0->*", "*->h1", "h1->*"])
RATES = st.sampled_from([0.001, 0.02, 0.05])
IN_LINE = {"loss", "corruption", "duplicate", "link_down", "link_rate", "worker_pause", "start_skew"}
INTEGERS = ["block_exponent", "exact"]
VALUES = [*INTEGERS, "float32"]
SPARSE = ["packed", "block_sparse", "exact", "lossless", "lossless", "auto"]
LOSSLESS = [
    ("repaired", "staged"),
    ("repaired", "concurrent"),
    ("rotated", "staged"),
    ("rotated", "concurrent"),
    ("published", "staged"),
]
Fault = dict[str, Any]
EXAMPLES = 1000


@st.composite
def faults_on_packets(draw: st.DrawFn) -> Fault:
    kind = draw(st.sampled_from(["loss", "loss", "corruption", "duplicate", "reorder"]))
    fault: Fault = {"kind": kind, "rate": draw(RATES), "links": [draw(PLACES)]}
    if kind == "corruption":
        fault["detected"] = draw(st.booleans())
    if kind == "duplicate":
        fault["delay"] = draw(st.sampled_from(["0us", "3us", "100us"]))
    if kind == "reorder":
        fault["delay"] = draw(st.sampled_from(["3us", "100us"]))
    return fault


@st.composite
def faults_at_times(draw: st.DrawFn, switch: str, workers: int) -> Fault:
    kind = draw(
        st.sampled_from(
            ["link_down", "link_rate", "switch_reboot", "worker_crash", "worker_pause", "start_skew"]
        )
    )
    at, lasts = f"{draw(TIMES_US)}us", f"{draw(TIMES_US) + 1}us"
    worker = draw(st.integers(0, workers - 1))
    match kind:
        case "link_down":
            for_ever: Fault = {} if draw(st.integers(0, 3)) == 0 else {"for": lasts}
            return {"kind": kind, "links": [draw(PLACES)], "at": at, **for_ever}
        case "link_rate":
            return {"kind": kind, "links": [draw(PLACES)], "at": at, "for": lasts, "rate": "2Gbps"}
        case "switch_reboot":
            clears = draw(st.sampled_from(["registers", "tables", "both"]))
            until: Fault = {} if clears == "registers" else {"for": lasts}
            return {"kind": kind, "switch": switch, "at": at, "clears": clears, **until}
        case "worker_crash":
            return {"kind": kind, "worker": worker, "at": at}
        case "worker_pause":
            return {"kind": kind, "worker": worker, "at": at, "for": lasts}
    return {"kind": kind, "worker": worker, "delay": lasts}


@st.composite
def sparse_codecs(draw: st.DrawFn, values: list[str]) -> dict[str, Any]:
    """One of those that agree on members first, or on digits; `values` are what the network can add."""
    written: dict[str, Any] = {"kind": draw(st.sampled_from(SPARSE)), "values": draw(st.sampled_from(values))}
    index = draw(st.sampled_from(["flat", "two_level", "bloom"]))
    match written["kind"]:
        case "packed":
            written |= {"index": index, "block_elements": draw(st.sampled_from([64, 4096]))}
        case "block_sparse":
            written |= {"blocks": draw(st.sampled_from(["lookahead", "bitmap"])), "columns": 4}
        case "exact":
            del written["values"]
        case "lossless":
            setting, schedule = draw(st.sampled_from(LOSSLESS))
            written |= {"setting": setting, "schedule": schedule}
            if setting != "published":
                written |= {"index": index, "load": draw(st.sampled_from([0.3, 0.81]))}
            elif written["values"] == "exact":
                written["values"] = "block_exponent"
    return written


@st.composite
def collectives(draw: st.DrawFn) -> dict[str, Any]:
    """A program with a codec that it can carry, on a switch that can run it."""
    factor = {"kind": "fixed_point", "factor": 1e6}
    waits = {"timeout": "2ms", "first_timeout": "2ms"}
    common = {"kind": "in_network", "slots": draw(st.sampled_from([4, 8]))}
    program = draw(
        st.sampled_from(["switchml", "switchml", "racks", "atp", "timed", "tree", "ring", "torus_2d"])
    )
    switch, codec, collective = "tofino1", {"kind": "fixed_point"}, {**common, "program": program, **waits}
    match program:
        case "switchml" | "racks":
            codec = draw(st.one_of(st.sampled_from([codec, factor]), sparse_codecs(INTEGERS)))
            frame = draw(st.sampled_from(["udp-256", "roce-1024"]))
            aggregators = "tree" if program == "racks" else "one"
            collective |= {"program": "switchml", "frame": frame, "timeout_max": "4ms"}
            collective |= {"aggregators": aggregators}
        case "atp":
            codec = factor
        case "timed":
            switch, codec = "trio", factor
            collective |= {"timeout_max": "4ms", "slot_timer": "20us"}
        case "tree":
            switch, codec = "sharp", draw(st.one_of(st.just({"kind": "none"}), sparse_codecs(VALUES)))
            collective = {**common, "program": "tree"}
        case "ring" | "torus_2d":
            codec = draw(st.one_of(st.sampled_from([{"kind": "none"}, codec]), sparse_codecs(VALUES)))
            collective = {"kind": program, "window": 32, "ack_every": 4}
    return {"switch": switch, "codec": codec, "collective": collective}


@st.composite
def scenarios(draw: st.DrawFn) -> dict[str, Any]:
    parts = draw(collectives())
    workers = draw(st.integers(2, 4))
    rates = {"rate": draw(st.sampled_from(["10Gbps", "100Gbps"])), "delay": "1us", "switch": parts["switch"]}
    if draw(st.booleans()):
        topology, switch = {"kind": "star", "hosts": 5, **rates}, "s0"
    else:
        shape = {"leaves": 2, "spines": draw(st.integers(1, 2)), "hosts_per_leaf": 3}
        topology, switch = {"kind": "leaf_spine", **shape, **rates}, "leaf0"
    faults = st.one_of(faults_on_packets(), faults_at_times(switch, workers))
    return {
        "name": "soak",
        "seed": draw(st.integers(0, 2**31)),
        "topology": topology,
        "workers": {"count": workers, "placement": "spread"},
        "workload": {
            "kind": "synthetic",
            "elements": draw(st.integers(1, 3000)),
            "density": draw(st.sampled_from([0.05, 1.0])),
            "steps": draw(st.integers(1, 3)),
            "bucket": draw(st.sampled_from(["1KB", "12KB"])),
        },
        "device": {"kind": "fixed", "forward": "5us", "backward": "20us", "memory_rate": "10Gbps"},
        "codec": parts["codec"],
        "collective": parts["collective"],
        "overlap": {
            "buckets_in_flight": draw(st.sampled_from([1, 2, 5])),
            "order": draw(st.sampled_from(["ready", "first_layer"])),
            "encode": draw(st.sampled_from(["beside", "on_device"])),
        },
        "faults": draw(st.lists(faults, max_size=3)),
    }


def is_in_line(fault: Fault) -> bool:
    """Whether it costs time and nothing else: packets stay in order, and everything comes back."""
    if fault["kind"] == "duplicate":
        return fault["delay"] == "0us"
    if fault["kind"] == "corruption":
        return bool(fault["detected"])
    return fault["kind"] in IN_LINE and (fault["kind"] != "link_down" or "for" in fault)


class Witness:
    """Sees every round's gradients and what workers decoded, and counts what is wrong by itself."""

    def __init__(self) -> None:
        self.wrong = 0

    def __call__(
        self,
        codec: Any,
        gradients: Sequence[NDArray[Any]],
        decoded: Sequence[Decoded],
        *others: Any,
    ) -> Any:
        operations, exempt, *_ = others
        self.wrong += any(map(has_wrong_words, operations))
        for worker, own in enumerate(one.total for one in decoded):
            wide = np.array(gradients, np.float64)
            if (holders := operations[0].received[worker][0].holders) is not None:
                bitmaps = np.repeat(holders.bitmaps, holders.unit_words)[: own.size]
                wide *= [(bitmaps >> np.uint32(rank)) & 1 for rank in range(len(gradients))]
            magnitude = np.abs(wide).sum(axis=0)
            slack = 1e-3 * (magnitude + magnitude.max(initial=0.0)) + 1e-5
            is_wrong = np.abs(own - wide.sum(axis=0)) > slack
            is_wrong[exempt.estimates] = False
            self.wrong += bool(is_wrong.any())
        return _examine(codec, gradients, decoded, *others)


_examine = netfold.sim.run.job.examine


def play(scenario: dict[str, Any], file: Path) -> tuple[JobResult, Witness]:
    file.write_text(json.dumps(scenario), encoding="utf-8")
    plan = resolve(load(file))
    witness = Witness()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(netfold.sim.run.job, "examine", witness)
        (job,) = run_variant(plan, plan.variants[0]).jobs
    return job, witness


@examples(EXAMPLES)
@given(scenario=scenarios())
def test_every_scenario_ends_exact_or_with_a_reason(
    tmp_path_factory: pytest.TempPathFactory, scenario: dict[str, Any]
) -> None:
    job, witness = play(scenario, tmp_path_factory.getbasetemp() / "soak.yaml")
    found = {check.name: check for check in job.checks}
    program = scenario["collective"].get("program")

    assert found["conservation"].verdict == "pass", found["conservation"].detail
    assert found["switches_add_up"].verdict == "pass", found["switches_add_up"].detail
    is_safe = all(map(is_in_line, scenario["faults"]))
    if found["finishes"].verdict == "stuck":
        assert any(reason in found["finishes"].detail for reason in ("ikely cause", "has crashed"))
        assert job.facts.diagnosis is not None
    elif found["finishes"].verdict == "fail":  # a codec that cannot make sense of what came back, and says so
        assert not is_safe
        assert found["finishes"].detail
    if witness.wrong:
        names = ("sum_is_right", "merges_are_exact", "merges_are_right", "replicas_agree")
        failed = [found[name] for name in names if found[name].verdict == "fail"]
        assert failed
        assert any(place in check.detail for check in failed for place in ("slot", "unit", "message"))
    may_lose = {"tree", "timed"}  # the one waits for ever, the other goes on without
    if is_safe and not (program in may_lose and scenario["faults"]):
        assert {name: check.detail for name, check in found.items() if check.verdict != "pass"} == {}
