"""The command line: exit statuses, what goes where, and that help is quick."""

from __future__ import annotations

import hashlib
import json
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from typer.testing import Result

import netfold.commands.main
import netfold.sim.report.compare
import netfold.sim.report.html_report
import netfold.sim.run.run
import netfold.sim.workload.data_sets
from netfold.commands.listings import fit_table, profile_table, profiles_table
from netfold.errors import DataError, InvariantError, ScenarioError
from netfold.kinds import registered
from netfold.sim.run.variant import Outcome
from netfold.sim.studies.codec_study_inputs import read_model, wanted_densities
from netfold.sim.workload.models.registry import facts_of, model_kinds
from netfold.switch.fit import FitError, fit
from netfold.switch.profiles import PROFILES
from netfold.switch.program import programs
from netfold.topologies.ecmp import flow_key_plain
from netfold.topologies.kind import Topology
from netfold.topologies.kinds.leaf_spine import leaf_spine
from netfold.topologies.network import compile_network, path
from netfold.topologies.topology_files import from_json
from tests.command_line import run_command
from tests.sim.results.builders import RING, summary
from tests.sim.results.builders import printed as shown
from tests.sim.scenario.files import GOOD, changed, write
from tests.sim.scenes import LINK


def run_words(line: str) -> Result:
    return run_command(*line.split())


def outcome(verdict: str) -> Outcome:
    """What `run_scenario` returns, with one variant, whose first check may fail."""
    found = {"baseline": None, "warnings": [], "injected": [], **summary(replace(RING, verdict=verdict))}
    return Outcome("quick", 7, Path("runs/quick/now"), {**found, "verdict": verdict}, {"packet_hops": 0})


@pytest.fixture
def run_returns(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], list[tuple[Any, ...]]]:
    """Replace the simulation by a result or an error, and record what it was called with."""

    def returns(result: Any) -> list[tuple[Any, ...]]:
        calls: list[tuple[Any, ...]] = []

        def run_scenario(*arguments: Any) -> Any:
            file, sets, seed, out, _, variants, _ = arguments
            calls.append((file, sets, seed, out, variants))
            if isinstance(result, BaseException):
                raise result
            return result

        monkeypatch.setattr(netfold.sim.run.run, "run_scenario", run_scenario)
        monkeypatch.setattr(netfold.commands.main, "_read_scenario", lambda file, *others: file)
        monkeypatch.setattr(
            netfold.sim.report.html_report, "build_report", lambda folder: folder / "report.html"
        )
        return calls

    return returns


Replace = Callable[[Any], list[tuple[Any, ...]]]


def test_run_passes_its_options_on_and_prints_the_table(run_returns: Replace) -> None:
    calls = run_returns(outcome("pass"))

    result = run_command(
        *("run", "a.yaml", "--set", "workers=2", "--set", "name=b", "--seed", "3", "--out", "there"),
        *("--variant", "slow", "--variant", "fast", "-v"),
    )

    assert result.exit_code == 0
    assert calls == [(Path("a.yaml"), ("workers=2", "name=b"), 3, Path("there"), ("slow", "fast"))]
    assert "ring" in result.stdout
    assert f"Not modelled:\n  {netfold.sim.run.run.APPROXIMATIONS[0]}\n" in result.stdout
    assert result.stdout.endswith("\nReport: runs/quick/now/report.html\n")
    assert result.stderr == "writing the report\n"


def test_quiet_prints_the_answer_and_a_misspelt_column_is_told_before_the_run(run_returns: Replace) -> None:
    calls = run_returns(outcome("pass"))

    quiet = run_command("run", "a.yaml", "--quiet")
    wrong = run_command("run", "a.yaml", "--columns", "steps,nsme")

    assert quiet.stdout == "verdict: pass; results: runs/quick/now\n"
    assert (wrong.exit_code, len(calls)) == (2, 1)
    assert wrong.stderr.startswith("--columns: there is no metric 'nsme'\n  did you mean 'nmse'?")


def test_run_with_json_prints_one_object(run_returns: Replace) -> None:
    calls = run_returns(outcome("pass"))

    result = run_command("run", "a.yaml", "--json")

    assert calls == [(Path("a.yaml"), (), None, Path("runs"), ())]
    assert outcome("pass").as_dict() == json.loads(result.stdout)


