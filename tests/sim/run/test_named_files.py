"""Files that a scenario names, such as own gradients: copied, changed or removed during a run, run again."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import netfold.sim.run.run
from netfold.sim.commands.main import app
from netfold.sim.results import load
from netfold.sim.run import named_files as run_files
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
    ("name", "key", "written", "kept"),
    [
        ("g.npy", "workload.path", "./{}", "{}"),
        ("net.json", "topology.path", "sub//{}", "sub/{}"),
        ("g.npy", "workload.path", "sub/./{}", "sub/{}"),
        ("net.json", "topology.path", ".hidden/{}", None),
        ("g.npy", "workload.path", "figures/{}", None),
        ("net.json", "topology.path", "../beside/{}", None),
    ],
)
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


@pytest.mark.parametrize(("name", "at"), [("g.npy", "a"), ("net.json", "b")])
def test_a_file_that_goes_away_during_a_run_is_no_loss(
    scenario: Path, after: Any, name: str, at: str
) -> None:
    """The gradients are open, the graph is read: the folder has both as they were."""
    content = (scenario.parent / name).read_bytes()
    after(at, (scenario.parent / name).unlink)
    result = run_netfold(scenario)

    assert result.exit_code == 0, result.output
    assert (only_folder(scenario) / name).read_bytes() == content


@pytest.mark.parametrize("at", ["a", "c"])
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
    done = "ab"
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


OWN = """\
name: own
topology: {kind: star, hosts: 3, switch: mine}
profiles: [parts/mine.yaml]
workers: 3
workload: {kind: file, path: parts/g.npy}
codec: {kind: none}
collective: {kind: ring}
"""
PROFILE = "{name: mine, like: ideal}\n"


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """Two steps of three workers, whole numbers: every sum is exact, and sparse in the second step."""
    (tmp_path / "parts").mkdir()
    gradients = np.arange(2 * 3 * 500, dtype=np.float32).reshape(2, 3, 500)
    gradients[1, :, 10:] = 0
    np.save(tmp_path / "parts" / "g.npy", gradients)
    (tmp_path / "parts" / "mine.yaml").write_text(PROFILE)
    (tmp_path / "own.yaml").write_text(OWN)
    return tmp_path / "own.yaml"


def test_a_run_sends_what_the_file_holds(own: Path) -> None:
    result = run_netfold(own)
    assert result.exit_code == 0, result.output

    run = load(own.parent / "runs" / "latest")
    content = (own.parent / "parts" / "g.npy").read_bytes()
    assert run.rounds["elements"].to_list() == [500, 500]
    assert run.rounds["nonzeros"].to_list() == [499, 10]  # element 0 of worker 0 is 0
    assert run.rounds["union_nonzeros"].to_list() == [500, 10]
    assert run.summary["inputs"] == [
        {"path": path, "kept": True, "bytes": len(one), "sha256": hashlib.sha256(one).hexdigest()}
        for path, one in (("parts/g.npy", content), ("parts/mine.yaml", PROFILE.encode()))
    ]
    # Its scenario names a profile and gradients, which lie beside it.
    assert (run.path / "parts" / "mine.yaml").read_text() == PROFILE
    again = run_netfold(run.path / "scenario.yaml")
    assert again.exit_code == 0, again.output
    second = (run.path / "runs" / "latest").resolve()
    assert (run.path / "summary.json").read_bytes() == (second / "summary.json").read_bytes()


def test_of_large_gradients_only_the_digest_is_recorded(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size_bytes = (own.parent / "parts" / "g.npy").stat().st_size
    for limit, is_kept in ((size_bytes, True), (size_bytes - 1, False)):
        monkeypatch.setattr(run_files, "KEPT_BYTES_MAX", limit)
        assert run_netfold(own).exit_code == 0
        run = (own.parent / "runs" / "latest").resolve()
        assert (run / "parts" / "g.npy").is_file() == is_kept
        assert load(run).summary["inputs"][0]["bytes"] == size_bytes


def test_fewer_workers_than_the_file_has_are_a_warning(own: Path) -> None:
    """Steps beyond those of the file begin anew."""
    result = run_netfold(own, "--set", "workers=2", "--set", "workload.steps=3")

    assert result.exit_code == 0
    warning = "own: the first 2 of the 3 workers' gradients in parts/g.npy are used"
    run = load(own.parent / "runs" / "latest")
    assert run.summary["warnings"] == [warning]
    assert run.rounds["nonzeros"].to_list() == [499, 10, 499]


def test_more_workers_than_the_file_has_are_refused(own: Path) -> None:
    result = run_netfold(own, "--set", "workers=4", "--set", "topology.hosts=4")

    assert result.exit_code == 2
    assert result.stderr == (
        f"{own}:5: workload.path: parts/g.npy: holds the gradients of 3 workers, 4 are needed\n"
        "  use 3 workers at most\n"
    )


def test_a_gradient_that_is_not_finite_ends_the_run_in_words(own: Path) -> None:
    gradients = np.ones((3, 20), np.float32)
    gradients[1, 7] = np.nan
    np.save(own.parent / "parts" / "g.npy", gradients)
    result = run_netfold(own, "--set", "codec={kind: exact}")

    path = own.parent / "parts" / "g.npy"
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-2:] == [
        f"{path}: holds numbers that are not finite: nan at [1, 7], worker 1",
        "  a gradient must be finite; look for an error in the training step that computed it",
    ]
