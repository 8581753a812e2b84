"""What a run reports and leaves when something fails: codecs, variants, the process; and its progress."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest
from typer.testing import Result

import netfold
import netfold.commands.terminal
import netfold.sim.run.run
import netfold.sim.run.variant
from netfold.commands.terminal import progress_bar
from netfold.errors import InvariantError
from netfold.homomorphic.codec import Codec, Decoded, DecodeError, Encoder, LockStepError
from netfold.homomorphic.codec_driver import CodecError, WorkerEncoder, blaming
from netfold.homomorphic.codecs.fixed_point import FixedPoint
from netfold.homomorphic.error_bounds import ErrorBound, FactorBound
from netfold.homomorphic.merge import Merge, Work
from netfold.homomorphic.message import Gradient, Message, Round
from netfold.kernels.compile_progress import COMPILING, counts, wait_for_others
from netfold.sim.engine.loop import HANDLERS, run_until
from netfold.sim.engine.tables import FOR_ATP, FOR_STEERING
from netfold.sim.results.folder import load
from netfold.sim.run import compiling as ahead
from netfold.sim.run import progress as module
from netfold.sim.run.compiling import _rehearse, compile_engine, is_cold
from netfold.sim.run.progress import ProgressReporter
from netfold.sim.run.variant import run_variant
from tests import ROOT
from tests.command_line import INTERRUPTIBLE, run_command, run_python
from tests.examples import nightly
from tests.registry import registered
from tests.sim.scenes import TINY, entry_of, plan, simulated, write
from tests.sim.toys import SignCodec, scenario

PER_UNIT = 1024
FAULTY = 3  # the worker
STEP = 1
RAISED: dict[str, Callable[[], BaseException]] = {
    "value": lambda: ValueError("no scale is right"),
    "memory": lambda: MemoryError("no room"),
    "interrupt": KeyboardInterrupt,
    "invariant": lambda: InvariantError("bytes are missing"),
    "stop": StopIteration,
    "text": lambda: RuntimeError("\ud800" + "x" * 1000),
}


@dataclass(frozen=True)
class Broken(Codec):
    """Whole numbers of 1/1024.

    fault: what goes wrong.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid", "strict": True}
    kind: ClassVar[str] = "toy_broken"
    merges: ClassVar[frozenset[Merge]] = frozenset({Merge.ADD, Merge.FLOAT_ADD})
    is_linear: ClassVar[bool] = True

    fault: str = "none"

    def worker(self, rank: int, workers: int, seed: int) -> Encoder:
        if rank == FAULTY and self.fault == "worker raises":
            raise KeyError("rank")
        if rank == FAULTY and self.fault == "worker returns":
            return None  # type: ignore[return-value]
        return BrokenEncoder(self.fault, rank)

    def error_bound(self, contributions: Sequence[Gradient]) -> ErrorBound:
        if self.fault == "bound raises":
            raise ZeroDivisionError("no workers")
        return FactorBound(len(contributions), PER_UNIT, may_be_float=False)


class BrokenEncoder(Encoder):
    per_unit = PER_UNIT

    def __init__(self, fault: str, rank: int) -> None:
        self._fault, self._rank = fault, rank

    def exchange(self, gradient: Gradient, round: Round) -> Any:
        is_faulty = (self._rank, round.step) == (FAULTY, STEP)
        if is_faulty and self._fault == "no generator":
            return gradient
        return _exchange(gradient, round, self._fault if is_faulty else "none")


def _exchange(gradient: Gradient, round: Round, fault: str) -> Generator[Any, Any, Any]:
    words = np.rint(gradient.astype(np.float64) * PER_UNIT).astype(np.int32)
    message = Message(words, Merge.ADD, "steps")
    if fault == "skips":
        return Decoded(np.zeros_like(gradient), gradient)
    if fault == "raises at once":
        raise RAISED["value"]()
    (merged,) = yield YIELDED.get(fault, lambda one: (one,))(message)
    if fault in RAISED:
        raise RAISED[fault]()
    if fault == "extra":
        yield (Message(words, Merge.ADD, "more"),)
    if fault == "elsewhere":
        json.loads("{")
    if fault == "index":
        words[words.size]
    decoded = Decoded((merged.words / PER_UNIT).astype(np.float32), gradient)
    return RETURNED.get(fault, lambda one: one)(decoded)