def test_a_failed_check_is_shown_and_exits_with_1(run_returns: Replace) -> None:
    run_returns(outcome("fail"))

    result = run_command("run", "a.yaml")

    assert result.exit_code == 1
    assert "ring: sum_is_right: fail: round 3: element 17 is 5, should be 4\n" in result.stdout
    assert run_command("run", "a.yaml", "--json").exit_code == 1


@pytest.mark.parametrize(
    ("error", "status", "told"),
    [
        (ScenarioError("a.yaml", 3, "x", "wrong", "right"), 2, "a.yaml:3: x: wrong\n  right\n"),
        (DataError("no data", "fetch it"), 2, "no data\n  fetch it\n"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
    ],
)
def test_errors_are_told_on_stderr_without_a_traceback(
    run_returns: Replace, error: BaseException, status: int, told: str
) -> None:
    run_returns(error)

    result = run_command("run", "a.yaml", "--json")

    assert (status, "", told) == (result.exit_code, result.stdout, result.stderr)


def test_a_broken_invariant_says_how_to_reproduce_it(run_returns: Replace, tmp_path: Path) -> None:
    run_returns(InvariantError("bytes vanished"))
    path = write(tmp_path, GOOD)

    words = ("--set", "faults=[]", "--seed", "3", "--variant", "a b", "--variant", "c")
    result = run_command("run", path, *words)

    sha256 = hashlib.sha256(GOOD.encode()).hexdigest()
    assert result.exit_code == 3
    assert result.stderr.startswith("bytes vanished\n  a bug; to reproduce: ")
    command = f"netfold run {path} --set 'faults=[]' --seed 3 --variant 'a b' --variant c   # netfold "
    assert command in result.stderr
    assert result.stderr.endswith(f", scenario sha256 {sha256}\n")


def test_what_nobody_foresaw_exits_as_a_bug(
    run_returns: Replace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_returns(ZeroDivisionError("oh"))
    monkeypatch.setattr(sys, "argv", ["netfold", "run", "a.yaml"])

    with pytest.raises(SystemExit) as caught:
        netfold.commands.main.main()

    assert caught.value.code == 3
    assert "ZeroDivisionError: oh" in capsys.readouterr().err


def test_validate_goes_through_all_files(tmp_path: Path) -> None:
    good = write(tmp_path, GOOD)
    bad = tmp_path / "bad.yaml"
    bad.write_text(changed("hosts: 8", "hosts: 0"))

    result = run_command("validate", bad, good)

    assert result.exit_code == 2
    assert result.stdout == f"{good}: fine, variants: switch, ring\n"
    assert result.stderr == (
        f"{bad}:5: topology.hosts: must be at least 1, found 0\n  hosts: Number of hosts: h0, h1, …\n"
    )
    assert run_command("validate", good).exit_code == 0


@pytest.mark.parametrize(
    "arguments", [["bogus"], ["run"], ["run", "a", "--seed", "-1"], ["run", "a", "--sed", "1"]]
)
def test_bad_usage_exits_with_2(arguments: list[str]) -> None:
    result = run_command(*arguments)

    assert (result.exit_code, result.stdout) == (2, "")
    assert "Usage: " in result.stderr


def test_data_sets_are_listed_and_fetched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NETFOLD_CACHE", str(tmp_path))
    monkeypatch.setattr(netfold.sim.workload.data_sets, "fetch", lambda name: tmp_path / name)

    assert "  file: not fetched yet\n" in run_command("data", "list").stdout
    assert run_command("data", "fetch", "digits").stdout == f"{tmp_path / 'digits'}\n"


def test_compare_and_report_say_what_is_no_run(tmp_path: Path) -> None:
    for arguments in (["compare", tmp_path], ["compare", tmp_path, "--json"], ["report", tmp_path]):
        result = run_command(*arguments)

        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr.startswith(f"{tmp_path}: not a run folder")


def printed(*words: str) -> str:
    result = run_command("models", *words)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_list_has_every_model() -> None:
    lines = printed("list").splitlines()
    listed = json.loads(printed("list", "--json"))["models"]

    assert [one["kind"] for one in listed] == list(model_kinds())
    for kind, one in zip(model_kinds(), listed, strict=True):
        (line,) = [line for line in lines if line.startswith(f"│ {kind} ")]
        assert f"{one['parameters']:,}" in line
        assert all(data.name in line for data in facts_of(kind).data)


def test_show_has_options_data_and_layers() -> None:
    text = printed("show", "mlp_784:hidden=[256,128]")
    layers = json.loads(printed("show", "mlp_784:hidden=[256,128]", "--json"))["layers"]

    assert "parameters: 235,146" in text
    assert "option hidden=[512]: Sizes of its hidden layers." in text
    assert [(one["name"], one["parameters"]) for one in layers] == [
        *(("4", 128 * 10 + 10), ("2", 256 * 128 + 128), ("0", 784 * 256 + 256))
    ]
    assert layers[-1]["ready_share"] == 1
    assert "data photos, in place of ImageNet: crops of ten photos, each a class" in printed("show", "vgg19")


def test_measure_shows_known_densities_beside_its_own() -> None:
    line = next(line for line in printed("measure", "ncf").splitlines() if "movielens" in line)
    own, known, union, known_union = (cell.strip() for cell in line.split("│")[5:9])

    assert (known, known_union) == ("18.0 %", "54.9 %")
    assert float(own.removesuffix(" %")) == pytest.approx(18, abs=2)
    assert float(union.removesuffix(" %")) > float(own.removesuffix(" %"))


def test_other_settings_have_no_known_densities() -> None:
    settings = ["--batch", "4", "--workers", "2", "--data", "digits"]
    (found,) = json.loads(printed("measure", "mlp", *settings, "--json"))["densities"]

    assert found["known"] is None
    assert (found["batch"], found["data"], found["parameters"]) == (4, "digits", 9610)


def test_all_known_densities_are_wanted_without_names() -> None:
    items = wanted_densities([], None, None)

    assert (read_model("ncf:expand=[147,16]"), 4096, "movielens-100k") in items
    assert (read_model("mlp_784:hidden=[256,128]"), 16, "mnist-5k") in items
    assert len(items) == sum(len(facts_of(kind).densities) for kind in model_kinds())


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("ncf:expand=3", "expand: must be a list of two whole numbers, found 3"),
        ("mlp:hidden=[3]", "unknown key 'hidden'"),
        ("ncf:expand=[1,2],expand=[1,2]", "the key 'expand' appears twice"),
        (
            "./mine.py:make",
            "./mine.py:make: only models of netfold's own are known here\n  give it to a scenario",
        ),
    ],
)
def test_names_that_cannot_be_read(text: str, error: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        read_model(text)

    assert error in str(caught.value)


def test_a_program_stage_by_stage() -> None:
    result = run_words("switch fit switchml --profile tofino1 --workers 16")

    assert result.exit_code == 0
    printed = result.stdout.splitlines()
    assert printed[0] == "switchml on tofino1: 16 workers, 8192 slots, 64 words a packet"
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in printed if line.startswith("│")]
    assert cells == [
        ["0", "1/4", "9/80", "9/48", "receiver"],
        ["1", "1/4", "5/80", "5/48", "bitmap"],
        ["2", "2/4", "8/80", "8/48", "counter, exponents"],
        *([str(stage), "4/4", "36/80", "36/48", "values × 4"] for stage in range(3, 11)),
        ["all", "36/48, 75 %", "310/960, 32 %", "310/576, 54 %", "11 of 12 stages"],
    ]
    assert printed[-5:] == [
        "passes         17 a slot round (N + 1): 1 a packet, 1 to read the result out",
        "latency        1.2us for the packet that completes a slot (2 passes)",
        "loopback       1 of 56 ports busy when 16 workers send at 100Gbps",
        "header vector  2640 of 4096 bits (64 %): 74 B of headers, 64 words",
        "registers      4.28 MiB, values alone 4.00 MiB",
    ]


