"""The comparison of codecs: it has every codec wherever it works, and learning rates that nobody chose."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from ruamel.yaml import YAML

from netfold.errors import ScenarioError
from netfold.homomorphic.codec import codec_kinds
from netfold.sim.scenario.load import load
from netfold.sim.scenario.resolve import resolve
from netfold.sim.scenario.yaml_tree import ScenarioText
from tests.generated import RATES, SWEEPS

PAPERS = RATES.parent
MAIN = PAPERS / "compression.yaml"
COMPARISONS = {"mlp": MAIN, "ncf": PAPERS / "compression-films.yaml"}
SHARED = ("topology", "workers", "workload", "device")


def read(file: Path) -> Any:
    return YAML(typ="safe").load(file)


def works(scenario: Any, codec: Any, place: Any) -> bool:
    """Whether netfold accepts a codec in a place of the comparison."""
    shared = {key: scenario[key] for key in SHARED}
    topology = shared["topology"] | place.get("topology", {})
    parts = {"topology": topology, "codec": codec["codec"], "collective": place["collective"]}
    text = json.dumps({"name": "pair", **shared, **parts}, indent=1)
    try:
        resolve(load(ScenarioText(f"{text}\n", "<pair>")))
    except ScenarioError:
        return False
    return True


def test_every_codec_is_compared_wherever_it_works() -> None:
    """On a ring, or else by gathering; at a server; in a Tofino, or else in an FPGA."""
    scenario = read(MAIN)
    codecs, places = scenario["x-codecs"], scenario["x-places"]
    missing = set(codec_kinds()) - {codec["codec"]["kind"] for codec in codecs.values()}
    assert not missing, (
        f"add {missing} to x-codecs and variants of compression.yaml, and to compression-rates.yaml; "
        "then `make generated RATES=yes`, and take the best rate"
    )

    expected = set()
    for name, codec in codecs.items():
        for alternatives in (("ring", "gather"), ("server",), ("switch", "fpga")):
            carriers = (place for place in alternatives if works(scenario, codec, places[place]))
            if place := next(carriers, ""):
                expected.add((name, place))

    assert {(codec, "switch" if place == "fpga" else place) for codec, place in expected} == {
        tuple(variant["name"].rsplit("-", 1)) for variant in scenario["variants"]
    }
    in_fpgas = {variant["name"] for variant in scenario["variants"] if variant.get("topology")}
    assert in_fpgas == {f"{codec}-switch" for codec, place in expected if place == "fpga"}


def quality(trial: dict[str, Any]) -> tuple[float, float, float]:
    """A higher score after the last step is better; then fewer steps to the target, then a lower rate."""
    return trial["test_score"], -(trial["steps_to_target"] or math.inf), -trial["learning_rate"]


def best_rates(model: str) -> dict[str, float]:
    best: dict[str, dict[str, Any]] = {}
    for trial in pl.read_csv(RATES).filter(pl.col("model") == model).iter_rows(named=True):
        best[trial["codec"]] = max(trial, best.get(trial["codec"], trial), key=quality)
    return {codec: trial["learning_rate"] for codec, trial in best.items()}


@pytest.mark.parametrize("model", COMPARISONS)
def test_rates_are_the_best_of_the_stored_trials(model: str) -> None:
    rates = best_rates(model)
    for variant in read(COMPARISONS[model])["variants"]:
        codec = variant["name"].rsplit("-", 1)[0]

        assert variant["workload"]["learning_rate"] == rates[codec], codec


@pytest.mark.parametrize("model", COMPARISONS)
def test_every_codec_has_the_same_trials(model: str) -> None:
    """Those of the sweep: of the same network, workload and options, from a seed that is not compared.

    The target of the comparison may follow from the trials.
    """
    sweep, scenario = read(SWEEPS[model]), read(COMPARISONS[model])
    for document in (sweep, scenario):
        del document["workload"]["evaluate"]["target"]
    (grid,) = sweep["sweep"].values()
    stored = pl.read_csv(RATES).filter(pl.col("model") == model)
    trials = stored.group_by("codec").agg(pl.col("learning_rate").sort())

    assert dict(trials.iter_rows()) == {variant["name"]: grid for variant in sweep["variants"]}
    assert {key: sweep[key] for key in SHARED} == {key: scenario[key] for key in SHARED}
    assert sweep["seed"] not in scenario["seeds"]
    options = {variant["name"]: variant.get("codec", sweep["codec"]) for variant in sweep["variants"]}
    for variant in scenario["variants"]:
        codec = variant["name"].rsplit("-", 1)[0]
        assert variant.get("codec", scenario["codec"]) == options[codec]