YIELDED: dict[str, Callable[[Message], Any]] = {
    "longer": lambda one: (replace(one, words=np.append(one.words, np.int32(0))),),
    "digest": lambda one: (replace(one, digest=7),),
    "undeclared": lambda one: (replace(one, merge=Merge.OR, words=one.words.view(np.uint32)),),
    "sound work": lambda one: (replace(one, work=Work(1, 1)),),
}
RETURNED: dict[str, Callable[[Decoded], Any]] = {
    "returns short": lambda one: replace(one, total=one.total[1:])
}


SWITCHML = TINY.replace("elements: 1000", "elements: 50000") + "  timeout: 1ms\n  timeout_max: 4ms\n"
ATP = SWITCHML[: SWITCHML.index("codec:")] + "codec: {kind: fixed_point, factor: 1e6}\n"
ATP += "collective: {kind: in_network, program: atp}\n"
SLOT = r"slot (\d+), version ([01]), unit (\d+) of stream (\d+)"


class RunSummary(NamedTuple):
    """What a run came to."""

    exit_code: int
    verdict: str
    variants: dict[str, dict[str, Any]]  # by name

    def checks(self, name: str) -> dict[str, str]:
        """Verdicts of a variant's checks."""
        return {check["name"]: check["verdict"] for check in self.variants[name]["checks"]}

    def detail(self, name: str, check: str) -> str:
        (found,) = [one["detail"] for one in self.variants[name]["checks"] if one["name"] == check]
        assert isinstance(found, str)
        return found


def run_netfold(folder: Path, file: Path, *sets: str, variant: str = "") -> RunSummary:
    """Run a scenario as a command, all variants or one, and see that its run folder says the same."""
    options = [word for one in sets for word in ("--set", one)] + (["--variant", variant] if variant else [])
    words = ["run", str(file), *options, "--out", str(folder / "runs"), "--no-report", "--json"]
    result = run_command(*words)
    summary = json.loads(result.stdout)
    variants = {entry["name"]: entry for entry in summary["variants"]}
    assert load(Path(summary["run_dir"])).summary["variants"] == summary["variants"]
    return RunSummary(result.exit_code, summary["verdict"], variants)


def faulty(folder: Path, fault: str, *sets: str, text: str = SWITCHML) -> RunSummary:
    return run_netfold(folder, write(folder, text), f"faults=[{fault}]", *sets)


@pytest.mark.parametrize("text", [SWITCHML, ATP], ids=["switchml", "atp"])
def test_a_worker_that_crashes(tmp_path: Path, text: str) -> None:
    """In the second step; the records of the first stay."""
    sets = ("workload.steps=3", "device={kind: fixed, forward: 1ms, backward: 1ms}")

    summary = faulty(tmp_path, "{kind: worker_crash, worker: 1, at: 3ms}", *sets, text=text)

    assert (summary.exit_code, summary.verdict) == (1, "stalled")
    detail = summary.detail("tiny", "finishes")
    assert "\n  workers 0 and 2 wait for " in detail
    assert ": worker 1 missing, " in detail
    assert "likely cause: worker 1 has crashed\n  try: " in detail
    assert "\n  worker 1 has crashed\n" in detail
    assert summary.variants["tiny"]["metrics"]["steps"] == 1
    assert summary.detail("tiny", "nothing_lost").startswith("1 of 3 rounds aggregated")
    assert summary.variants["tiny"]["metrics"]["merges_verified"] is True