def test_a_program_that_does_not_fit() -> None:
    result = run_words("switch fit switchml --profile tofino1 --words 128")

    assert result.exit_code == 1
    assert result.stdout == (
        "does not fit: SwitchML with 128 words a pass needs 68 stateful ALUs (64 for values), "
        "tofino1 has 48\n"
        "  use 64 (256 B) or 256 words (1024 B) a packet\n"
    )
    result = run_words("switch fit atp --profile tofino1 --per-pass 62 --json")
    assert result.exit_code == 1
    assert json.loads(result.stdout) == {
        "fits": False,
        "about": "words_per_pass",
        "message": "ATP with 62 words a pass needs 66 stateful ALUs (62 for values), tofino1 has 48",
        "hint": "use 36 words a pass at most",
    }


def test_a_fit_as_json() -> None:
    result = run_words("switch fit atp --profile tofino1 --slots 20000 --json")

    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert found["fits"]
    assert found["demand"]["slots"] == 20_000
    assert found["stages"][1] == {
        "stateful_alus": 2,
        "sram_blocks": 22,
        "map_rams": 22,
        "registers": {"bitmap": 1, "ecn": 1},
    }
    assert (found["stateful_alus"], found["sram_blocks"], found["map_rams"]) == (
        [35, 48],
        [385, 960],
        [385, 576],
    )
    assert (found["packet_passes"], found["read_passes"], found["round_passes"]) == (2, 0, 18)
    assert (found["result_latency_ps"], found["loopback_ports"]) == (1_200_000, [1, 56])


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("models measure mlp --data photos", "model mlp is not trained on photos\n  use digits\n"),
        (
            "switch fit swichml --profile tofino1",
            "there is no program 'swichml'\n"
            "  did you mean 'switchml'? known: switchml, tree, timed, atp, inca\n",
        ),
        (
            "switch fit switchml --profile tofino3",
            "there is no switch profile 'tofino3'\n  did you mean 'tofino2'? known: plain, ideal, tofino1, "
            "tofino2, sharp, fpga, trio; or give a YAML file with one\n",
        ),
        (
            "switch fit switchml --profile trio --per-pass 8",
            "--per-pass 8: trio has no stages, one pass adds all words of a packet\n  remove --per-pass\n",
        ),
    ],
)
def test_what_cannot_be_asked(line: str, told: str) -> None:
    result = run_words(line)

    assert (result.exit_code, result.stdout, result.stderr) == (2, "", told)


