"""Faults are made from sources, switched on in compiled code without compiling again, and played."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import ROOT
from tests.mutants.by_hand import faults_by_hand
from tests.mutants.compiled import Package, compiled_functions
from tests.mutants.draw import STRATA, NoEarlierCommitError, changed_lines, drawn, stratum_of
from tests.mutants.edits import AnchorError, SwitchError, edit_by_hand, switched
from tests.mutants.fault import BY_HAND, Fault, Record, Verdict, found_again, read_accepted, read_records
from tests.mutants.nearby import near_tests
from tests.mutants.operators import generated
from tests.mutants.play import DROPPED, ERROR, KILLED, SURVIVED, UNDECIDED, Nests, Player
from tests.mutants.report import ACCEPTED, report, report_of_changes, wilson
from tests.mutants.tree import HOW_TO_COMPILE, Copy, Sources

FILE = "netfold/homomorphic/small.py"
MODULE = '''"""A package with a kernel."""

import numpy as np

from netfold.kernels.compiled import inlined, kernel

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


def by_hand(before: str, after: str) -> Fault:
    return Fault(FILE, 0, f"{before} is {after}", BY_HAND, before, after)


def made(source: str) -> list[Fault]:
    """The faults that operators make of a source."""
    return [fault for fault, _ in generated(FILE, source, ast.parse(source))]


def change(source: str, before: str, after: str, operator: str = "") -> Fault:
    """The one fault of a source that makes this of that."""
    (fault,) = [
        each for each in made(source)
        if (each.before, each.after) == (before, after) and operator in each.operator
    ]  # fmt: skip
    return fault


def changes(body: str) -> set[tuple[str, str]]:
    """All changes of the statements of a function."""
    return {(fault.before, fault.after) for fault in made(f"def function(a, b, c, row):\n    {body}\n")}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with one package: a kernel, a plain function, their tests."""
    root = tmp_path / "project"
    for folder in ("netfold", "netfold/homomorphic", "netfold/kernels", "tests", "tests/homomorphic"):
        (root / folder).mkdir(parents=True)
        (root / folder / "__init__.py").touch()
    for name in HOW_TO_COMPILE:
        shutil.copy(ROOT / "netfold" / name, root / "netfold" / name)
    (root / FILE).write_text(MODULE, encoding="utf-8")
    (root / "tests/homomorphic/test_small.py").write_text(TESTS, encoding="utf-8")
    return root


PLAYED = {
    KILLED: change(MODULE, "total + value", "total - value"),
    SURVIVED: change(MODULE, "value < 0", "value <= 0"),
    DROPPED: by_hand("total = step(total, values[i])", "total = values"),
    "by hand": by_hand("return 2 * value", "return value + value + value"),
}


@pytest.fixture
def player(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Player]:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # none is needed, and loading them takes long
    copy = Copy(tmp_path / "copy", list(PLAYED.values()), Sources(project))
    copy.make()
    nests = Nests(copy.folder, 1, ["numba", "pytest"])
    yield Player(copy, nests)
    nests.close()