def test_a_switch_that_clears_results_that_a_worker_lacks(tmp_path: Path) -> None:
    """SwitchML ends stalled if a result was lost beside it; ATP's server has it still."""
    summary = run_netfold(tmp_path, ROOT / "scenarios" / "04-switch-reboot.yaml")

    assert (summary.exit_code, summary.verdict) == (1, "stalled")
    assert {name: one["verdict"] for name, one in summary.variants.items()} == {
        "switchml": "pass",
        "switchml-loss-1": "stalled",
        "atp-loss-1": "pass",
    }
    for name in ("switchml", "atp-loss-1"):
        assert summary.variants[name]["metrics"]["merges_verified"] is True
        assert set(summary.checks(name).values()) == {"pass"}
    detail = summary.detail("switchml-loss-1", "finishes")
    first = re.search(f"first {SLOT} at s0: .* missing, last event ", detail)
    assert first is not None
    cause = re.search(
        r"^likely cause: worker (\d) already has this result, so it never sends the unit again: s0 lost the "
        r"slot after it was complete \(registers cleared at 200us\), before every worker had the result\n",
        detail,
    )
    assert cause is not None
    assert f"worker {cause[1]}" in first[0]


def test_copies_that_come_late(tmp_path: Path) -> None:
    """Taken for the next unit of their slot: a wrong sum, and SwitchML does not notice. netfold does."""
    late = "{kind: duplicate, rate: 3%, delay: 20us, links: ['h*->s0']}"
    summary = faulty(tmp_path, late, "collective.slots=512")

    assert (summary.exit_code, summary.verdict) == (1, "fail")
    checks = summary.checks("tiny")
    assert {name for name, verdict in checks.items() if verdict != "pass"} == {
        "sum_is_right",
        "merges_are_exact",
    }
    assert re.fullmatch(
        r"\d+ left behind in switches: slot \d+, version [01] at s0 waits for \d more.*; "
        r"injected faults explain it: duplicate copied \d+ packets on h\*->s0",
        summary.detail("tiny", "nothing_leaked"),
    )
    for check in ("sum_is_right", "merges_are_exact"):
        place = re.search(rf"worker \d, word (\d+) of 'values' .*: {SLOT}$", summary.detail("tiny", check))
        assert place is not None
        word, slot, _, unit, _ = (int(number) for number in place.groups())
        assert unit == 512 + word // 64  # exponents are a window ahead
        assert slot == unit % 512


JOBS = """\
jobs:
  - {name: sick, workers: 2}
  - {name: sound, workers: 2}
"""


def test_one_of_two_jobs_stalls(tmp_path: Path) -> None:
    """The other one is done and checked in full."""
    summary = faulty(tmp_path, "{kind: worker_crash, job: sick, worker: 1, at: 10us}", text=SWITCHML + JOBS)

    assert (summary.exit_code, summary.verdict) == (1, "stalled")
    assert summary.variants["tiny/sick"]["verdict"] == "stalled"
    assert summary.variants["tiny/sound"]["verdict"] == "pass"
    assert summary.checks("tiny/sound")["nothing_leaked"] == "pass"
    detail = summary.detail("tiny/sick", "finishes")
    assert "\n  worker 0 of job sick waits for " in detail
    assert "\n  worker 1 of job sick has crashed\n" in detail
    assert "diagnosis" not in summary.variants["tiny/sound"]


def test_slots_that_late_packets_leave_open_are_reported_and_no_failure(tmp_path: Path) -> None:
    """They arrive when all is done: the sums are right, and slots are opened that no packet will close."""
    left = r"\d+ left behind in switches: slot .*; "
    left += r"injected faults explain it: reorder delayed \d+ packets on h\*->s0"

    summary = faulty(tmp_path, "{kind: reorder, rate: 1%, delay: 50ms, links: ['h*->s0']}")

    assert (summary.exit_code, summary.verdict, set(summary.checks("tiny").values())) == (0, "pass", {"pass"})
    assert re.fullmatch(left, summary.detail("tiny", "nothing_leaked"))
    (warning,) = load(tmp_path / "runs" / "latest").summary["warnings"]
    assert warning == f"tiny: {summary.detail('tiny', 'nothing_leaked')}"


