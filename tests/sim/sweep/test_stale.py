"""A kept point is taken only where nothing that decides it has changed, or could have changed unseen."""

from __future__ import annotations

import importlib
import logging
import re
import sys
from pathlib import Path

import pytest

from netfold.sim.sweep import make, page, task
from netfold.sim.sweep.make import Settings, run_sweep
from netfold.sim.sweep.task import Outcome
from tests.sim.sweep.inline import Inline, use_inline
from tests.sim.sweep.scene import BASE, points, scenario
from tests.sim.toys import registered

ELEMENTS = 4000
CODEC = """
from dataclasses import dataclass

import numpy as np

import netfold
from helper import TIMES
from netfold.homomorphic.codec import Codec, Decoded, Encoder
from netfold.homomorphic.message import Merge, Message


class Wide:
    def of(self, sums):
        return np.full(sums.total.size, 1e300)


class Worker(Encoder):
    def exchange(self, gradient, round):
        (merged,) = yield (Message(np.tile(gradient, TIMES), Merge.FLOAT_ADD, "values"),)
        return Decoded(merged.words[: gradient.size].copy(), gradient)


@netfold.register
@dataclass(frozen=True)
class Mine(Codec):
    kind = "mine"
    is_order_free = False

    @property
    def merges(self):
        return frozenset({Merge.FLOAT_ADD})

    def worker(self, rank, workers, seed):
        return Worker()

    def error_bound(self, contributions):
        return Wide()
"""


def test_sources_beside_a_codec_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "helper.py").write_text("TIMES = 1\n")
    (tmp_path / "mine.py").write_text(CODEC.replace("@netfold.register\n", ""))
    monkeypatch.syspath_prepend(str(tmp_path))
    base = BASE.partition("variants:")[0] + "codec: {kind: mine}\ncollective: {kind: parameter_server}\n"

    def digests() -> set[str]:
        return {one.digest for one in points("sweep: {workers: [2, 3]}\n", base=base)}

    with registered(importlib.import_module("mine").Mine):
        first = digests()
        assert digests() == first
        (tmp_path / "helper.py").write_text("TIMES = 4\n")
        assert not digests() & first
    for name in ("mine", "helper"):
        monkeypatch.delitem(sys.modules, name)


MODEL = """
import json, pathlib
import torch
from torch import nn

def make():
    width = json.loads(pathlib.Path({data!r}).read_text())
    module = nn.Sequential(nn.Linear(4, width), nn.Linear(width, 2))
    return module, (torch.zeros(16, 4), torch.zeros(16, 2)), nn.MSELoss()
"""
TRAINED = """
name: small
topology: {{kind: star, hosts: 4}}
workers: 2
workload: {{kind: training, model: {model}, steps: 1, batch: 4}}
codec: {{kind: none}}
collective: {{kind: ring}}
sweep: {{workers: [2, 3]}}
"""


@pytest.fixture
def own_model(tmp_path: Path) -> str:
    """A scenario with a model whose width is in a file that the scenario does not name."""
    (tmp_path / "width.json").write_text("8")
    (tmp_path / "mdl.py").write_text(MODEL.format(data=str(tmp_path / "width.json")))
    return TRAINED.format(model=f"{tmp_path}/mdl.py:make")


def elements(out: Path, text: str, **settings: bool) -> list[int]:
    folder = run_sweep(scenario("", base=text), Settings(1, **settings), out, lambda ended: None)
    return [int(one) for one in page.load_sweep(folder).frame["elements"].to_list()]


def test_what_a_model_reads_is_not_known(
    tmp_path: Path, own_model: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def parameters(width: int) -> int:
        return 4 * width + width + width * 2 + 2

    use_inline(monkeypatch, Inline())
    caplog.set_level(logging.INFO, "netfold")
    assert elements(tmp_path, own_model) == [parameters(8)] * 2
    assert caplog.text == ""
    (tmp_path / "width.json").write_text("80")
    assert elements(tmp_path, own_model) == [parameters(80)] * 2
    assert re.search(
        r"2 points kept from \d{4}-\d\d-\d\d \d\d:\d\d run again, because what .*/mdl\.py reads may have "
        r"changed since; --trust-kept",
        caplog.text,
    )
    caplog.clear()
    (tmp_path / "width.json").write_text("800")
    assert elements(tmp_path, own_model, trusts_kept=True) == [parameters(80)] * 2
    assert "2 points kept from" in caplog.text
    assert "are taken, though what" in caplog.text


def test_a_sweep_that_stops_says_how_to_go_on(
    tmp_path: Path, own_model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopping(one: task.Task) -> Outcome:
        raise KeyboardInterrupt

    use_inline(monkeypatch, Inline())
    monkeypatch.setattr(make, "work", stopping)
    with pytest.raises(KeyboardInterrupt) as stop:
        elements(tmp_path, own_model)
    (note,) = stop.value.__notes__
    assert "the same command with --trust-kept (from Python: trust_kept=True) goes on" in note


def test_a_measured_device_is_that_of_a_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = TRAINED.format(model="mlp").replace("sweep: {workers: [2, 3]}\n", "")

    def digests(text: str) -> set[str]:
        return {one.digest for one in points("sweep: {workers: [2, 3]}\n", base=text)}

    measured = f"{plain}device: {{kind: measured}}\n"
    here, given = digests(measured), digests(plain)
    monkeypatch.setattr("platform.node", lambda: "elsewhere")
    assert not here & digests(measured)
    assert given == digests(plain)
