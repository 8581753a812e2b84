"""Deliberate faults can be put into the sources, and switched on in compiled code without compiling again."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mutants import lists
from tests.mutants.lists import all_harmless, all_mutants
from tests.mutants.mutant import Mutant
from tests.mutants.play import ERROR, KILLED, SURVIVED, Nests
from tests.mutants.rewrite import AnchorError, SwitchError, mutated_text, rewritten
from tests.mutants.tree import ROOT, make_copy, sources

MODULE = '''"""A package with a kernel."""

import numpy as np

from netfold.homomorphic.kernels.compiled import inlined, kernel

FIRST = 0


@inlined
def step(total, value):
    return total + value


@kernel
def added(values):
    total = np.int64(0)
    for i in range(FIRST, values.size):
        total = step(total, values[i])
    return total


def doubled(value):
    if value < 0:
        return 0
    return 2 * value
'''

TESTS = """import numpy as np

from netfold.homomorphic.small import added, doubled


def test_added():
    assert added(np.arange(4)) == 6


def test_doubled():
    assert doubled(3) == 6
"""


def fault(before: str, after: str, test: str = "") -> Mutant:
    return Mutant(
        f"{before} is {after}", "homomorphic/small.py", before, after, (f"tests/test_small.py{test}",)
    )


FAULTS = [
    fault("total + value", "total - value", "::test_added"),
    fault("2 * value", "3 * value", "::test_doubled"),
    fault("value < 0", "value < -1"),
    fault("        return 0\n", "        raise ValueError\n", "::test_that_is_not_there"),
]


@pytest.fixture
def nests(tmp_path: Path) -> Iterator[Nests]:
    project, copy = tmp_path / "project", tmp_path / "copy"
    for folder in ("homomorphic", "tests"):
        (project / folder).mkdir(parents=True)
        (project / folder / "__init__.py").touch()
    (project / "netfold").mkdir()
    (project / "netfold/__init__.py").touch()
    (project / "netfold/homomorphic").symlink_to("../homomorphic")
    (project / "homomorphic/kernels").mkdir()
    (project / "homomorphic/kernels/__init__.py").touch()
    for name in ("cache.py", "compiled.py"):
        shutil.copy(ROOT / "homomorphic/kernels" / name, project / "homomorphic/kernels" / name)
    (project / "homomorphic/small.py").write_text(MODULE, encoding="utf-8")
    (project / "tests/test_small.py").write_text(TESTS, encoding="utf-8")
    copy.mkdir()
    make_copy(copy, FAULTS, project)
    made = Nests(copy, 1, 1, ["numba", "pytest"])
    yield made
    made.close()


def test_every_list_is_played() -> None:
    files = {path.stem for path in Path(lists.__file__).parent.glob("*.py")} - {"__init__"}
    assert files == set(lists.FOLDERS)


def test_every_fault_is_found_once_and_can_be_switched() -> None:
    mutants = all_mutants()
    for file, text in sources(mutants).items():
        compile(text, file, "exec")
    for one in all_harmless():
        mutated_text(
            (ROOT / one.file).read_text(encoding="utf-8"), Mutant("", one.file, one.before, one.after, ())
        )
    assert len({(mutant.file, mutant.name) for mutant in mutants}) == len(mutants)
    for mutant in mutants:
        assert mutant.tests
        assert all((ROOT / test.partition("::")[0]).is_file() for test in mutant.tests), mutant


def test_faults_are_switched_on_in_code_that_was_compiled_without(nests: Nests, tmp_path: Path) -> None:
    """The cached kernel has the fault's behaviour: its switch is not a constant."""

    def compiled() -> set[Path]:
        return set((tmp_path / "copy/.cache").rglob("*.nbc"))

    def verdict(number: int, tests: tuple[str, ...]) -> str:
        return nests.run(number, tests, 120).verdict

    assert verdict(0, FAULTS[2].tests) == SURVIVED
    kernels = compiled()
    assert kernels
    found = [verdict(number, one.tests) for number, one in enumerate(FAULTS, start=1)]
    assert found == [KILLED, KILLED, SURVIVED, ERROR]
    assert verdict(1, FAULTS[1].tests) == SURVIVED
    assert compiled() == kernels


def test_endless_faults_are_ended(nests: Nests) -> None:
    assert nests.run(0, FAULTS[2].tests, 0.0).verdict == KILLED


@pytest.mark.parametrize("before", ["not there", "value"])
def test_anchors_that_are_not_there_once_are_refused(before: str) -> None:
    with pytest.raises(
        AnchorError, match=rf"which is there {MODULE.count(before)} times; must be there once"
    ):
        rewritten(MODULE, [(1, fault(before, "x"))])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("def doubled(value)", "def doubled(other)"),
        ("@inlined\n", "@kernel\n"),
        ("return 2 * value", "return  2 * value"),
    ],
)
def test_what_cannot_be_switched_is_refused(before: str, after: str) -> None:
    with pytest.raises(SwitchError, match="cannot be switched while the program runs"):
        rewritten(MODULE, [(1, fault(before, after))])


def test_constants_that_kernels_freeze_are_refused() -> None:
    with pytest.raises(SwitchError, match="in a constant that compiled code freezes"):
        rewritten(MODULE, [(1, fault("FIRST = 0", "FIRST = 1"))], frozen={"FIRST"})


def test_faults_within_faults() -> None:
    """An expression within a statement that another fault replaces, and a statement that a fault adds."""
    numbered = [
        (1, fault("    return 2 * value\n", "    value += 1\n    return 2 * value\n")),
        (2, fault("2 * value", "3 * value")),
        (3, fault("    if value < 0:\n        return 0\n", "")),
        (4, fault("value < 0", "value > 0")),
    ]
    text = rewritten(MODULE, numbered)
    body = text[text.index("def doubled") :]
    for on, argument, wanted in [(0, 3, 6), (1, 3, 8), (2, 3, 9), (3, -3, -6), (4, 3, 0), (0, -3, 0)]:
        names: dict[str, object] = {"_is_on": lambda number, on=on: number == on}
        exec(body, names)
        assert names["doubled"](argument) == wanted  # type: ignore[operator]
