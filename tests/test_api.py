"""What a person does in a notebook, with mistakes."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import polars as pl
import pytest

import netfold
import netfold.testing
import netfold.torch
from netfold.errors import NetfoldError
from netfold.homomorphic.codec import OPTION_MAX, CodecRefusedError, ContractError
from netfold.homomorphic.codec_driver import CodecError, WorkerEncoder
from netfold.homomorphic.codecs.bird_rows import DigitLanes
from netfold.sim.studies.codec_study import run_study
from netfold.sim.studies.codec_study_inputs import read_codec, read_codecs, synthetic_source
from netfold.torch.wire import check_codec as check_for_hooks
from tests.command_line import run_command
from tests.test_house import sources

SCENARIO: dict[str, Any] = {
    "name": "mine",
    "topology": {"kind": "star", "hosts": 4, "rate": "25Gbps"},
    "workers": 4,
    "workload": {"kind": "synthetic", "elements": 20_000, "density": "1%"},
    "codec": {"kind": "fixed_point"},
    "collective": {"kind": "in_network"},
    "variants": [{"name": "dense"}, {"name": "sparse", "codec": {"kind": "packed"}}],
}
TEXT = """\
name: mine
topology: {kind: star, hosts: 4, rate: 25Gbps}
workers: 4
workload: {kind: synthetic, elements: 20000, density: 1%}
codec: {kind: fixed_point}
collective: {kind: in_network}
variants:
  - {name: dense}
  - {name: sparse, codec: {kind: packed}}
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> netfold.Run:
    return netfold.run(SCENARIO, out=tmp_path_factory.mktemp("runs"))


def test_every_name_is_there() -> None:
    for name in netfold.__all__:
        assert getattr(netfold, name).__doc__, name
    with pytest.raises(AttributeError, match=r"^module 'netfold' has no attribute 'runn'$"):
        netfold.runn  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize(
    ("name", "now"), [("Matrixed", "MatrixResult"), ("Studied", "CodecStudy"), ("Swept", "SweepResult")]
)
def test_an_old_name_tells_the_new_one(name: str, now: str) -> None:
    with pytest.raises(AttributeError, match=f"has no attribute '{name}': it is netfold.{now} now"):
        getattr(netfold, name)


@pytest.mark.parametrize("module", [netfold, netfold.testing, netfold.topology, netfold.torch])
def test_public_functions_take_three_arguments_by_position(module: ModuleType) -> None:
    functions = [value for name in module.__all__ if inspect.isfunction(value := getattr(module, name))]
    assert functions
    for function in functions:
        parameters = inspect.signature(function).parameters.values()
        assert sum(each.kind is not each.KEYWORD_ONLY for each in parameters) <= 3, function


def test_a_run_has_its_results_as_tables(run: netfold.Run) -> None:
    assert (run.name, run.seed, run.verdict) == ("mine", 1, "pass")
    assert run.variants["name"].to_list() == ["dense", "sparse"]
    assert run.variants["compression_ratio"][1] > 2 * run.variants["compression_ratio"][0]
    assert run.checks.filter(pl.col("name") == "sum_is_right")["verdict"].to_list() == ["pass", "pass"]
    for table in (run.steps, run.rounds, run.phases, run.links):
        assert set(table["variant"]) == {"dense", "sparse"}
    assert run.notes.is_empty()
    assert run.faults.is_empty()


def test_a_run_has_figures_as_objects(run: netfold.Run) -> None:
    figure = run.figure()

    assert figure == run.figure("bounds")  # which answers how long a step takes
    assert figure != run.figure("throughput")
    assert figure._repr_svg_().startswith("<?xml")
    assert str(figure) == f"<SVG of {len(figure)} bytes>"
    assert not (run.path / "figures").exists()
    with pytest.raises(
        NetfoldError, match=r"no figure 'bound'\n  allowed: grid, sizes, cost, accuracy, throughput, bounds, "
    ):
        run.figure("bound")
    with pytest.raises(NetfoldError, match="figure 'grid' has nothing to show of it"):
        run.figure("grid")


def test_a_run_has_how_busy_its_links_were(run: netfold.Run) -> None:
    """Shares of stretches of time, which add up to the time that a link was busy."""
    series = run.link_series("dense")
    names = [name for name in series.columns if not name.endswith("_ps")]

    assert len(names) == 3
    for name in names:
        assert 0 < series[name].max() <= 1
        busy_ps = (series[name] * (series["end_ps"] - series["start_ps"])).sum()
        assert busy_ps == pytest.approx(run.links.filter(variant="dense", link=name)["busy_ps"][0], rel=1e-3)
    with pytest.raises(NetfoldError, match="variant: the run has 2, name one of them"):
        run.link_series()