def test_ports_of_any_rate(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text("name: mine\nlike: tofino1\nport_rate: 0bps\n", "utf-8")

    printed = run_words(f"switch fit switchml --profile {path}").stdout.splitlines()
    assert printed[-3] == "loopback       56 ports, load unknown: port_rate is 0, any rate"
    as_json = json.loads(run_words(f"switch fit switchml --profile {path} --json").stdout)
    assert as_json["loopback_ports"] == [None, 56]


def test_all_profiles_in_a_list_and_all_their_numbers() -> None:
    printed = run_words("switch profiles").stdout

    assert all(f"│ {name} " in printed for name in PROFILES)
    numbers = run_words("switch profiles tofino1").stdout
    for name, source in PROFILES["tofino1"].sources.items():
        assert f"│ {name} " in numbers
        assert source in numbers
    assert "adds nothing up" in run_words("switch profiles plain").stdout


def test_programs_are_listed_with_the_profiles_that_run_them() -> None:
    rows = [
        [cell.strip() for cell in line.split("│")]
        for line in run_words("switch programs").stdout.splitlines()
    ]
    listed = {row[1]: (row[3], row[4]) for row in rows if len(row) > 4 and row[1]}

    assert listed.keys() == programs().keys()
    assert listed["tree"] == ("ideal, sharp", "yes")
    assert listed["inca"][1] == "no: fit only"


@pytest.mark.parametrize("profile", PROFILES)
def test_everything_fits_a_terminal_of_80_columns(profile: str) -> None:
    tables = [profiles_table(), profile_table(PROFILES[profile])]
    for program in programs():
        try:
            tables.append(fit_table(fit(PROFILES[profile], program, programs()[program].released)))
        except FitError:
            continue
    for table in tables:
        assert max(len(line.rstrip()) for line in shown(table, 80)) <= 80
    assert "overflow" in "".join(shown(profiles_table(), 120))


LEAF_SPINE = ("--set", "leaves=4", "--set", "spines=2", "--set", "hosts_per_leaf=8")


def run(*arguments: object) -> Result:
    return run_command("topology", *arguments)


def cells(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("│")[1:-1]] for line in text.splitlines() if "│" in line]