@pytest.mark.slow
def test_faults_are_switched_on_in_code_that_was_compiled_without(
    player: Player, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The cached kernel has the fault's behaviour; a fault that does not compile is taken out before."""
    assert player.play(1) == Verdict(
        KILLED, "tests/homomorphic/test_small.py::test_added", ("tests/homomorphic/test_small.py",)
    )
    assert (
        "dropped, as it does not compile: netfold/homomorphic/small.py: total = step"
        in capsys.readouterr().out
    )
    kernels = set((tmp_path / "copy/.cache").rglob("*.nbc"))
    assert kernels
    assert [player.play(number).verdict for number in (2, 3, 4)] == [SURVIVED, DROPPED, KILLED]
    assert set((tmp_path / "copy/.cache").rglob("*.nbc")) == kernels


def test_tests_that_cannot_run_are_errors_and_endless_ones_are_ended(player: Player, tmp_path: Path) -> None:
    nests = player.nests
    endless = tmp_path / "copy/tests/homomorphic/test_endless.py"
    endless.write_text("def test_endless():\n    while True:\n        pass\n", encoding="utf-8")
    test = str(endless.relative_to(tmp_path / "copy"))
    assert nests.run(0, ["tests/test_that_is_not_there.py"]).verdict == ERROR
    outcome = nests.run(0, [test], test_cpu_s=0.1)
    assert (outcome.verdict, outcome.noticed_by()) == (KILLED, f"{test}::test_endless")
    assert nests.run(0, [test], limit_s=0.0).verdict == KILLED
    quick = nests.run(0, [str(Path(test).with_name("test_small.py"))], near_cpu_s=0.0)
    assert len(quick.started()) == 1  # and no more when the time of all is over
    late = Player(player.copy, nests, deadline_s=0.0)
    assert late.play(1).verdict == UNDECIDED


@pytest.fixture(scope="module")
def sources() -> Sources:
    """Those of the package, whose compiled code is looked through once."""
    return Sources()


@pytest.mark.slow
def test_every_fault_by_hand_is_found_once_and_can_be_switched(sources: Sources) -> None:
    faults = faults_by_hand({file: sources.text(file) for file in sources.files})
    assert len({(fault.file, fault.text) for fault in faults}) == len(faults)
    for file in {fault.file for fault in faults}:
        numbered = [(number, fault) for number, fault in enumerate(faults, start=1) if fault.file == file]
        compile(sources.rewritten(file, numbered), file, "exec")


def test_every_accepted_survivor_is_still_made(sources: Sources) -> None:
    accepted = read_accepted(ACCEPTED)
    again = found_again(list(accepted), sources.faults({fault.file for fault in accepted}))
    assert again == list(accepted)
    assert all(accepted.values())


@pytest.mark.parametrize("before", ["not there", "value"])
def test_anchors_that_are_not_there_once_are_refused(before: str) -> None:
    with pytest.raises(
        AnchorError, match=rf"which is there {MODULE.count(before)} times; must be there once"
    ):
        edit_by_hand(by_hand(before, "x"), MODULE, ast.parse(MODULE))


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
        edit_by_hand(by_hand(before, after), MODULE, ast.parse(MODULE))


def test_constants_that_kernels_freeze_have_no_faults() -> None:
    frozen = Package({FILE: MODULE}).frozen()
    assert frozen == {(FILE, "FIRST")}
    with pytest.raises(SwitchError, match="in a constant that compiled code freezes"):
        edit_by_hand(by_hand("FIRST = 0", "FIRST = 1"), MODULE, ast.parse(MODULE), frozen)
    lines = {fault.text for fault, _ in generated(FILE, MODULE, ast.parse(MODULE), frozen)}
    assert "FIRST = 0" not in lines
    assert "FIRST = 0" in {fault.text for fault in made(MODULE)}


def test_what_a_frozen_constant_is_made_with_is_frozen() -> None:
    rows = "SIZE, HALF = 3, 1.5\nOTHER = 4\n\n\ndef made():\n    return 2 * SIZE\n\n\nROWS = made()\n"
    uses = "from netfold.switch.rows import ROWS\n\n\n@kernel\ndef count():\n    return ROWS\n"
    package = Package({"switch/rows.py": rows, "switch/uses.py": uses})
    frozen = package.frozen()
    assert frozen == {("switch/rows.py", name) for name in ("ROWS", "made", "SIZE", "HALF")}
    assert {fault.before for fault, _ in generated("switch/rows.py", rows, ast.parse(rows), frozen)} == {"4"}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("return a < b", {("a < b", "a <= b"), ("a < b", "a > b")}),
        ("return a >= b", {("a >= b", "a > b"), ("a >= b", "a <= b")}),
        ("return a == b", {("a == b", "a != b")}),
        ("return a and b", {("a and b", "a or b")}),
        ("return not a", {("not a", "bool(a)")}),
        ("return a + b", {("a + b", "a - b")}),
        ("return a * b", {("a * b", "a // b")}),
        ("return a << b", {("a << b", "a >> b")}),
        ("return min(a, b)", {("min(a, b)", "max(a, b)")}),
        ("return 0", {("0", "1")}),
        ("return 1", {("1", "0")}),
        ("return True", {("True", "False")}),
        ("return len(a)", {("len(a)", "len(a) + 1"), ("len(a)", "len(a) - 1")}),
        ("return a[b:]", {("b", "b + 1"), ("b", "b - 1")}),
        ("return a if b else c", {("b", "not b")}),
        ("a.drop(b)", {("a.drop(b)", "")}),
        ("a.b = c", {("a.b = c", "")}),
        ("a[b] = c", {("a[b] = c", "")}),
        ("a += b", {("a += b", ""), ("a += b", "a -= b")}),
        ("if a: raise ValueError('b')", {("a", "not a"), ("raise ValueError('b')", "")}),
        ("if a: return b", {("a", "not a"), ("return b", "")}),
        # nothing of these can be seen or switched
        ("a = b", set()),
        ("return f'{a + 1}'", set()),
        ("return 'a' + b", set()),
        ("raise ValueError(a + 1)", {("raise ValueError(a + 1)", "")}),
        ("a: int = b", set()),
        ("return isinstance(a, int | float)", set()),
    ],
)
def test_each_operator_in_a_plain_function(body: str, expected: set[tuple[str, str]]) -> None:
    assert changes(body) == expected