def test_a_run_is_the_same_however_it_is_given(run: netfold.Run, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(TEXT)
    told: list[tuple[str, float, float]] = []
    again = netfold.run(file, out=tmp_path, progress=lambda *what: told.append(what))

    assert again.variants.equals(run.variants)
    assert again.summary["chosen"] == []  # all
    assert again.links.equals(run.links)
    assert told[-1] == ("writing the results", 2, 2)
    assert (again.path / "scenario.yaml").read_text() == TEXT
    assert list(netfold.validate(TEXT)) == list(netfold.validate(str(file))) == ["dense", "sparse"]


def test_values_seed_and_variants_can_be_chosen(tmp_path: Path) -> None:
    changes = {
        "topology.rate": "10Gbps",
        "workload.elements": np.int64(1000),
        "faults": [{"kind": "loss", "rate": "1%"}],
        "description": "yes",
    }
    run = netfold.run(SCENARIO, set=changes, seed=5, variants=["sparse"], out=tmp_path)
    setup = run.summary["variants"][0]["setup"]

    assert (run.seed, run.variants["name"].to_list()) == (5, ["sparse"])
    assert run.summary["chosen"] == ["sparse"]
    assert (setup["topology"]["rate"], setup["workload"]["elements"]) == ("10Gbps", 1000)
    assert run.faults["kind"].to_list() == ["loss"]
    assert run.summary["sets"][0] == "topology.rate=10Gbps"  # as with --set
    assert run.summary["sets"][3] == "description=yes"


def test_a_codec_a_model_and_gradients_can_be_objects(tmp_path: Path) -> None:
    """The same results as with their names in the scenario."""
    rows = np.arange(12, dtype=np.float32).reshape(2, 6)
    base = {
        "name": "objects",
        "topology": {"kind": "star", "hosts": 2, "rate": "25Gbps"},
        "workers": 2,
        "codec": {"kind": "none"},
        "workload": {"kind": "synthetic", "elements": 6},
        "collective": {"kind": "ring"},
    }
    codec = read_codec("topk:share=0.5").codec
    base["collective"] = {"kind": "all_gather"}

    given = netfold.run(base, codec=codec, gradients=rows, out=tmp_path)
    array_file = tmp_path / "rows.npy"
    np.save(array_file, rows)
    named = netfold.run(
        base,
        set={"codec": {"kind": "topk", "share": 0.5}, "workload": {"kind": "file", "path": array_file}},
        out=tmp_path,
    )

    assert given.rounds.equals(named.rounds)
    (kept,) = (tmp_path / "inputs").iterdir()
    assert np.array_equal(np.load(kept), rows)
    with pytest.raises(NetfoldError, match="gradients: the array has 1 dimensions"):
        netfold.run(base, gradients=rows[0], out=tmp_path)
    with pytest.raises(NetfoldError, match=r"model: .*<lambda> cannot be found in a file"):
        netfold.run(base, model=lambda: None, out=tmp_path)
    fault = {"kind": "slow_host", "job": "k", "worker": 0, "factor": 2}
    jobs = {"workers": 1, "topology.hosts": 10, "jobs": [{"name": f"j{at}"} for at in range(10)]}
    with pytest.raises(NetfoldError, match=r"jobs: j0, j1, j2, j3, j4, j5, j6, j7$"):  # of hundreds, 8
        netfold.run(base, set={**jobs, "faults": [fault]}, out=tmp_path)


def test_a_run_is_loaded_and_compared(run: netfold.Run, tmp_path: Path) -> None:
    slow = netfold.run(SCENARIO, set={"topology.rate": "10Gbps"}, out=tmp_path)
    loaded = netfold.load(run.path)
    comparison = netfold.compare(slow, str(loaded.path), baseline=loaded)

    assert loaded.variants.equals(run.variants)
    shares = loaded.bounds.select("variant", "share").group_by("variant").sum()["share"].to_list()
    assert shares == pytest.approx([1, 1])
    assert comparison.frame["variant"].to_list() == ["dense", "sparse"] * 2
    assert comparison.frame["aggregation_elements_per_s_ratio"].to_list()[2:] == [1, 1]
    assert (
        0.1 < comparison.frame["aggregation_elements_per_s_ratio"][0] < 1
    )  # a tenth of the rate, and latency
    assert str(comparison).count("  (baseline)") == 1
    assert repr(comparison) == str(comparison)
    assert comparison._repr_html_().startswith("<pre")


def test_validating_tells_settings_with_what_defaults_came_to() -> None:
    found = netfold.validate(SCENARIO, set={"variants.sparse.topology.rate": "50Gbps"})

    assert found["dense"]["topology"]["rate"] == "25Gbps"
    assert found["sparse"]["topology"]["rate"] == "50Gbps"
    assert found["sparse"]["collective"]["switch"] == "s0"


def test_codecs_are_studied_on_gradients(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    gradients = np.where(random.random((3, 500)) < 0.1, random.standard_normal((3, 500)), 0)
    array = gradients.astype(np.float32)
    np.save(tmp_path / "g.npy", array)

    made_up = netfold.study("packed", elements=500, density=["1%", 0.1], pattern=("iid", "rows"), workers=2)
    given = netfold.study({"p": netfold.codecs()["packed"](index="bloom")}, array, rounds=1)
    read = netfold.study(["packed"], tmp_path / "g.npy", out=tmp_path)

    assert made_up.codecs["density"].to_list() == [0.01, 0.1, 0.01, 0.1]
    assert made_up.path is None
    assert made_up.faults == given.faults == ()
    assert given.codecs["codec"].to_list() == ["p"]
    assert "values" in given.messages["label"].to_list()
    assert given.speeds.height == 1
    assert read.path is not None
    assert (read.path / "study.json").is_file()
    assert repr(read) == "<netfold study of packed: 0 faults>"
    assert "packed" in str(read)


def test_one_round_is_folded() -> None:
    folded = netfold.fold("packed:index=two_level", [[0, 0.5, 0, -2], [0, 1.5, 0, 0]])

    assert [one.tolist() for one in folded.decoded] == [[0, 2, 0, -2]] * 2
    assert folded.announced_bytes(0) > 0


MISTAKES: dict[str, tuple[str, Any]] = {
    "nope.yaml: cannot be read: there is no such file": ("ScenarioError", lambda: netfold.run("nope.yaml")),
    "<text>:2: topology.rat: unknown key 'rat'\n  did you mean 'rate'?": (
        "ScenarioError",
        lambda: netfold.run(TEXT.replace("rate:", "rat:")),
    ),
    "cannot read a scenario from int\n  give the path": ("NetfoldError", lambda: netfold.validate(7)),  # type: ignore[arg-type]
    "scenario: cannot write set into a scenario": ("NetfoldError", lambda: netfold.validate({"name": {1}})),
    "--set: topology.rate: cannot read 25 as a rate": (
        "ScenarioError",
        lambda: netfold.validate(TEXT, set={"topology.rate": 25}),
    ),
    "no codec to study\n  name one or more": ("NetfoldError", lambda: netfold.study([])),
    "elements: gradients are given\n  leave out elements, or the gradients": (
        "NetfoldError",
        lambda: netfold.study("none", np.ones((2, 3), np.float32), elements=8),
    ),
    "the gradients are no numbers: ": ("DataError", lambda: netfold.fold("none", [["a"]])),
    "did you mean 'sparse'?": ("NetfoldError", lambda: netfold.run(SCENARIO, variants=["spars"])),
    "no run to compare": ("DataError", netfold.compare),
    "convert it with array.astype(numpy.float32)": (
        "DataError",
        lambda: netfold.study(["none"], np.ones((2, 3))),  # type: ignore[arg-type]
    ),
    "the gradients have the shapes (2,), (1,)": ("DataError", lambda: netfold.fold("none", [[1, 2], [3]])),
}


@pytest.mark.parametrize("words", MISTAKES)
def test_mistakes_are_told(words: str) -> None:
    error, wrong = MISTAKES[words]
    with pytest.raises(getattr(netfold, error)) as caught:
        wrong()

    assert isinstance(caught.value, netfold.NetfoldError)
    assert words in str(caught.value)


def test_what_stops_a_run_says_where_the_rest_is(tmp_path: Path) -> None:
    def stop(what: str, done: float, total: float) -> None:
        if what.startswith("sparse"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        netfold.run(SCENARIO, out=tmp_path, progress=stop)

    (note,) = caught.value.__notes__
    assert "Unfinished: sparse did not run to the end." in note
    assert "Finished variants are in " in note


WORKERS = 33
GRADIENTS = np.random.default_rng(1).standard_normal((WORKERS, 64)).astype(np.float32)
BEYOND = f"fixed_point:block_elements={2**64}"
REFUSED = {
    "majority": ("majority has room for 15 workers, found 33", "at most 15 workers, or another codec"),
    "bird_shared:lanes=4": ("bird_shared has room for 7 workers, found 33", "lanes: 32"),
    BEYOND: (f"block_elements is {2**64}: must be at most {OPTION_MAX}", f"{OPTION_MAX} or less"),
}


def scenario(codec: str) -> dict[str, Any]:
    kind, _, option = codec.partition(":")
    key, _, value = option.partition("=")
    return {
        "name": "gate",
        "topology": {"kind": "star", "hosts": WORKERS},
        "workers": WORKERS,
        "workload": {"kind": "synthetic", "elements": 1000, "density": "10%", "steps": 1},
        "codec": {"kind": kind, **({key: int(value)} if key else {})},
        "collective": {"kind": "ring"},
    }


def command(*arguments: str) -> None:
    """A command, whose errors are raised as the command line would print them."""
    found = run_command(*arguments)
    if isinstance(found.exception, NetfoldError):
        raise found.exception
    raise NetfoldError(found.output, "")


def cell_of(found: netfold.MatrixResult) -> None:
    """What the matrix says of its only codec."""
    assert set(found.cells["verdict"]) == {"refused"}
    raise NetfoldError(found.cells["reason"][0], found.cells["hint"][0])


ENTRIES: dict[str, Callable[[str], object]] = {
    "fold": lambda codec: netfold.fold(codec, GRADIENTS),
    "study": lambda codec: netfold.study([codec], workers=WORKERS, elements=1000),
    "codecs study": lambda codec: command(
        "codecs", "study", codec, "--workers", str(WORKERS), "--elements", "1000"
    ),
    "calibrate": lambda codec: run_study(
        read_codecs([codec]), synthetic_source({"elements": "1000"}, WORKERS, 1), 1, 1, lambda *_: None
    ),
    "validate": lambda codec: netfold.validate(scenario(codec)),
    "run": lambda codec: netfold.run(scenario(codec)),
    "matrix": lambda codec: cell_of(netfold.matrix([codec], collectives=["ring"], workers=WORKERS)),
    "simulation": lambda codec: WorkerEncoder(read_codec(codec).codec, 0, WORKERS, 1),
    "hook": lambda codec: check_for_hooks(read_codec(codec).codec, WORKERS, False),
    "check_round": lambda codec: netfold.testing.check_round(read_codec(codec).codec, list(GRADIENTS)),
}


@pytest.mark.parametrize("codec", REFUSED)
@pytest.mark.parametrize("entry", ENTRIES)
def test_every_entry_refuses_in_words(entry: str, codec: str) -> None:
    with pytest.raises((NetfoldError, CodecError, CodecRefusedError)) as refused:
        ENTRIES[entry](codec)

    reason, remedy = REFUSED[codec]
    text = " ".join(str(refused.value).split())
    assert reason in text
    assert remedy in text


def test_a_codec_is_checked_with_the_workers_it_has_room_for() -> None:
    netfold.testing.check_codec(read_codec("majority").codec, cases=5)
    netfold.testing.check_codec(read_codec("bird_shared:lanes=4").codec, cases=5)


def test_digits_of_too_many_workers_end() -> None:
    with pytest.raises(ValueError, match="lanes of 4 bits have room for digits of 15 workers, found 16"):
        DigitLanes.of(24, 4, 16)
    assert DigitLanes.of(24, 4, 15).count == 24  # a bit each


def test_only_the_gate_asks_codecs_and_makes_their_encoders() -> None:
    """Codecs that are made of others know their workers already."""
    found = [
        (path.name, ast.unparse(node))
        for path in sources()
        if "codecs" not in path.parts and path.name != "codec.py"
        if re.search(r"\.(worker|refusal)\(", text := path.read_text("utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("worker", "refusal")
        and ast.unparse(node.func.value).endswith("codec")
    ]

    assert found == []


def test_fold_says_what_a_codec_s_contract_misses(monkeypatch: pytest.MonkeyPatch) -> None:
    codec = read_codec("none").codec
    monkeypatch.setattr(type(codec), "worker", lambda self, *rest: Unfit())

    with pytest.raises(
        netfold.RunError, match="codec 'none': the exchange yields 7, must be a tuple"
    ) as error:
        netfold.fold(codec, [[1.0]])
    assert isinstance(error.value.__cause__, ContractError)


class Unfit:
    def exchange(self, gradient: object, round: object) -> Any:
        yield 7