def test_show_of_a_kind() -> None:
    result = run("show", "leaf_spine", *LEAF_SPINE, "--set", "topology.uplink_rate=400Gbps")

    assert cells(result.stdout) == [["leaf_spine", "leaf_spine", "32", "6", "80", "4", "3.55", "1.6Tbps"]]


def test_show_draws_into_a_file_or_a_folder(tmp_path: Path) -> None:
    one, scenario = tmp_path / "one.svg", write(tmp_path, GOOD)

    assert run("show", "star", "--set", "hosts=3", "--draw", one).exit_code == 0
    assert run("show", scenario, "--draw", tmp_path / "all").exit_code == 0
    assert sorted(path.name for path in (tmp_path / "all").iterdir()) == ["ring.svg", "switch.svg"]
    texts = {element.text for element in ElementTree.fromstring(one.read_bytes()).iter() if element.text}
    assert {"h0", "h1", "h2", "s0", "100Gbps", "switch that can aggregate"} <= texts
    several = run("show", scenario, "--draw", tmp_path / "all.svg").stderr
    assert "cannot draw 2 networks into one file\n  give a folder, or choose one with --variant" in several
    within_a_file = run("show", scenario, "--draw", one / "all").stderr
    assert f"cannot make the folder {one}/all: Not a directory" in within_a_file
    assert "has 2 networks\n  choose one with --variant: switch, ring" in run("export", scenario).stderr


PRICES = """
switches: [{ports: 16, rate: 400Gbps, price: 1000, power: 10}]
nics: [{rate: 100Gbps, price: 1}]
cables: [{length: hall, rate: 400Gbps, medium: fibre, price: 2}]
"""


def test_measure_takes_prices(tmp_path: Path) -> None:
    """6 switches, 32 network cards and 40 cables; and busbw 2(n − 1)/n of algbw, as nccl-tests has it."""
    (tmp_path / "mine.yaml").write_text(PRICES)
    result = run("measure", "leaf_spine", *LEAF_SPINE, "--prices", tmp_path / "mine.yaml", "--json")
    (network,) = json.loads(result.stdout)["networks"]
    ring = next(timed for timed in network["estimates"] if timed["collective"] == "ring")

    assert network["bill"]["cost_usd"] == 6 * 1000 + 32 * 1 + 40 * 2
    assert network["bill"]["optics"] == network["bill"]["cables"] == 40
    assert ring["algbw_bytes_per_s"] == pytest.approx(1e8 / ring["seconds"])
    assert ring["busbw_bytes_per_s"] == pytest.approx(2 * 31 / 32 * 1e8 / ring["seconds"])
    shown_text = run("measure", "leaf_spine", *LEAF_SPINE, "--prices", tmp_path / "mine.yaml").stdout
    assert ["price", "$6.11k"] in cells(shown_text)
    assert "mine.yaml" in run("measure", "star", "--set", "hosts=2", "--prices", "none/mine.yaml").stderr


