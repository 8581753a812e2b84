"""Compiling ahead."""

from __future__ import annotations

import json
from typing import Any

import pytest

from netfold.errors import NetfoldError
from netfold.homomorphic.codec import codec_kinds
from netfold.sim.collectives.collective import collectives
from netfold.sim.studies import warm as module
from netfold.sim.studies.warm import warm
from netfold.switch.program import runnable
from tests.command_line import run_command


def test_every_codec_collective_and_program_runs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A codec goes on to the next collective until one carries it."""
    tried: list[dict[str, Any]] = []

    def run(text: Any) -> None:
        scenario = json.loads(text.text)
        tried.append(scenario)
        if scenario["codec"]["kind"] == "topk" and scenario["collective"]["kind"] != "all_gather":
            raise NetfoldError("it cannot")

    monkeypatch.setattr(module, "summary_of_scenario", run)

    runs = warm(lambda *_: None)

    assert runs == len(runnable()) + len(collectives()) + len(codec_kinds())
    assert tried[-1]["codec"]["kind"] == "topk"
    assert tried[-1]["collective"]["kind"] == "all_gather"
    assert {each["codec"]["kind"] for each in tried} == set(codec_kinds())
    told = run_command("warm").stdout
    assert told == f"compiled what every codec, collective and switch program needs, by {runs} small runs\n"