WORKERS, ELEMENTS = 5, 3000
NETWORKS = {
    "ring": {"kind": "ring"},
    "switchml": {"kind": "in_network", "program": "switchml", "frame": "udp-256", "slots": 4},
    "timed": {"kind": "in_network", "program": "timed", "slots": 4, "slot_timer": "1ms"},
}
PLACE = "worker 3, step 1, bucket 0, operation "
USUAL = "'steps' (add of 3000 int32 words)"
SAME = "all workers must send the same messages, and these read the same words before"
CONTRACT = {  # one of each part; the others are in tests/homomorphic/test_contract.py
    "undeclared": "0: message 'steps': `merges` does not name its OR, it names ADD, FLOAT_ADD",
    "no generator": "0: `exchange` returns float32 of shape (3000,), must be a generator: it needs a `yield`",
    "returns short": "1, after 'steps': decodes float32 of shape (2999,), must be float32 of shape (3000,)",
}
LOCK_STEP = {
    "skips": (0, "nothing more, having decoded 3000 elements", USUAL),
    "longer": (0, "'steps' (add of 3001 int32 words)", USUAL),
    "digest": (0, "'steps' (add of 3000 int32 words, digest 0x7)", USUAL),
    "extra": (1, "'more' (add of 3000 int32 words)", "nothing more, having decoded 3000 elements"),
}


@pytest.fixture(autouse=True)
def known(plain: None) -> Iterator[None]:
    with registered(Broken):
        yield


def given(fault: str, network: str = "switchml", **sections: Any) -> dict[str, Any]:
    workload = {"kind": "synthetic", "elements": ELEMENTS, "steps": 3}
    codec = {"kind": "toy_broken", "fault": fault}
    return scenario("toy_broken", WORKERS, workload=workload, collective=NETWORKS[network], **sections) | {
        "codec": codec
    }


def played(fault: str, network: str = "switchml") -> dict[str, Any]:
    """What the summary says of a run."""
    return entry_of(simulated(given(fault, network)))


def detail_of(entry: Mapping[str, Any], steps: int = 1) -> str:
    """The detail of `finishes` of a run that its codec ended after some steps."""
    finishes = next(check for check in entry["checks"] if check["name"] == "finishes")
    assert (entry["verdict"], finishes["verdict"], entry["metrics"]["steps"]) == ("fail", "fail", steps)
    return str(finishes["detail"])


@pytest.mark.parametrize(
    ("network", "fault"), [("ring", "none"), ("switchml", "sound work"), ("timed", "none")]
)
def test_the_codec_is_sound_but_for_its_faults(network: str, fault: str) -> None:
    assert played(fault, network)["verdict"] == "pass"


@pytest.mark.parametrize(
    ("network", "fault"),
    [
        *(("switchml", fault) for fault in LOCK_STEP),
        ("ring", "skips"),
        ("ring", "extra"),
        ("timed", "longer"),
    ],
)
def test_broken_lock_step_names_both_workers_and_messages(network: str, fault: str) -> None:
    entry = played(fault, network)

    operation, own, others = LOCK_STEP[fault]
    found = re.fullmatch(
        r"worker (\d) sends (.*) where worker (\d) sends (.*) \(step 1, bucket 0, operation (\d)\): (.*)",
        detail_of(entry),
    )
    assert found is not None
    sent = {int(found[1]): found[2], int(found[3]): found[4]}
    assert sent[3] == own
    (other,) = sent.keys() - {3}
    assert sent[other] == others
    assert (int(found[5]), found[6]) == (operation, SAME)
    assert "trace" not in entry
    (decodes,) = (check["verdict"] for check in entry["checks"] if check["name"] == "decodes")
    assert decodes == "pass"  # what was merged was decoded


@pytest.mark.parametrize("fault", CONTRACT)
def test_broken_contracts_say_what_was_found_and_what_is_allowed(fault: str) -> None:
    assert detail_of(played(fault)) == PLACE + CONTRACT[fault]


PLACED = r" \(test_failures.py, line \d+, in _exchange\)"