def test_what_is_no_fault() -> None:
    source = (
        "__all__ = ['a'][:1]\nif TYPE_CHECKING:\n    A = 1\n\n\n"
        "@cache(1)\ndef function(a: Literal[2] = 3) -> Literal[4]:\n    '''5.'''\n"
        "    @intrinsic\n    def inner():\n        return 6\n"
    )
    assert made(source) == []


KERNEL = '''from netfold.kernels.compiled import kernel


@kernel
def walk(values, limit):
    """All operators at once."""
    total = 0
    for i in range(1, values.size):
        if values[i] < limit and not values[i] == 3:
            total += values[i] * 2
        if values[i] > 99:
            return -1
        values[i] = min(total, 50)
    return total
'''


def test_each_operator_in_a_kernel(project: Path, tmp_path: Path) -> None:
    """With all faults in it, one kernel computes what the source with each fault computes."""
    (project / FILE).write_text(KERNEL, encoding="utf-8")
    sources = Sources(project)
    faults = sources.faults([FILE])
    assert {fault.operator for fault in faults} == {
        "comparison", "and or or", "not", "arithmetic", "constant", "plus or minus one", "min or max",
        "dropped statement",
    }  # fmt: skip
    copy = Copy(tmp_path / "copy", faults, sources)
    copy.make()
    script = tmp_path / "script.py"
    script.write_text(
        "import ctypes, json, numpy as np, netfold_switch\n"
        "from netfold.homomorphic.small import walk\n"
        f"for number in range({len(faults) + 1}):\n"
        "    netfold_switch._which.value = number\n"
        "    values = np.array([7, 1, 3, 30, 100, 2])\n"
        "    print(json.dumps([int(walk(values, 40)), values.tolist()]))\n",
        encoding="utf-8",
    )
    environment = {"PYTHONPATH": str(copy.folder), "NETFOLD_CACHE": str(tmp_path), "PATH": ""}
    answer = subprocess.run([sys.executable, script], env=environment, check=True, stdout=subprocess.PIPE)
    computed = [json.loads(line) for line in answer.stdout.splitlines()]
    assert len(computed) == len(faults) + 1
    assert computed == [walked(sources, fault) for fault in (None, *faults)]
    assert sum(result != computed[0] for result in computed) > len(faults) // 2


def test_handlers_of_the_event_loop_are_compiled_too() -> None:
    """They have no decorator: a switch of plain Python would make each of them fail to compile."""
    loop = ast.parse((ROOT / "netfold/sim/engine/loop.py").read_text("utf-8"))

    assert {"_late_arrival", "_write_log", "run_until"} <= {each.name for each in compiled_functions(loop)}


def walked(sources: Sources, fault: Fault | None) -> list[object]:
    """What the kernel's source computes in plain Python, with one fault."""
    text = sources.rewritten(FILE, [(1, fault)]) if fault else KERNEL
    names: dict[str, object] = {"_is_on_compiled": lambda number: True, "kernel": lambda function: function}
    exec("\n".join(line for line in text.splitlines() if not line.startswith("from ")), names)
    values = [7, 1, 3, 30, 100, 2]

    class Values(list[int]):
        size = len(values)

    given = Values(values)
    return [names["walk"](given, 40), list(given)]  # type: ignore[operator]


