"""A user's model is made of all files that its import statements name beside it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import netfold
from netfold.sim.errors import DataError
from netfold.sim.resolve import resolve
from netfold.sim.run.named_files import read_named
from netfold.sim.scenario import load
from netfold.sim.workload.training.user.imported import imported
from tests.sim.workload.training.user.mine import located
from tests.sim.workload.training.user.test_training import SCENARIO

BODY = """from parts import sizes
def make():
    return nn.Linear(4, sizes.WIDTH), DATA, LOSS, lambda module: 0.25
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import torch, os.path", set()),
        ("import one", {"one.py"}),
        ("def make():\n    import one as own", {"one.py"}),
        ("from one import anything", {"one.py"}),
        ("import parts.sizes", {"parts/__init__.py", "parts/sizes.py", "parts/below.py"}),
        ("from parts import sizes", {"parts/__init__.py", "parts/sizes.py", "parts/below.py"}),
        ("from parts import WIDTH", {"parts/__init__.py"}),
        ("import chain", {"chain.py", "one.py"}),
        ("import circle", {"circle.py"}),
        ("import broken", {"broken.py"}),
        ("import one.absent", {"one.py"}),
        ("this is no Python", set()),
    ],
)
def test_import_statements_are_followed(tmp_path: Path, text: str, expected: set[str]) -> None:
    (tmp_path / "parts").mkdir()
    for name, content in {
        "mine.py": text,
        "one.py": "",
        "two.py": "",
        "chain.py": "import one",
        "circle.py": "import mine, circle",
        "broken.py": "import (",
        "parts/__init__.py": "WIDTH = 2",
        "parts/sizes.py": "from .below import WIDTH\nfrom . import below",
        "parts/below.py": "WIDTH = 2",
    }.items():
        (tmp_path / name).write_text(content, "utf-8")

    found = imported(tmp_path / "mine.py")

    assert {one.relative_to(tmp_path).as_posix() for one in found} == expected


def written(folder: Path) -> Path:
    """A scenario whose model imports a package."""
    located_parts = folder / "parts"
    located_parts.mkdir()
    (located_parts / "sizes.py").write_text("WIDTH = 2\n", "utf-8")
    located(folder, BODY)
    (folder / "mine.yaml").write_text(SCENARIO, "utf-8")
    return folder / "mine.yaml"


def test_a_run_folder_has_them_so_that_it_can_be_run_again(tmp_path: Path) -> None:
    run = netfold.run(written(tmp_path), out=tmp_path / "runs")
    inputs = [one["path"] for one in run.summary["inputs"]]
    copy = tmp_path / "copy"
    shutil.copytree(run.path, copy)
    again = netfold.run(copy / "scenario.yaml", out=tmp_path / "runs")
    columns = ("loss", "test_score", "test_metric")

    assert inputs == ["mine.py", "parts/sizes.py"]
    assert [(run.path / name).read_bytes() for name in inputs] == [
        (tmp_path / name).read_bytes() for name in inputs
    ]
    assert run.verdict == again.verdict == "pass"
    assert run.steps.select(*columns).equals(again.steps.select(*columns))
    assert run.steps["test_score"].to_list() == [0.25, 0.25]
    assert run.summary["variants"][0]["setup"]["workload"]["model"] == "./mine.py:make"


def test_one_that_changes_during_the_run_is_noticed(tmp_path: Path) -> None:
    files = read_named(resolve(load(written(tmp_path))))
    files.require_unchanged()
    (tmp_path / "parts" / "sizes.py").write_text("WIDTH = 2  # still\n", "utf-8")

    with pytest.raises(DataError, match=r"sizes\.py: was changed while the run was using it"):
        files.require_unchanged()