@pytest.mark.parametrize(
    ("network", "fault", "detail"),
    [
        ("switchml", "value", r"1, after 'steps': ValueError: no scale is right"),
        ("ring", "raises at once", r"0: ValueError: no scale is right"),
        ("switchml", "index", r"1, after 'steps': IndexError: index 3000 is out of bounds .*"),
        ("timed", "elsewhere", r"1, after 'steps': json.decoder.JSONDecodeError: .*"),
        ("switchml", "stop", r"1, after 'steps': RuntimeError: generator raised StopIteration"),
        ("ring", "text", r"1, after 'steps': RuntimeError: \\ud800x{270,}…"),
    ],
)
def test_what_a_codec_raises_is_a_verdict_with_its_place(
    tmp_path: Path, network: str, fault: str, detail: str
) -> None:
    run = netfold.run(given(fault, network), out=tmp_path)

    (entry,) = run.summary["variants"]
    assert re.fullmatch(re.escape(PLACE) + detail + PLACED, detail_of(entry), re.DOTALL)
    trace = entry["trace"]
    assert trace.startswith('Traceback (most recent call last):\n  File "test_failures.py", line ')
    assert re.search(r"raise RAISED|words\[words.size\]|json.loads", trace)
    assert "codec_errors" not in trace
    assert str(Path(__file__).parents[3]) not in trace
    assert ('File "decoder.py"' in trace) == (fault == "elsewhere")
    assert "RAISED" in run.report().read_text(encoding="utf-8") or fault in ("index", "elsewhere")


@pytest.mark.parametrize(
    ("fault", "detail"),
    [
        ("worker raises", r"worker 3: `worker`: KeyError: 'rank' \(test_failures.py, line \d+, in worker\)"),
        ("worker returns", "worker 3: the codec's `worker` returns nothing, must be an Encoder"),
        (
            "bound raises",
            r"step 0, bucket 0: ZeroDivisionError: no workers \(test_failures.py, line \d+, in error_bound\)",
        ),
    ],
)
def test_other_parts_of_a_codec_that_fail(fault: str, detail: str) -> None:
    assert re.fullmatch(detail, detail_of(played(fault), steps=0))


def test_states_that_fail() -> None:
    encoder = WorkerEncoder(Broken(), 2, 4, 1)

    assert encoder.state() == {}
    with pytest.raises(
        CodecError, match=r"^worker 2: `restore`: ValueError: BrokenEncoder remembers nothing"
    ):
        encoder.restore({"sum": BrokenEncoder})  # type: ignore[dict-item]


def test_other_jobs_and_variants_run_to_their_end_without_a_traceback_on_the_terminal(tmp_path: Path) -> None:
    jobs = [
        {"name": "well", "codec": {"kind": "toy_broken"}, "workers": 4},
        {"name": "sick", "codec": {"kind": "toy_broken", "fault": "value"}, "workers": 4},
    ]
    both = given("none", topology={"kind": "star", "hosts": 8, "switch": "ideal"})
    both |= {"variants": [{"name": "first", "jobs": jobs}, {"name": "last", "workers": 4}]}
    file = tmp_path / "toy.yaml"
    file.write_text(json.dumps(both), encoding="utf-8")  # JSON is YAML

    result = run_command("run", file, "--out", tmp_path, "--no-report")

    assert result.exit_code == 1
    assert isinstance(result.exception, SystemExit)
    detail = f"{PLACE}1, after 'steps': ValueError: no scale is right (test_failures.py"
    assert f"first/sick: finishes: fail: {detail}" in result.stdout
    assert "Traceback" not in result.output
    variants = load(tmp_path / "latest").summary["variants"]
    assert {one["name"]: one["verdict"] for one in variants} == {
        "first/well": "pass",
        "first/sick": "fail",
        "last": "pass",
    }


@pytest.mark.parametrize(
    ("fault", "error", "told"),
    [
        ("memory", netfold.RunError, "not enough memory: no room"),
        ("interrupt", KeyboardInterrupt, None),
        ("invariant", netfold.InvariantError, "bytes are missing"),
    ],
)
def test_what_is_no_fault_of_the_codec_keeps_its_meaning(
    tmp_path: Path, fault: str, error: type[BaseException], told: str | None
) -> None:
    with pytest.raises(error, match=told):
        netfold.run(given(fault), out=tmp_path)