def test_size_lists_a_network_of_each_kind(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(PRICES)
    result = run("size", "--hosts", 16, "--price", "3.1k", "--prices", tmp_path / "mine.yaml")
    networks = {row[0]: row for row in cells(result.stdout)}

    assert networks["star"][2:5] == ["16", "1", "$1.05k"]
    assert "for $3.10k; every switch is one that has a price." in result.stdout
    assert "give one of a price" in run("size", "--hosts", 16).stderr


def test_list_has_every_kind_and_key() -> None:
    text = run("list").stdout

    for kind in (*registered(Topology), "file"):
        assert f"\n{kind}: " in f"\n{text}"
    assert '  rate="100Gbps": Rate of the links' in text
    assert "  hosts: Number of hosts" in text
    (star,) = json.loads(run("list", "star", "--json").stdout)["kinds"]
    assert star["kind"] == "star"
    assert star["closed_forms"] in run("list", "star").stdout


def test_measure_ranks_collectives(tmp_path: Path) -> None:
    result = run("measure", "star", "--set", "hosts=8", "--bytes", "100MB", "--json")

    (found,) = json.loads(result.stdout)["networks"]
    assert found["bisection_bps"] == found["bisection_bps_min"] == found["bisection_bps_max"] == 400 * 10**9
    assert found["cost"]["cables"] == {"within a rack": {"100000000000": 8}}
    times = [one["seconds"] for one in found["estimates"]]
    assert times == sorted(times)
    ring = next(one for one in found["estimates"] if one["collective"] == "ring")
    assert ring["link"] == "h0->s0"
    assert ring["seconds"] > 2 * 7 / 8 * 8e8 / 100e9  # without headers and latency


def test_measure_prints_tables() -> None:
    text = run("measure", "leaf_spine", *LEAF_SPINE, "--workers", "16").stdout
    rows = {row[0]: row[1:] for row in cells(text)}

    assert rows["oversubscription, tier 1"] == ["4 : 1"]
    assert rows["cables within a row"] == ["8 × 100Gbps"]
    assert rows["leaf_spine"][0] == "16"
    assert "Estimate: closed form of an all-reduce of 100MB of float32" in text


def test_export_can_be_read_back(tmp_path: Path) -> None:
    out = tmp_path / "star.json"

    assert run("export", "star", "--set", "hosts=3", "-o", out).stdout == f"{out}\n"
    assert sorted(from_json(out.read_text())) == ["h0", "h1", "h2", "s0"]
    assert cells(run("show", out).stdout)[0][:3] == ["star", "file", "3"]
    assert run("export", "star", "--set", "hosts=3").stdout == out.read_text()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("show", "leaf_spin"), "there is no kind of topology 'leaf_spin', and no such file\n  did you mean"),
        (("show", "nowhere.json"), "cannot read 'nowhere.json'"),
        (("list", "leaf_spin"), "there is no kind of topology 'leaf_spin'\n  did you mean 'leaf_spine'?"),
        (("measure", "star", "--set", "hosts=2", "--bytes", "0B"), "must be more than 0B, found '0B'"),
        (("show", "star", "--set", "hosts=0"), "--set: topology.hosts: must be at least 1, found 0"),
        (("show", "star", "--set", "hosts=2", "--variant", "a"), "there is no variant 'a'"),
        (("measure", "star", "--set", "hosts=2", "--bytes", "many"), "cannot read 'many' as a size"),
        (("measure", "star", "--set", "hosts=2", "--workers", "3"), "cannot place 3 workers on 2 hosts"),
        (("export", "star", "--set", "hosts=2", "-o", "no/such/folder"), "cannot write no/such/folder"),
        (("show", "star", "--set", "hosts=16384"), "16385 nodes are too many"),
    ],
)
def test_errors_are_told_in_words(arguments: tuple[str, ...], told: str) -> None:
    result = run(*arguments)

    assert result.exit_code in (1, 2)
    assert result.stdout == ""
    assert told in result.stderr
    assert "Traceback" not in result.stderr


GRID = """\
name: grid
seed: 5
workers: {count: 16, placement: spread}
routing: spray
workload: {kind: synthetic, elements: 1000}
codec: {kind: none}
variants:
  topology:
    racks: {kind: leaf_spine, leaves: 2, spines: 2, hosts_per_leaf: 12}
    star: {kind: star, hosts: 20}
  collective:
    ring: {kind: ring}
    tree: {kind: tree}
"""


def measured_grid(folder: Path, *more: str) -> list[dict[str, Any]]:
    """The networks of the grid, as JSON has them."""
    result = run("measure", write(folder, GRID), "--json", *more)
    assert result.exit_code == 0
    found: list[dict[str, Any]] = json.loads(result.stdout)["networks"]
    return found


def ring_s(found: dict[str, Any]) -> float:
    """How long the busiest link of a ring is busy; delays are hidden at most."""
    (ring,) = (one for one in found["estimates"] if one["collective"] == "ring")
    busy_s: float = ring["busy_s"]
    assert busy_s <= ring["seconds"] <= (busy_s + ring["latency_s"]) * (1 + 1e-9)
    return busy_s


def test_measure_shows_each_network_of_a_scenario_once(tmp_path: Path) -> None:
    racks, star = measured_grid(tmp_path)
    assert (racks["name"], racks["variants"]) == ("racks-ring", ["racks-ring", "racks-tree"])
    assert (star["name"], star["variants"]) == ("star-ring", ["star-ring", "star-tree"])
    text = run("measure", write(tmp_path, GRID), "--variant", "star-ring", "--variant", "star-tree").stdout
    assert "star-ring +1" in text
    other = GRID.replace("    tree: {kind: tree}", "    tree: {kind: tree, trees: 1}")
    assert len(json.loads(run("measure", write(tmp_path, other), "--json").stdout)["networks"]) == 2


