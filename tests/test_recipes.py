"""The recipes: the code in docs/recipes.md fits into the sources, and does what the text beside it says."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter
from typer.testing import CliRunner

import netfold
from netfold import kinds
from netfold.commands.main import app
from netfold.homomorphic.codec import EncodeError
from netfold.kernels import compiled
from netfold.sim.collectives.collective import collectives
from netfold.sim.engine.engine_data import Sender
from netfold.sim.keys import CodecOptions
from netfold.sim.results import file_formats as results_format
from netfold.sim.results import metrics
from netfold.sim.scenario import faults
from netfold.sim.workload import device_rooflines
from netfold.sim.workload.models import registry
from netfold.units import PS_PER_S
from tests import ROOT
from tests.docs import blocks
from tests.examples import nightly
from tests.recipes import RECIPES, chapter, files, source
from tests.sim.engine.checked_schedule import check_schedule
from tests.sim.engine.small import FRAME, check_received, flow, reference, run_dry, star_of

(SCENARIO,) = blocks(RECIPES, "yaml")
WORKERS, ELEMENTS = 4, 10_000  # of the scenario


@pytest.fixture
def patch(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """What is registered in a test is forgotten after it."""
    for base in list(kinds._families):
        kinds.registered(base)
    for family in kinds._families.values():
        monkeypatch.setattr(family, "members", dict(family.members))
        monkeypatch.setattr(family, "origins", dict(family.origins))
    return monkeypatch


def imported(patch: pytest.MonkeyPatch, path: str, text: str) -> ModuleType:
    """A module of these contents, imported in the place of the file."""
    name = path.removesuffix(".py").replace("/", ".")
    module = ModuleType(name)
    module.__file__ = str(ROOT / path)
    patch.setitem(sys.modules, name, module)
    exec(compile(text, path, "exec"), vars(module))
    return module


def put_in_place(patch: pytest.MonkeyPatch, live: ModuleType, module: ModuleType) -> None:
    """Let all of netfold use what a module defines anew."""
    for other in [
        one for name, one in sys.modules.items() if name.startswith("netfold") and one is not module
    ]:
        for name, value in list(vars(other).items()):
            if not name.startswith("__") and vars(live).get(name) is value and name in vars(module):
                patch.setattr(other, name, vars(module)[name])


def run(folder: Path, **sets: Any) -> netfold.Run:
    """Run the scenario of the document with other values, whose paths have "__" for a dot."""
    values = {path.replace("__", "."): value for path, value in sets.items()}
    return netfold.run(SCENARIO, set=values, out=folder)


def typed(heading: str, folder: Path, patch: pytest.MonkeyPatch) -> str:
    """What the commands "netfold run" of a recipe print, which all pass."""
    (folder / "mine.yaml").write_text(SCENARIO, "utf-8")
    patch.chdir(folder)
    outputs = []
    for command in re.findall(r"^    netfold (run .*)$", chapter(heading), re.MULTILINE):
        result = CliRunner().invoke(app, [*shlex.split(command), "--no-report"])
        assert result.exit_code == 0, result.output
        outputs.append(result.output)
    (output,) = outputs
    return output


def value(result: netfold.Run, column: str) -> Any:
    return result.variants[column][0]


def test_a_codec_option(tmp_path: Path, patch: pytest.MonkeyPatch) -> None:
    """64 elements of 8 bytes, where a share of 0.1 % is 10."""
    ((path, text),) = files("A codec option").items()
    imported(patch, path, text)
    codec = {"kind": "topk", "share": 0.001}

    for least, count in ((1, 10), (64, 64)):
        result = run(tmp_path, codec={**codec, "least": least}, collective__kind="all_gather")
        assert (result.verdict, value(result, "payload_bytes_up")) == ("pass", 8 * count)
    with pytest.raises(netfold.ScenarioError, match="least is 0: must be at least 1"):
        run(tmp_path, codec={**codec, "least": 0}, collective__kind="all_gather")
    assert "'least'" in str(TypeAdapter(CodecOptions).json_schema())
    assert "78.1 ×" in typed("A codec option", tmp_path, patch)


def test_a_codec(tmp_path: Path, patch: pytest.MonkeyPatch) -> None:
    """Every worker is off by half of a thousandth at most, and so are four of them by two."""
    ((path, text),) = files("A codec").items()
    codec = imported(patch, path, text).WholeSteps

    result = run(tmp_path, codec={"kind": "whole_steps", "per_unit": 1000})
    assert (result.verdict, value(result, "bit_exact")) == ("pass", False)
    assert 0.001 < value(result, "max_abs_error") <= WORKERS * 0.0005 + 1e-6
    assert value(result, "payload_bytes_up") == 4 * ELEMENTS
    switched = run(
        tmp_path, codec__kind="whole_steps", collective={"kind": "in_network"}, topology__switch="ideal"
    )
    assert switched.verdict == "pass"
    typed("A codec", tmp_path, patch)
    assert 0.001 < value(netfold.load("runs/latest"), "max_abs_error") <= 0.002 + 1e-6

    gradients = [np.array([0.5, -1.25, 0.0004], np.float32)] * 3
    netfold.testing.check_round(codec(), gradients)
    with pytest.raises(EncodeError, match="may leave int32"):
        netfold.testing.check_round(codec(), [np.array([1e7], np.float32)] * 3)


def test_a_collective_between_hosts(tmp_path: Path, patch: pytest.MonkeyPatch) -> None:
    """Of four workers, three send to the next one and three send back: six messages of 40 000 bytes."""
    ((path, text),) = files("A collective between hosts").items()
    module = imported(patch, path, text)
    kinds.register(module.CHAIN)
    assert "chain" in collectives()

    for workers in (2, 3, 8):
        check_schedule(module.Chain(kind="chain", chunk="4KiB").cut(workers, 5000).schedule)
    result = run(tmp_path, codec__kind="exact", collective={"kind": "chain", "frame": "roce-1024"})
    assert (result.verdict, value(result, "bit_exact")) == ("pass", True)
    packets = 6 * -(-ELEMENTS // 256)
    data_bytes = result.links.filter(result.links["source"].str.starts_with("h"))["bytes"].sum()
    assert data_bytes > 6 * 4 * ELEMENTS
    assert value(result, "packets") >= packets
    assert "│ yes " in typed("A collective between hosts", tmp_path, patch)


def test_a_congestion_policy(patch: pytest.MonkeyPatch) -> None:
    """The engine's functions and the plain class keep the same windows; the plain engine gets all through."""
    changes = files("A congestion policy of a sender")
    patch.setattr(compiled, "inlined", lambda function: function)
    made = imported(patch, (name := "netfold/sim/engine/congestion_policies.py"), changes[name])
    plain = imported(patch, (name := "tests/reference/engine/congestion_policies.py"), changes[name])
    number = made.POLICIES.index("eighths")
    assert "congestion" in changes["netfold/sim/collectives/host_collective.py"]

    room, random = 40, np.random.default_rng(7)
    twin = plain.POLICIES[number](Sender(FRAME, room, 10**9, ack_every=2), room)
    record = SimpleNamespace(policy=number, ack_every=2, overhead_bytes=34, elements=4, timeout_max_ps=1)
    sender = SimpleNamespace(sender=record, window_max=room, next=0)
    made.on_open(sender, room * 50)
    twin.opened()
    base, windows = 0, set()
    while base < 5000:
        while sender.next < base + sender.window:
            made.on_send(sender, sender.next)
            sender.next += 1
        twin.sent_up_to(sender.next)
        last, is_marked = int(random.integers(base, sender.next)), bool(random.random() < 0.3)
        (made.on_mark if is_marked else made.on_ack)(sender, base, last)
        twin.acknowledged(base, last, is_marked)
        base = last + 1
        windows.add(sender.window)
        assert (sender.window, sender.window_bytes) == (twin.window, twin.window_bytes)
    assert len(windows) > 5

    seen = []

    class Watched(plain.POLICIES[number]):  # type: ignore[name-defined]
        def opened(self) -> None:
            seen.append(self)
            super().opened()

    patch.setattr("tests.reference.engine.flow.POLICIES", [*plain.POLICIES[:number], Watched])
    sim = reference(star_of(3))
    sender_keys = {"policy": number, "ecn_bytes": 200, "window": room, "ack_every": 1, "timeout_ps": 10**10}
    flows = [flow(source, 2, np.arange(2000, dtype=np.int32), **sender_keys) for source in (0, 1)]
    for each in flows:
        sim.open_flow(each)
    run_dry(sim)
    check_received(flows)
    assert len(seen) == 2
    assert all(policy.window < room for policy in seen)


