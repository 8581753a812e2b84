"""Where a step's time goes, and that advice keeps its promises."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import netfold
from netfold.errors import NetfoldError
from netfold.sim.report.answer import QUESTIONS, SINCE_LAST_RANK
from netfold.sim.results.records import TimePart
from netfold.sim.scenario.load import load, scenario_of, sets_of
from netfold.sim.scenario.resolve import resolve
from netfold.sim.studies import explain
from netfold.sim.studies.explain import Explanation, Tried, parts_of
from netfold.sim.studies.remedies import REMEDIES, Price, Subject
from tests.command_line import run_command
from tests.examples import nightly
from tests.sim.studies.promises import DRAWN, all_promises, promise_of, summary_of

MS = 10**9
HELD: dict[str, Any] = {
    "name": "held",
    "topology": {"kind": "star", "hosts": 2, "rate": "100Gbps", "delay": "10us"},
    "workers": 2,
    "workload": {"kind": "synthetic", "elements": 20_000, "steps": 12},
    "codec": {"kind": "fixed_point"},
    "collective": {"kind": "in_network", "slots": 16},
}


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> netfold.Run:
    """A job that waits for slots: a round trip of 40 µs for 16 packets."""
    variants = [{"name": "few"}, {"name": "fewer", "collective": {"slots": 8}}]
    return netfold.run({**HELD, "variants": variants}, out=tmp_path_factory.mktemp("runs"))


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Try some remedies alone, for a fixed number of steps."""

    def choose(*names: str, steps: int = 2) -> None:
        kept = tuple(remedy for remedy in REMEDIES if remedy.name in names)
        assert len(kept) == len(names)
        monkeypatch.setattr(explain, "REMEDIES", kept)
        monkeypatch.setattr(explain, "STEPS_MAX", steps)

    return choose


def test_parts_add_up_to_the_step() -> None:
    """Of 10 ms, forward takes 2 and backward 3; buckets are aggregated from 4 to 6 and from 5 to 9 ms."""
    times = {"start_ps": 0, "forward_end_ps": 2 * MS, "backward_end_ps": 5 * MS, "end_ps": 10 * MS}
    steps = pl.DataFrame([{"step": 0, **times}])
    spans = [(4, 6), (5, 9)]
    rounds = pl.DataFrame([{"step": 0, "start_ps": a * MS, "end_ps": b * MS} for a, b in spans])
    bounds = [{"cause": "timer", "where": "", "stage": "", "time_us": 5000.0, "share": 1.0}]
    parts = parts_of({"metrics": {"iteration_time_us": 10_000.0}, "bounds": bounds}, steps, rounds)

    assert [(part.cause, part.stage, part.time_us, part.share) for part in parts] == [
        ("timer", "", 5000.0, 0.5),
        ("compute", "forward", 2000.0, 0.2),
        ("compute", "backward", 2000.0, 0.2),
        ("compute", "update", 1000.0, 0.1),
    ]
    assert explain.beside_us(steps, rounds) == 1000.0


def tried(remedy: str, change: str, time_us: float | None, nmse: float | None = 0.0, **more: Any) -> Tried:
    price = more.pop("price", Price.SETTING)
    return Tried(remedy, change, price, time_us, None if time_us is None else 1 - time_us / 100, nmse, **more)


def told(*rows: Tried, **more: Any) -> Explanation:
    parts = TimePart("compute", "", "forward", 99.7, 0.997), TimePart("latency", "", "", 0.3, 0.003)
    common = {"metric": "iteration_time_us", "time_us": 100.0, "steps": 2, "steps_count": 12, "seed": 3}
    names = {"sets": ("workers=2",), "prefix": "variants.few.", "question": "step_time", "beside_us": 0.0}
    return Explanation(Path("x"), "few", **{**common, **names, **more}, all_parts=parts, all_tried=rows)