def test_errors_of_netfold_itself_are_not_blamed_on_the_codec() -> None:
    with pytest.raises(ZeroDivisionError), blaming(SignCodec(), "here"):
        1 / 0  # noqa: B018
    with (
        pytest.raises(CodecError, match=r"^here: ZeroDivisionError: no workers \(test_failures\.py, "),
        blaming(Broken("bound raises"), "here"),
    ):
        Broken("bound raises").error_bound([])
    with pytest.raises(CodecError, match=r"^no retry helps \(here\)$") as caught, blaming(Broken(), "here"):
        raise DecodeError("no retry helps")
    assert caught.value.is_undecoded
    with pytest.raises(CodecError, match=r"^here: worker 1 sends something else$"), blaming(Broken(), "here"):
        raise LockStepError("worker 1 sends something else")


NETFOLD = f"from netfold.commands import terminal; terminal.LOG_EVERY_S = 0.2; {INTERRUPTIBLE}"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


@pytest.fixture
def warm_and_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Output does not depend on the machine: kernels are compiled, and nothing takes long."""
    monkeypatch.setattr(netfold.sim.run.run, "compiling", lambda progress, jobs: nullcontext())
    monkeypatch.setattr(netfold.commands.terminal, "LOG_EVERY_S", math.inf)


def run_to_its_exit(folder: Path, *arguments: str) -> Result:
    words = ["run", str(write(folder)), "--out", str(folder / "runs"), "--no-report", *arguments]
    return run_command(*words)


@pytest.mark.usefixtures("warm_and_quick")
def test_a_run_that_passes_exits_with_0_and_says_that_kernels_are_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = run_to_its_exit(tmp_path, "--seed", "3")

    assert (result.exit_code, result.stderr) == (0, "tiny (0 of 1 steps done)\n")
    assert load(tmp_path / "runs" / "latest").summary["verdict"] == "pass"
    assert load(tmp_path / "runs" / "latest").summary["seed"] == 3

    @contextmanager
    def as_if_cold(progress: Callable[[str, float, float], None], jobs: object) -> Iterator[None]:
        progress(COMPILING, 1, 24)
        yield

    monkeypatch.setattr(netfold.sim.run.run, "compiling", as_if_cold)
    result = run_to_its_exit(tmp_path)
    assert (result.exit_code, result.stderr) == (0, "compiling kernels, once\n")


def test_another_process_compiles_the_engine_while_the_run_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here it is a script, which says that 3 of 4 functions are compiled."""
    (tmp_path / "python").write_text("#!/bin/sh\necho 3 4\n")
    (tmp_path / "python").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(ahead, "is_cold", lambda: True)
    monkeypatch.setattr(ahead, "threads_count", lambda: 2)
    told: list[tuple[str, float, float]] = []

    with ahead.compiling(lambda *words: told.append(words), plan(tmp_path).variants[0].jobs):
        wait_for_others(run_until.py_func)

    done, known = counts()
    assert told[-1] == (COMPILING, done + 3, known + 4)


def test_the_whole_engine_is_all_but_atp_and_steering(monkeypatch: pytest.MonkeyPatch) -> None:
    is_compiled = dict.fromkeys(HANDLERS._is_compiled, False)
    monkeypatch.setattr(HANDLERS, "_is_compiled", is_compiled)
    compile_engine()
    assert not any(is_compiled.values())
    compile_engine(is_whole=True)
    assert sorted(request for request in is_compiled if not is_compiled[request]) == sorted(
        (*FOR_ATP, *FOR_STEERING)
    )


@nightly
@pytest.mark.processes
def test_compiled_code_is_looked_for_where_it_lies(tmp_path: Path) -> None:
    """Numba keeps it apart for each path of a source."""

    def is_cold_in(checkout: Path, **more: str) -> bool:
        """What a process says that runs these sources."""
        code = "from netfold.sim.run.compiling import is_cold; print(is_cold())"
        found = run_python("-c", code, cwd=checkout, PYTHONPATH=str(checkout), **more)
        return found.stdout == "True\n"

    compile_engine()
    assert not is_cold()
    assert not is_cold_in(ROOT)
    assert is_cold_in(ROOT, NUMBA_CACHE_DIR=str(tmp_path / "empty"))

    shutil.copytree(ROOT / "netfold", tmp_path / "checkout" / "netfold")
    assert is_cold_in(tmp_path / "checkout")