@nightly
@pytest.mark.processes
@pytest.mark.slow
def test_a_congestion_policy_compiled(tmp_path: Path) -> None:
    """The run of the recipe, compiled anew: fewer packets are dropped and sent again."""
    shutil.copytree(ROOT / "netfold", tmp_path / "netfold", ignore=shutil.ignore_patterns("__pycache__"))
    for path, text in files("A congestion policy of a sender").items():
        if path.startswith("netfold/"):
            (tmp_path / path).write_text(text, "utf-8")
    (tmp_path / "mine.yaml").write_text(SCENARIO, "utf-8")
    (command,) = re.findall(
        r"^    netfold run (.*?[^\\])\n", chapter("A congestion policy of a sender"), re.M | re.S
    )
    resent = []
    for policy in ("eighths", "fixed"):
        words = shlex.split(command.replace("\\\n", " ").replace("eighths", policy))
        printed = subprocess.run(
            [sys.executable, "-m", "netfold", "run", *words, "--json", "--no-report"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(tmp_path), "NETFOLD_CACHE": str(tmp_path / "cache")},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        ).stdout
        resent.append(json.loads(printed)["variants"][0]["metrics"]["packets_retransmitted"])
    assert resent == [125, 440]  # as the recipe says


def test_a_metric(tmp_path: Path, patch: pytest.MonkeyPatch) -> None:
    """Its value from two other columns, and its column in the table of a run."""
    ((path, text),) = files("A metric (column)").items()
    put_in_place(patch, metrics, imported(patch, path, text))
    place = "netfold/sim/results/file_formats.py"
    put_in_place(patch, results_format, imported(patch, place, source(place)))  # made of all metrics

    result = run(tmp_path)
    sent, payload = value(result, "wire_bytes_up"), WORKERS * value(result, "payload_bytes_up")
    assert value(result, "wire_over_payload") == sent / payload
    assert "wire/payload" in typed("A metric (column)", tmp_path, patch)