def test_advice_in_words() -> None:
    """Of about equal changes the smaller; of lossy ones those that save more than all less lossy ones."""
    explanation = told(
        tried("slots", "slots=4", 80.0),
        tried("slots", "slots=8", 79.5),
        tried("rate", "rate=2", 50.0, price=Price.HARDWARE),
        tried("codec", "a", 70.0, 1e-3, price=Price.SUMS),
        tried("codec", "b", 75.0, 1e-2, price=Price.SUMS),
        tried("codec", "c", 60.0, None, price=Price.SUMS),
        tried("frame", "frame=x", None, None, reason="no such frame"),
        tried("chunk", "chunk=x", 99.5),
    )

    assert [row.change for row in explanation.advised] == ["slots=4", "rate=2", "c", "a"]
    assert explanation.lines() == [
        "few: a step takes 100 µs. Of that:",
        "  100 % (99.7 µs): 'forward', while nothing is aggregated",
        "  less than 1 %: 1 smaller part",
        "What would shorten it, each change simulated for 2 steps of 12:",
        "1. slots=4: step 100 µs → 80.0 µs (−20 %): slots",
        "   netfold run x/scenario.yaml --variant few --set workers=2 --set variants.few.slots=4 --seed 3",
        "2. rate=2: step 100 µs → 50.0 µs (−50 %): rate (needs other hardware)",
        "   netfold run x/scenario.yaml --variant few --set workers=2 --set variants.few.rate=2 --seed 3",
        "3. c: step 100 µs → 60.0 µs (−40 %): codec (changes the sums, NMSE not finite)",
        "   netfold run x/scenario.yaml --variant few --set workers=2 --set variants.few.c --seed 3",
        "4. a: step 100 µs → 70.0 µs (−30 %): codec (changes the sums, NMSE 1.00e-03)",
        "   netfold run x/scenario.yaml --variant few --set workers=2 --set variants.few.a --seed 3",
        "Settings come first, then what needs other hardware, then what changes the sums.",
        "3 other changes would save less, or cost time.",
        "1 change cannot be made; -v says why.",
    ]
    assert told(tried("slots", "slots=4", 99.5), device_notes=("times vary",)).lines()[3:] == [
        "Nothing found that shortens it by 2 %: 1 change simulated for 2 steps.",
        "1 other change would save less, or cost time.",
        "Note: times vary.",
    ]


def test_what_waits_for_slots_gets_slots(
    held: netfold.Run, tmp_path: Path, only: Callable[..., None]
) -> None:
    """The command that is printed saves what it promises, on 12 steps, of which 2 are simulated."""
    only("more packets in flight")
    promise = promise_of(held, tmp_path)

    assert promise.change == "collective.slots=64"
    assert promise.promised == pytest.approx(0.5, abs=0.1)  # 79 packets in 2 round trips instead of 5
    assert promise.error < 0.05


def test_rates_come_after_settings_and_codecs_that_change_the_sums_after_rates(
    held: netfold.Run, only: Callable[..., None]
) -> None:
    only(
        "another codec",
        "twice the rate of the links that are the bottleneck",
        "more packets in flight",
        steps=1,
    )
    run = netfold.run({**HELD, "collective": {"kind": "in_network"}}, out=held.path.parent)
    explanation = netfold.explain(run)

    prices = explanation.advice["price"].to_list()
    assert prices == sorted(prices, key=list(Price).index)
    assert set(prices) >= {Price.SUMS, Price.HARDWARE}
    faster = explanation.advice.filter(pl.col("price") == Price.HARDWARE)["change"].to_list()
    assert faster == ["topology.rate=200Gbps and topology.switch=tofino2"]
    assert explanation.parts["share"].sum() == pytest.approx(1.0)
    refused = explanation.tried.filter(pl.col("change") == "codec={kind: none}")["reason"].item()
    assert refused.startswith("switch profile 'tofino1' cannot merge words by float_add")


