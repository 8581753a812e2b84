"""Files to begin with: examples that are copied and run elsewhere, new files, and completion in a shell."""

from __future__ import annotations

import json
import resource
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from netfold.commands.example_commands import shipped
from netfold.sim.run.named_files import input_paths
from netfold.sim.scenario.load import load
from tests import ROOT
from tests.command_line import run_command

SCENARIOS = ROOT / "scenarios"
FIRST = "# yaml-language-server: $schema="
BY_NAME = shipped()
SECTIONS = {
    "name": "a",
    "topology": "{kind: star, hosts: 8}",
    "workers": "2",
    "workload": "{kind: synthetic, elements: 9}",
    "codec": "{kind: none}",
    "collective": "{kind: ring}",
}
SCENARIO_NAMES = [name for name, example in BY_NAME.items() if example.kind == "scenario"]
OTHERS = [name for name, example in BY_NAME.items() if example.kind != "scenario"]


@pytest.fixture
def netfold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Result]:
    """A command in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return lambda line: run_command(*line.split())


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_all_examples_are_listed_with_a_sentence(netfold: Callable[[str], Result]) -> None:
    listed = json.loads(netfold("examples --json").stdout)["examples"]

    in_folder = {name for name in files(SCENARIOS) if name.endswith((".yaml", ".py", ".json"))}
    assert {example.path.relative_to(SCENARIOS).as_posix() for example in BY_NAME.values()} == {
        name for name in in_folder if not name.startswith(("runs/", "schema.json"))
    }
    assert [entry["name"] for entry in listed] == list(BY_NAME)
    assert {entry["kind"] for entry in listed} == {"scenario", "model", "profile", "graph"}
    sentences = {entry["name"]: entry["description"] for entry in listed}
    assert [name for name, text in sentences.items() if len(text) < 30 or text[-1] not in ".?"] == []
    assert sentences["02-loss"] == "Packets are lost on every link and in both directions."
    assert sentences["models/spirals.py"] == "Which of three spirals is a point on?"
    assert sentences["graphs/two-racks.json"] == "A network of 10 nodes and 9 links."


def test_the_list_is_a_table(netfold: Callable[[str], Result]) -> None:
    printed = netfold("examples").stdout

    assert "│ 03-two-jobs-one-switch         │ scenario │ Two jobs share the slots of one switch. " in printed


@pytest.mark.parametrize("name", SCENARIO_NAMES)
def test_a_copy_has_the_files_that_it_needs(
    netfold: Callable[[str], Result], tmp_path: Path, name: str
) -> None:
    done = netfold(f"examples {name} a/b")

    copy = tmp_path / "a" / "b" / f"{name}.yaml"
    assert done.exit_code == 0
    command = "sweep" if "\nsweep:" in copy.read_text("utf-8") else "run"
    assert done.stdout.endswith(f"\nTo run it: netfold {command} a/b/{name}.yaml\n")
    schema = copy.parent / copy.read_text("utf-8").splitlines()[0].removeprefix(FIRST)
    needed = {copy, schema.resolve(), *(copy.parent / given for given in input_paths(load(copy)))}
    assert files(tmp_path) == {path.relative_to(tmp_path).as_posix() for path in needed}
    assert done.stdout.count("Written: ") == len(needed)


def test_a_copy_can_be_run_where_it_is(netfold: Callable[[str], Result]) -> None:
    netfold("examples systems/layer-fusion")

    assert netfold("validate systems/layer-fusion.yaml").exit_code == 0


def test_all_can_be_copied(netfold: Callable[[str], Result], tmp_path: Path) -> None:
    done = netfold("examples --all here")

    wanted = {example.path for example in BY_NAME.values()}
    assert done.stdout.endswith("\nTo run it: netfold run here/01-quickstart.yaml\n")
    paths = {path.relative_to(SCENARIOS).as_posix() for path in wanted}
    assert files(tmp_path / "here") == paths | {"schema.json"}
    assert (tmp_path / "here" / "schema.json").read_text("utf-8") == netfold("schema").stdout
    for path in wanted:
        assert (tmp_path / "here" / path.relative_to(SCENARIOS)).read_bytes() == path.read_bytes()


@pytest.mark.parametrize("name", OTHERS)
def test_a_scenario_can_name_what_is_no_scenario(
    netfold: Callable[[str], Result], tmp_path: Path, name: str
) -> None:
    shown = netfold(f"examples {name} sub").stdout

    assert files(tmp_path) == {f"sub/{name}"}
    key, _, value = shown.partition("To use it in a scenario in this folder: ")[2].strip().partition(": ")
    sections = {**SECTIONS, key: value}
    (tmp_path / "a.yaml").write_text("".join(f"{name}: {text}\n" for name, text in sections.items()))
    assert input_paths(load(tmp_path / "a.yaml")) == {f"sub/{name}"}


def test_what_is_there_already_is_not_overwritten(netfold: Callable[[str], Result], tmp_path: Path) -> None:
    mine = tmp_path / "01-quickstart.yaml"
    mine.write_text("name: mine\n")
    done = netfold("examples 01-quickstart")

    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == (
        "01-quickstart.yaml: there already, and different; netfold overwrites no file\n"
        "  rename what is there, or give another place\n"
    )
    assert files(tmp_path) == {mine.name}  # not the schema either
    assert mine.read_text() == "name: mine\n"
    assert netfold("new scenario 01-quickstart.yaml").exit_code == 2
    assert netfold("new model 01-quickstart.py").exit_code == 2  # whose scenario is in the way
    assert files(tmp_path) == {mine.name}


def test_what_is_the_same_stays(netfold: Callable[[str], Result], tmp_path: Path) -> None:
    netfold("examples 02-loss")

    assert netfold("examples 03-two-jobs-one-switch").stdout == (
        "Written: 03-two-jobs-one-switch.yaml\n"
        "There already: schema.json\n"
        "To run it: netfold run 03-two-jobs-one-switch.yaml\n"
    )
    for elsewhere in ("nowhere", "/proc/self/mem"):  # a file that cannot be read
        (tmp_path / "schema.json").unlink()
        (tmp_path / "schema.json").symlink_to(elsewhere)
        assert netfold("examples 02-loss").stderr.startswith("schema.json: there already, and different;")
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize(
    ("line", "status", "told"),
    [
        ("quickstart", 2, "there is no example 'quickstart'\n  did you mean '01-quickstart'? examples: 01-"),
        ("--all 02-loss here", 2, "--all copies all examples, found the name '02-loss'\n  netfold examples"),
        ("02-loss a.txt", 1, "cannot write a.txt: File exists\n  give another place\n"),
        ("02-loss a.txt/b", 1, "cannot write a.txt/b: Not a directory\n  give another place\n"),
    ],
)
def test_mistakes_are_told(
    netfold: Callable[[str], Result], tmp_path: Path, line: str, status: int, told: str
) -> None:
    (tmp_path / "a.txt").touch()
    done = netfold(f"examples {line}")

    assert (done.exit_code, done.stdout) == (status, "")
    assert done.stderr.startswith(told)
    assert files(tmp_path) == {"a.txt"}


def test_a_file_that_cannot_be_written_is_not_left_in_part(
    netfold: Callable[[str], Result], tmp_path: Path
) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, limits[1]))
    try:
        done = netfold("examples 01-quickstart")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    assert done.exit_code == 1
    assert done.stderr == "cannot write schema.json: File too large\n  give another place\n"
    assert files(tmp_path) == {"01-quickstart.yaml"}


def test_a_new_scenario_runs(netfold: Callable[[str], Result], tmp_path: Path, plain: None) -> None:
    done = netfold("new scenario sub/mine.yaml")

    assert done.stdout == "Written: sub/mine.yaml\nTo run it: netfold run sub/mine.yaml\n"
    assert (
        netfold("validate sub/mine.yaml").stdout
        == "sub/mine.yaml: fine, variants: ring, switch, switch-sparse\n"
    )
    assert netfold("run sub/mine.yaml --no-report --set workload.elements=9000").exit_code == 0
    assert (tmp_path / "runs" / "mine").is_dir()


def test_a_new_model_is_trained(netfold: Callable[[str], Result], tmp_path: Path, plain: None) -> None:
    done = netfold("new model mine.py")

    assert done.stdout == "Written: mine.py\nWritten: mine.yaml\nTo run it: netfold run mine.yaml\n"
    assert netfold("validate mine.yaml").stdout == "mine.yaml: fine, variants: dense, switch, top\n"
    few = "--set workload.steps=2 --set workload.evaluate.every=2"
    assert netfold(f"run mine.yaml {few} --variant switch --no-report").exit_code == 0
    assert (tmp_path / "runs" / "mine").is_dir()


@pytest.mark.parametrize(
    ("file", "name"), [("latest.yaml", "mine"), ("My.Own.yaml", "mine"), ("x_1.yaml", "x_1")]
)
def test_a_new_scenario_is_named_after_its_file(
    netfold: Callable[[str], Result], tmp_path: Path, file: str, name: str
) -> None:
    netfold(f"new scenario {file}")

    assert load(tmp_path / file).name == name


@pytest.mark.parametrize("line", ["scenario mine.py", "scenario .yaml", "model mine.yaml", "model a:b.py"])
def test_a_new_file_needs_its_suffix(netfold: Callable[[str], Result], tmp_path: Path, line: str) -> None:
    what, file = line.split()
    suffix = {"scenario": ".yaml", "model": ".py"}[what]
    done = netfold(f"new {line}")

    assert done.exit_code == 2
    assert done.stderr == (
        f"{file}: a {what} has a name of letters, digits, '.', '-' and '_' that ends in {suffix}\n"
        f"  netfold new {what} mine{suffix}\n"
    )
    assert files(tmp_path) == set()


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("netfold exam", ["examples"]),
        ("netfold examples systems/s", ["systems/sasg", "systems/sketch-fusion"]),
    ],
)
def test_a_shell_completes(line: str, offered: list[str]) -> None:
    environment = {
        "_NETFOLD_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(line.count(" ")),
    }
    done = run_command(env=environment)

    assert done.stdout.split() == offered