def test_a_fault(tmp_path: Path, patch: pytest.MonkeyPatch) -> None:
    """The sums are right, and the run takes as long as the host is away, or longer."""
    ((path, text),) = files("A fault").items()
    exec(compile(text.removeprefix(source(path)), path, "exec"), dict(vars(faults)))
    fault = {"kind": "host_offline", "host": "h1", "at": "1us", "for": "1ms"}

    whole, broken = run(tmp_path), run(tmp_path, faults=[fault])
    assert broken.verdict == "pass"
    assert value(whole, "aggregation_time_us") < 1000 <= value(broken, "aggregation_time_us")
    assert broken.faults.select("kind", "where").rows() == [("host_offline", "h1")]
    assert "host_offline" in str(TypeAdapter(faults.AnyFault).json_schema(mode="serialization"))
    with pytest.raises(netfold.ScenarioError, match="there is no host 'h7'"):
        run(tmp_path, faults=[{**fault, "host": "h7"}])
    typed("A fault", tmp_path, patch)


def test_a_device(tmp_path: Path, patch: pytest.MonkeyPatch) -> None:
    """Its memory passes 80 % of the data sheet's 5.3 TB in a second; encoding takes time in a run."""
    ((path, text),) = files("A device").items()
    row = imported(patch, path, text).HARDWARE["mi300x"]
    patch.setitem(device_rooflines.HARDWARE, "mi300x", row)

    assert device_rooflines.roofline_device(row, "bf16").work_ps(4_240 * 10**9, 0) == PS_PER_S
    result = run(tmp_path, device="mi300x")
    encoded = result.phases.filter(result.phases["phase"] == "encode")
    assert result.verdict == "pass"
    assert (encoded["end_ps"] - encoded["start_ps"]).min() >= row.launch_ps
    typed("A device", tmp_path, patch)


@pytest.mark.slow
def test_a_model(tmp_path: Path, patch: pytest.MonkeyPatch) -> None:
    """64 · 10 weights, and 10 biases if it has them."""
    ((path, text),) = files("A model").items()
    linear = imported(patch, path, text).Linear
    models, table = {**registry.classes(), "linear": linear}, dict(registry._table())
    table["linear"] = linear().known().model_dump(mode="json", exclude_defaults=True)
    patch.setattr(registry, "classes", lambda: models)
    patch.setattr(registry, "_table", lambda: table)

    assert linear().elements == 650
    for model, elements in (("linear", 650), ({"kind": "linear", "bias": False}, 640)):
        workload = {"kind": "training", "model": model, "batch": 8, "steps": 2, "optimizer": {"kind": "sgd"}}
        result = run(tmp_path, workload=workload)
        assert (result.verdict, value(result, "elements")) == ("pass", elements)
    typed("A model", tmp_path, patch)