def test_codecs_of_netfold_alone_are_rehearsed_and_their_errors_left_to_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    called: list[type] = []

    def fail(codec: FixedPoint, *_: object) -> None:
        called.append(type(codec))
        raise ZeroDivisionError

    class Users(FixedPoint):
        """A codec from elsewhere."""

    monkeypatch.setattr(FixedPoint, "worker", fail)
    _rehearse([Users(), FixedPoint(), Users(), FixedPoint()])

    assert called == [FixedPoint, FixedPoint]


@pytest.mark.slow
@pytest.mark.processes
def test_an_interrupted_run_reports_progress_exits_with_130_and_leaves_nothing(tmp_path: Path) -> None:
    """Without a terminal: a line now and then, until Ctrl-C."""
    path = write(tmp_path, TINY.replace("elements: 1000", "elements: 1000\n  steps: 1000000"))
    command = [sys.executable, "-c", NETFOLD, "run", str(path), "--out", str(tmp_path / "runs")]
    with subprocess.Popen(
        command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        shown = [process.stderr.readline() for _ in range(3)]
        process.send_signal(signal.SIGINT)
        output, rest = process.communicate(timeout=60)

    assert shown[0] == "tiny (0 of 1000000 steps done)\n"
    assert all("% of all steps done" in line for line in shown[1:])
    assert (process.returncode, output, rest.splitlines()[-1]) == (130, "", "interrupted")
    assert not (tmp_path / "runs").exists()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Its `now_s` replaces the clock."""
    clock = SimpleNamespace(now_s=1000.0)
    monkeypatch.setattr(time, "monotonic", lambda: clock.now_s)
    return clock


def test_compiling_is_logged_in_kernels_as_their_number_grows(
    clock: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    with progress_bar() as progress:
        for done, known in ((1, 1), (2, 90), (99, 100), (101, 140)):
            progress(COMPILING, done, known)
            clock.now_s += 6  # a line every 10 s

    assert capsys.readouterr().err.splitlines() == [COMPILING, f"{COMPILING} (99 of 100 done)"]


def test_many_short_steps_are_logged(clock: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """100,000 steps of 400 us: 40 s, so a line at the start and one after each 10 s."""
    with progress_bar() as progress:
        reporter = ProgressReporter(progress, "b", 0, 100_000)
        for step in range(100_000):
            reporter.begin_step()
            clock.now_s += 200e-6
            reporter.report(f"gradients of step {step}")
            clock.now_s += 200e-6

    first, *others = capsys.readouterr().err.splitlines()
    assert first == "b (0 of 100000 steps done)"
    assert [line.rpartition("(")[2] for line in others] == [
        f"{share} % of all steps done, about {40 - share * 40 // 100} s left)" for share in (25, 50, 75)
    ]
    assert all(line.startswith(("b (", "b: gradients of step ")) for line in others)


def test_steps_are_reported_at_most_ten_times_a_second(clock: Any) -> None:
    reports: list[tuple[str, float]] = []
    reporter = ProgressReporter(lambda what, done, _: reports.append((what, done)), "b", 0, 1000)
    for _ in range(1000):
        reporter.begin_step()
        clock.now_s += 0.00999

    assert reports[0] == ("b", 0)
    assert 90 <= len(reports) <= 101
    assert [done for _, done in reports] == sorted(done for _, done in reports)


def test_a_long_step_reports_while_it_runs(clock: Any) -> None:
    reports: list[tuple[str, float]] = []
    reporter = ProgressReporter(lambda what, done, total: reports.append((what, done)), "b", 2, 4)
    reporter.begin_step()
    reporter.report("too soon", 0.1)
    clock.now_s += 0.2
    reporter.report("half", 0.5)

    assert reports == [("b", 2), ("b: half", 2.5)]


def test_it_is_said_what_is_being_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_EVERY_S", 0.0)
    told: list[str] = []
    whole = plan(tmp_path)
    run_variant(whole, whole.variants[0], ProgressReporter(lambda what, *_: told.append(what), "tiny"))

    assert told[-2:] == ["tiny: bucket 0 of step 0 is being checked", "tiny: results are being checked"]
