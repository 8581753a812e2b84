"""Files that a scenario names: copied however their path is written; changed or removed during a run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import netfold.sim.run.run
from netfold.sim.commands.main import app
from netfold.sim.results import load
from netfold.topologies.files.node_link import to_json
from netfold.topologies.graph import LinkSpec
from netfold.topologies.kinds.star import star

SCENARIO = """\
name: named
topology: {kind: file, path: net.json}
workers: 3
workload: {kind: file, path: g.npy}
codec: {kind: none}
collective: {kind: ring}
variants: [{name: a}, {name: b}, {name: c}]
"""
GRADIENTS = np.arange(3 * 50, dtype=np.float32).reshape(3, 50)


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    np.save(tmp_path / "g.npy", GRADIENTS)
    (tmp_path / "net.json").write_text(to_json(star(3, LinkSpec(10**10, 10**6, 1 << 20), "ideal")))
    (tmp_path / "named.yaml").write_text(SCENARIO)
    return tmp_path / "named.yaml"


def run_netfold(file: Path, *words: str) -> Any:
    return CliRunner().invoke(
        app, ["run", str(file), "--out", str(file.parent / "runs"), "--no-report", *words]
    )


def only_folder(file: Path) -> Path:
    (folder,) = (file.parent / "runs" / "named").iterdir()
    return folder


@pytest.fixture
def after(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Callable[[], object]], None]:
    """Let something happen when the variant of a name has been simulated."""

    def at(name: str, happen: Callable[[], object]) -> None:
        run_variant = netfold.sim.run.run.run_variant

        def run(plan: Any, variant: Any, *rest: Any) -> Any:
            result = run_variant(plan, variant, *rest)
            if variant.name == name:
                happen()
            return result

        monkeypatch.setattr(netfold.sim.run.run, "run_variant", run)

    return at


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("./{}", "{}"),
        ("sub//{}", "sub/{}"),
        ("sub/./{}", "sub/{}"),
        (".hidden/{}", None),
        ("figures/{}", None),
        ("../beside/{}", None),
    ],
)
@pytest.mark.parametrize(("name", "key"), [("g.npy", "workload.path"), ("net.json", "topology.path")])
def test_a_path_may_be_written_in_any_way(
    scenario: Path, name: str, key: str, written: str, kept: str | None
) -> None:
    """Of a file that cannot be copied into a run folder only the digest is recorded."""
    path, content = written.format(name), (scenario.parent / name).read_bytes()
    (scenario.parent / path).parent.mkdir(exist_ok=True)
    (scenario.parent / path).write_bytes(content)
    result = run_netfold(scenario, "--set", f"{key}={path}")

    assert result.exit_code == 0, result.output
    run = load(scenario.parent / "runs" / "latest")
    (listed,) = (one for one in run.summary["inputs"] if one["path"].endswith(name))
    digest = hashlib.sha256(content).hexdigest()
    place = (kept or written.replace("//", "/").replace("/./", "/")).format(name)
    assert listed == {"path": place, "kept": kept is not None, "bytes": len(content), "sha256": digest}
    if kept:
        assert (run.path / place).read_bytes() == content
    else:
        assert not (run.path / name).exists()


@pytest.mark.parametrize("name", ["g.npy", "net.json"])
@pytest.mark.parametrize("at", ["a", "b"])
def test_a_file_that_goes_away_during_a_run_is_no_loss(
    scenario: Path, after: Any, name: str, at: str
) -> None:
    """The gradients are open, the graph is read: the folder has both as they were."""
    content = (scenario.parent / name).read_bytes()
    after(at, (scenario.parent / name).unlink)
    result = run_netfold(scenario)

    assert result.exit_code == 0, result.output
    assert (only_folder(scenario) / name).read_bytes() == content


@pytest.mark.parametrize("at", ["a", "b", "c"])
def test_gradients_that_change_during_a_run_end_it_before_a_false_digest_is_written(
    scenario: Path, after: Any, at: str
) -> None:
    path, content = scenario.parent / "g.npy", (scenario.parent / "g.npy").read_bytes()
    after(at, lambda: np.save(path, GRADIENTS + 1))
    result = run_netfold(scenario)

    assert result.exit_code == 2
    assert result.stderr.endswith(
        f"{path}: was changed while the run was using it\n"
        "  run again, and do not change the file until the run ends\n"
    )
    if at == "a":
        assert not (scenario.parent / "runs" / "named").exists()
        return
    kept = only_folder(scenario)
    done = "a" if at == "b" else "ab"
    assert kept.name.endswith(f"-unfinished-{len(done)}-of-3")
    assert [one["name"] for one in load(kept).summary["variants"]] == list(done)
    assert (kept / "g.npy").read_bytes() == content
    assert load(kept).summary["inputs"][0]["sha256"] == hashlib.sha256(content).hexdigest()


def test_gradients_that_are_gone_before_a_variant_opens_them_are_an_error(scenario: Path, after: Any) -> None:
    """The last variant has its own file, which no variant has opened yet."""
    np.save(scenario.parent / "other.npy", GRADIENTS)
    other = "{name: c, workload: {kind: file, path: other.npy}}"
    scenario.write_text(SCENARIO.replace("{name: c}", other))
    after("a", (scenario.parent / "other.npy").unlink)
    result = run_netfold(scenario)

    assert result.exit_code == 2
    assert f"{scenario.parent / 'other.npy'}: cannot be read: there is no such file\n" in result.stderr
    assert [one["name"] for one in load(only_folder(scenario)).summary["variants"]] == ["a", "b"]


def test_a_file_that_is_gone_before_the_first_variant_is_an_error(
    scenario: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve = netfold.sim.run.run.resolve

    def resolved(found: Any) -> Any:
        plan = resolve(found)
        (scenario.parent / "net.json").unlink()
        return plan

    monkeypatch.setattr(netfold.sim.run.run, "resolve", resolved)
    result = run_netfold(scenario)

    assert (result.exit_code, result.stderr) == (
        2,
        f"{scenario.parent / 'net.json'}: cannot be read: there is no such file\n"
        "  put the file back, and run again\n",
    )


def test_the_summary_is_the_same_from_the_run_folder(scenario: Path) -> None:
    """However the path is written: the scenario in the folder writes it so too."""
    scenario.write_text(SCENARIO.replace("g.npy", "./g.npy").replace("net.json", ".//net.json"))
    assert run_netfold(scenario).exit_code == 0
    first = (scenario.parent / "runs" / "latest").resolve()
    assert run_netfold(first / "scenario.yaml").exit_code == 0
    second = (first / "runs" / "latest").resolve()

    assert json.loads((first / "summary.json").read_text()) == json.loads(
        (second / "summary.json").read_text()
    )
