"""What a run folder says was run: the settings in effect, of every variant and of every job."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from netfold.homomorphic.codec import codec_kinds
from netfold.homomorphic.message import MERGEABLE
from netfold.sim.report.html import build_report
from netfold.sim.run.settings import setups
from tests.sim.scenes import TINY, plan, run

DESCRIBED = (
    TINY.replace("seed: 7\n", "seed: 7\ndescription: Three workers.\n")
    + """\
variants:
  - name: plain
  - name: lossy
    faults: [{kind: loss, rate: 1%, links: ["h0->s0"]}]
  - name: ring
    codec: {kind: none}
    collective: {kind: ring, timeout: 1ms}
"""
)

SLOTS = 34  # 3,439.04 ns up, through the loopback port and down are 32.4 packets of 332 B at 25 Gbps


def test_a_run_folder_says_what_was_run(tmp_path: Path) -> None:
    text = DESCRIBED.replace("variants:", "  timeout: released\nvariants:", 1)
    outcome = run(tmp_path, "topology.rate=25Gbps", text=text)
    summary = json.loads((outcome.run_dir / "summary.json").read_bytes())
    plain, lossy, ring = (variant["setup"] for variant in summary["variants"])

    assert summary["description"] == "Three workers."
    assert summary["sets"] == ["topology.rate=25Gbps"]
    assert plain == {
        "topology": {"kind": "star", "hosts": 4, "rate": "25Gbps", "delay": "1us", "switch": "tofino1"},
        "workers": {"count": 3},
        "workload": {"kind": "synthetic", "elements": 1000, "density": "100%", "steps": 1},
        "device": {"kind": "none"},
        "codec": {"kind": "fixed_point", "block_elements": 64},  # a packet of udp-256
        "collective": {
            **{"kind": "in_network", "program": "switchml", "frame": "udp-256", "slots": SLOTS},
            **{"message_packets": 1, "switch": "s0", "timeout": "10ms"},
        },
        "faults": [],
    }
    assert lossy["faults"] == [{"kind": "loss", "rate": "1%", "links": ["h0->s0"]}]
    assert ring["codec"] == {"kind": "none"}
    assert ring["collective"] == {"kind": "ring", "frame": "roce-1024", "window": 512, "timeout": "1ms"}

    page = build_report(outcome.run_dir).read_text("utf-8")
    for words in ("Three workers.", "star: hosts 4, rate 25Gbps, switch tofino1", "loss: rate 1%"):
        assert words in page


def test_jobs_have_settings_of_their_own(tmp_path: Path) -> None:
    text = TINY + "jobs: [{name: first, workers: 2}, {name: second, workers: 1, start: 20us}]\n"
    found: dict[str, Any] = setups(plan(tmp_path, text=text))

    assert {name: one["workers"] for name, one in found.items()} == {
        "tiny/first": {"count": 2},
        "tiny/second": {"count": 1, "start": "20us"},
    }


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("none", {"kind": "none"}),
        ("size, bytes: 1600KB", {"kind": "size", "bytes": "1.6MB"}),
        ("layer_fusion", {"kind": "layer_fusion"}),
        ("one", None),  # the default
    ],
)
def test_a_rule_of_fusion_is_recorded_by_its_kind(
    tmp_path: Path, written: str, shown: dict[str, Any] | None
) -> None:
    layers = "tensors: [b.weight=10x20, a.weight=100x10]"
    workload = f"workload={{kind: synthetic, {layers}, fusion: {{kind: {written}}}}}"
    (found,) = setups(plan(tmp_path, workload)).values()

    assert found["workload"].get("fusion") == shown


def test_tests_are_recorded_with_their_interval(tmp_path: Path) -> None:
    sets = "workload={kind: training, model: mlp, steps: 3, evaluate: {every: 10}}"
    (found,) = setups(plan(tmp_path, sets)).values()

    assert found["workload"]["evaluate"] == {"every": 10}


@pytest.mark.parametrize("kind", list(codec_kinds()))
def test_every_codec_is_recorded_by_its_kind(tmp_path: Path, kind: str) -> None:
    """Some are other objects once a network carries them."""
    ideal = "topology={kind: star, hosts: 4, switch: ideal}"
    codec = codec_kinds()[kind]()
    carrier = "in_network" if codec.merges <= MERGEABLE else "all_gather"
    workload = "workload={kind: training, model: mlp}" if codec.needs else "name=tiny"
    sets = f"codec={{kind: {kind}}}", f"collective={{kind: {carrier}}}", ideal, workload
    (found,) = setups(plan(tmp_path, *sets)).values()

    assert found["codec"]["kind"] == kind
    assert json.loads(json.dumps(found, allow_nan=False)) == found