def test_measure_takes_workers_and_routes_of_the_scenario(tmp_path: Path) -> None:
    """In turn from two racks, all 8 of a rack send to the other over 2 spines, packet by packet: 4 a link."""
    racks, star = measured_grid(tmp_path)
    alone_s = 2 * 15 / 16 * 8e8 / 100e9

    assert (racks["workers"], racks["routing"], racks["seed"]) == (16, "spray", 5)
    assert ring_s(racks) == pytest.approx(4 * alone_s)
    assert ring_s(star) == pytest.approx(alone_s)
    asked = measured_grid(tmp_path, "--workers", "12")[0]
    assert ring_s(asked) == pytest.approx(2 * 11 / 12 * 8e8 / 100e9)  # all in one rack
    told = run("measure", write(tmp_path, GRID)).stdout
    assert "workers as the scenario places them; routes by spray with seed 5." in told


def test_measure_takes_the_seed_of_the_scenario(tmp_path: Path) -> None:
    """With ECMP the busiest link has as many of the workers' flows as its hashes give it."""
    graph = leaf_spine(2, 2, 12, LINK, LINK)
    network = compile_network(graph)
    counts = set()
    for seed in range(1, 8):
        links: Counter[int] = Counter()
        for worker in range(16):
            source, target = (one % 2 * 12 + one // 2 for one in (worker, (worker + 1) % 16))
            links.update(path(network, source, target, flow_key_plain(seed, 0, worker, (worker + 1) % 16)))
        counts.add(most := max(links.values()))
        found = measured_grid(tmp_path, "--set", f"seed={seed}", "--set", "routing=ecmp")[0]
        assert ring_s(found) == pytest.approx(most * 2 * 15 / 16 * 8e8 / 100e9)
    assert len(counts) > 1


def test_an_error_in_a_graph_file_begins_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "zoo.json"
    path.write_text(json.dumps({"nodes": [{"id": "a"}], "links": []}))
    assert run("show", path).stderr.startswith(
        f"{path}: not node-link JSON: 'edges' is missing, there is a list 'links'\n  call it 'edges'"
    )
    path.write_text(json.dumps({"nodes": [{"id": "a"}, {"id": "b"}], "edges": []}))
    told = run("show", path).stderr.splitlines()
    assert told[0].startswith(f"{path}: topology: node 'a': kind is missing")
    assert told[1].startswith(f"{path}: topology: node 'b': kind is missing")


def test_a_scenario_is_estimated_with_its_own_collectives(tmp_path: Path) -> None:
    """Rings in G groups of g take 2 (g − 1) + 2 (G − 1) steps, and one ring of 12 workers takes 22."""
    scene = tmp_path / "own.yaml"
    scene.write_text(
        "name: own\ntopology: {kind: star, hosts: 12}\nworkers: 12\n"
        "workload: {kind: synthetic, elements: 10}\ncodec: {kind: none}\n"
        "variants:\n"
        "  - name: pairs\n"
        "    collective: {kind: hierarchical, group_size: 2, inner: {kind: ring}, outer: {kind: ring}}\n"
        "  - name: fours\n"
        "    collective: {kind: hierarchical, group_count: 3, inner: {kind: ring}, outer: {kind: ring}}\n"
    )
    (found,) = json.loads(run("measure", str(scene), "--bytes", "80MB", "--json").stdout)["networks"]
    seconds = {timed["collective"]: timed for timed in found["estimates"]}

    names = {name for name in seconds if name.startswith("hier")}
    assert names == {"hierarchical (pairs)", "hierarchical (fours)"}
    for name, steps in (("pairs", 2 * (2 - 1) + 2 * (6 - 1)), ("fours", 2 * (4 - 1) + 2 * (3 - 1))):
        latency_s = seconds[f"hierarchical ({name})"]["latency_s"]
        assert latency_s == pytest.approx(steps / 22 * seconds["ring"]["latency_s"])