LEAVES = {
    "kind": "leaf_spine",
    "leaves": 2,
    "hosts_per_leaf": 4,
    "spines": 2,
    "rate": "25Gbps",
    "switch": "tofino1",
}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"collective": {"kind": "in_network", "slots": 16, "timeout": "1ms"}},
            {
                "collective.slots": [8, 4, 32, 64],
                "collective.timeout": ["500us", "250us", "auto"],
                "workers.placement": ["spread", "random", "rails"],
                "topology.switch": ["tofino2"],
                "topology.rate": ["50Gbps"],
            },
        ),
        (
            {"collective": {"kind": "ring", "chunk": "64KiB"}, "codec": {"kind": "none"}},
            {"collective.chunk": ["16KiB", "4KiB", "256KiB"], "collective.channels": [2, 4]},
        ),
        (
            {
                "collective": {"kind": "tree"},
                "device": {"kind": "roofline", "name": "v100"},
                "workload": {"kind": "training", "model": "mlp"},
            },
            {"device.name": ["a100", "h100"], "overlap.buckets_in_flight": [4, 16]},
        ),
        (
            {
                "collective": {"kind": "parameter_server", "servers": 1},
                "hosts": {"cores": 2, "per_packet_receive": "100ns"},
                "device": {
                    "kind": "fixed",
                    "forward": "2ms",
                    "backward": "4ms",
                    "slow": [{"worker": 1, "factor": 2}],
                },
            },
            {"hosts.cores": [4, 8], "device.forward": ["1ms"], "device.slow": [[]]},
        ),
    ],
)
def test_changes_are_values_of_keys_that_the_scenario_has(
    changes: dict[str, Any], expected: dict[str, list[Any]]
) -> None:
    """Each is one that the loader takes, or refuses for what the job needs; these are among them."""
    scenario = {**HELD, "topology": LEAVES, "workers": 4, **changes}
    plan = resolve(load(scenario_of(scenario)))
    written, job, network = plan.scenario.variants[0], plan.variants[0].jobs[0], plan.variants[0].network
    link = network.link_names[0]
    subject = Subject(
        written, written.topology, written.routing, job, network, [{"cause": "link", "where": link}]
    )

    offered: dict[str, list[Any]] = {}
    for patch in (patch for remedy in REMEDIES for patch in remedy.changes(subject)):
        for path, value in patch.items():
            offered.setdefault(path, []).append(value)
        with contextlib.suppress(NetfoldError):
            resolve(load(scenario_of(scenario), sets_of(patch)))

    assert {
        path: [value for value in values if value not in offered[path]] for path, values in expected.items()
    } == {path: [] for path in expected}


def test_every_question_is_about_a_time() -> None:
    for question in (*QUESTIONS.values(), SINCE_LAST_RANK):
        assert explain.MEASURED.get(question.metric, question.metric) in explain.SUBJECTS


def test_the_command_line(held: netfold.Run, only: Callable[..., None]) -> None:
    only("fewer packets in flight, which lose less")
    printed = run_command("explain", held.path, "fewer")
    printed_object = json.loads(run_command("explain", held.path, "--json").stdout)

    assert printed.stdout.startswith("fewer: a step takes ")
    assert "Nothing found that shortens it by 2 %: 0 changes simulated for 2 steps.\n" in printed.stdout
    assert (printed_object["variant"], printed_object["advice"], printed_object["of_steps"]) == (
        "few",
        [],
        12,
    )
    wrong = run_command("explain", held.path, "fw")
    assert wrong.exit_code == 2
    assert "there is no variant 'fw'\n  " in wrong.stderr


@nightly
def test_first_advice_keeps_its_promise() -> None:
    """On all scenarios that come with netfold, and on those that the soak draws."""
    promises = list(all_promises(7, DRAWN))
    median, ninetieth, nothing, losses = summary_of(promises)

    assert median <= 0.1, promises
    assert ninetieth <= 0.25, promises
    assert nothing <= 0.3, promises
    assert losses == []
