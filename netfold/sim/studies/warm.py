"""Compile kernels ahead: tiny runs of everything that is registered leave their compiled code."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from netfold.errors import NetfoldError
from netfold.homomorphic.codec import codec_kinds
from netfold.sim.collectives.collective import collectives
from netfold.sim.run.compiling import compiling
from netfold.sim.run.progress import Progress
from netfold.sim.run.run import summary_of_scenario
from netfold.sim.scenario.yaml_tree import ScenarioText
from netfold.switch.program import names_of

_SCENARIO: dict[str, Any] = {
    "name": "warm",
    "topology": {"kind": "star", "hosts": 6, "switch": "ideal"},
    "workers": 4,
    "workload": {"kind": "synthetic", "elements": 5000, "density": "5%"},
}
_TRAINING = {"kind": "training", "model": "mlp", "data": "digits", "batch": 8}
_REQUIRED: dict[str, dict[str, Any]] = {
    "timed": {"slot_timer": "1ms"},
    "hierarchical": {"group_size": 2, "inner": {"kind": "ring"}, "outer": {"kind": "ring"}},
}


def warm(progress: Progress) -> int:
    """Run every codec, collective and switch program once; returns how many runs there were.

    A codec takes the first collective that can carry it. What a model of your own computes is not compiled.
    """
    runs = 0
    with compiling(progress):
        for label, choices in _combinations():
            progress(label, runs, runs + 1)
            for sections in choices:
                try:
                    summary_of_scenario(ScenarioText(json.dumps(_SCENARIO | sections), label))
                except NetfoldError:
                    continue  # the next collective may carry this codec
                runs += 1
                break
    return runs


def _combinations() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    every = [{"kind": kind, **_REQUIRED.get(kind, {})} for kind in collectives()]
    codecs = [{"kind": kind} for kind in codec_kinds()]
    programs = [{"kind": "in_network", "program": name, **_REQUIRED.get(name, {})} for name in names_of(bool)]
    for program in programs:
        fixed = {"kind": "fixed_point", "factor": 1e6}
        yield program["program"], [{"codec": codec, "collective": program} for codec in [*codecs, fixed]]
    for collective in every:
        yield collective["kind"], [{"codec": {"kind": "none"}, "collective": collective}]
    for codec in codecs:
        choices = [{"codec": codec, "collective": collective} for collective in every]
        yield codec["kind"], [*choices, *(choice | {"workload": _TRAINING} for choice in choices)]