def test_faults_within_faults() -> None:
    """Generated faults within one by hand, which lies within another."""
    tree = ast.parse(MODULE)
    of_tree = dict(generated(FILE, MODULE, tree))
    hand = [
        by_hand("    return 2 * value\n", "    value += 1\n    return 2 * value\n"),
        by_hand("    if value < 0:\n        return 0\n", ""),
    ]
    edits = [edit_by_hand(fault, MODULE, tree) for fault in hand]
    edits += [
        of_tree[change(MODULE, *pair)] for pair in [("2 * value", "2 // value"), ("value < 0", "value > 0")]
    ]
    text = switched(tree, list(enumerate(edits, start=1)))
    body = text[text.index("def doubled") :]
    for on, argument, expected in [(0, 3, 6), (1, 3, 8), (2, -3, -6), (3, 2, 1), (4, 3, 0), (0, -3, 0)]:
        names: dict[str, object] = {"_is_on": lambda number, on=on: number == on}
        exec(body, names)
        assert names["doubled"](argument) == expected  # type: ignore[operator]


def test_the_tests_of_a_file_are_those_next_to_it(tmp_path: Path) -> None:
    for name, text in {
        "netfold/sim/engine/links/link.py": "",
        "netfold/sim/engine/engine.py": "from netfold.sim.engine.links import link\n",
        "netfold/sim/alone/file.py": "",
        "netfold/torch/hook.py": "",
        "tests/sim/engine/links/test_link.py": "",
        "tests/sim/engine/links/test_fates.py": "from netfold.sim.engine.links.link import Link\n",
        "tests/sim/engine/links/test_others.py": "import netfold.torch.hook\n",
        "tests/sim/engine/test_law.py": "from tests.sim.engine import drawn\n",
        "tests/sim/engine/drawn.py": "import netfold.sim.engine.engine\n",
        "tests/sim/run/test_run.py": "import netfold.sim.engine.engine\n",
        "tests/sim/test_sim.py": "import netfold.sim.alone.file\n",
        "tests/test_all.py": "import netfold.sim.alone.file\n",
        "tests/torch/test_hooks.py": "import netfold.torch.hook\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    links = ["links/test_link.py", "links/test_fates.py", "test_law.py"]
    of_link = [f"tests/sim/engine/{name}" for name in links]
    assert near_tests("netfold/sim/engine/links/link.py", tmp_path) == of_link
    assert near_tests("netfold/sim/engine/engine.py", tmp_path) == ["tests/sim/engine/test_law.py"]
    assert near_tests("netfold/sim/alone/file.py", tmp_path) == ["tests/sim/test_sim.py"]
    assert near_tests("netfold/torch/hook.py", tmp_path) == ["tests/torch/test_hooks.py"]


def test_draws_are_the_same_for_the_same_seed_and_in_strata() -> None:
    files = ["switch/a.py", "sim/engine/a.py", "homomorphic/a.py", "sim/run/a.py", "units.py"]
    faults = [Fault(f"netfold/{file}", line, "", "", "", "") for file in files for line in range(100)]
    draw = drawn(faults, 50, "seed")
    assert draw == drawn(faults, 50, "seed")
    assert draw != drawn(faults, 50, "another")
    assert set(drawn([fault for fault in faults if fault != draw[0]], 50, "seed")) >= set(draw[1:])
    counts = [sum(stratum_of(fault.file) == stratum for fault in draw) for stratum in STRATA]
    assert counts == [15, 15, 15, 5]


def test_the_interval_is_wilsons() -> None:
    """Newcombe, Statistics in Medicine 17, 1998, table I: method 3."""
    published = {
        (81, 263): (0.2553, 0.3662),
        (15, 148): (0.0624, 0.1605),
        (0, 20): (0.0, 0.1611),
        (1, 29): (0.0061, 0.1718),
    }
    for (noticed, count), interval in published.items():
        assert wilson(noticed, count) == pytest.approx(interval, abs=5e-5)


def record(verdict: str, number: int = 0, operator: str = "constant", file: str = FILE) -> Record:
    return Record(Fault(file, number, f"a = {number}", operator, "0", "1"), Verdict(verdict, "test_a"))


def test_records_are_read_as_they_were_written(tmp_path: Path) -> None:
    records = [record(KILLED), record(SURVIVED, 1)]
    path = tmp_path / "records.jsonl"
    path.write_text("".join(each.line() + "\n" for each in records), encoding="utf-8")
    assert read_records(path) == records


def test_kept_faults_are_found_in_sources_that_have_changed() -> None:
    source = "def f(a):\n    return a + 1\n\n\ndef g(a):\n    return a + 1\n"
    first, second = [fault for fault in made(source) if fault.operator == "arithmetic"]
    later = made("import os\n\n\n" + source)
    assert [fault and fault.line for fault in found_again([first, second], later)] == [5, 9]
    moved = [
        fault._replace(file="netfold/homomorphic/merged.py")
        for fault in made(source[: source.index("\n\n\n")])
    ]
    assert [fault and fault.file for fault in found_again([first], moved)] == [
        "netfold/homomorphic/merged.py"
    ]
    assert found_again([first], made("def f(a):\n    return a - 1\n")) == [None]


@pytest.mark.parametrize(
    ("noticed", "by_hand_noticed", "accepted", "status"),
    [(18, 40, 0, 0), (16, 40, 0, 1), (18, 38, 0, 1), (18, 40, 1, 0), (18, 40, 2, 1)],
)
def test_what_fails(
    noticed: int, by_hand_noticed: int, accepted: int, status: int, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    verdicts = [KILLED] * noticed + [SURVIVED] * (20 - noticed)
    records = [record(verdict, number) for number, verdict in enumerate(verdicts)]
    records += [
        record(KILLED if number < by_hand_noticed else ERROR, number, BY_HAND) for number in range(40)
    ]
    path = tmp_path / "accepted.jsonl"
    lines = [{**each.fault._asdict(), "reason": "no test can see it"} for each in records[20 - accepted : 20]]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    assert report(records, accepted_file=path) == status
    printed = capsys.readouterr().out
    assert f"{noticed:4} of  20 noticed: {5 * noticed:5.1f} %" in printed  # accepted or not
    assert printed.count("accepted: no test can see it") == accepted


def test_what_was_noticed_before_and_is_not_now_fails(capsys: pytest.CaptureFixture[str]) -> None:
    before = [record(KILLED, number) for number in range(20)]
    now = [
        record(SURVIVED if number == 7 else KILLED, number, file="netfold/merged.py") for number in range(20)
    ]
    assert report(before, before) == 0
    assert report(now, before) == 1
    assert "failed: noticed before by test_a: netfold/merged.py:7: 0 → 1" in capsys.readouterr().out


def test_changed_lines_fail_by_at_least_ten_faults() -> None:
    few = [record(SURVIVED, number) for number in range(9)]
    undecided = [record(UNDECIDED, number) for number in range(9, 30)]
    assert report_of_changes([*few, *undecided]) == 0
    assert report_of_changes([*few, record(KILLED, 9)]) == 1
    noticed = [record(KILLED, number) for number in range(10, 20)]
    assert report_of_changes([*few[:4], *noticed]) == 0  # 71 %, or up to 88 %
    assert report_of_changes([*few[:6], *noticed]) == 1  # 63 %, or up to 82 %


def test_the_lines_that_commits_changed(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c", *arguments]
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)

    with pytest.raises(NoEarlierCommitError):
        changed_lines("HEAD", tmp_path)
    git("init", "-q")
    file = tmp_path / "a file.py"
    for text in ("1\n2\n3\n4\n5\n", "1\n3\n4\n5\n", "1\n3\nfour\nfive\n6\n"):
        file.write_text(text, encoding="utf-8")
        git("add", "-A")
        git("commit", "-qm", "-")
    assert changed_lines("HEAD", tmp_path) == {"a file.py": {3, 4, 5}}
    assert changed_lines("HEAD~1", tmp_path) == {"a file.py": {3, 4, 5}}  # lines that went have no faults
    with pytest.raises(NoEarlierCommitError, match="the first one, a shallow clone"):
        changed_lines("HEAD~2", tmp_path)
