"""A codec that raises, or breaks its contract or lock-step, ends its variant with a verdict."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import netfold
from netfold.homomorphic.codec import DecodeError
from netfold.homomorphic.fold import LockStepError
from netfold.homomorphic.round import Step
from netfold.sim.commands.main import app
from netfold.sim.results import load
from netfold.sim.run.codec_errors import CodecError, blaming, make_encoder
from tests.sim.run.broken import Broken, BrokenEncoder
from tests.sim.toys import registered, scenario

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


def detail_of(run: netfold.Run, steps: int = 1) -> str:
    """The detail of `finishes` of a run that its codec ended after some steps."""
    found = {name: (verdict, detail) for _, name, verdict, detail in run.checks.rows()}
    assert run.verdict == "fail"
    assert run.summary["variants"][0]["metrics"]["steps"] == steps
    verdict, detail = found["finishes"]
    assert verdict == "fail"
    return str(detail)


@pytest.mark.parametrize(
    ("network", "fault"), [("ring", "none"), ("switchml", "sound work"), ("timed", "none")]
)
def test_the_codec_is_sound_but_for_its_faults(tmp_path: Path, network: str, fault: str) -> None:
    assert netfold.run(given(fault, network), out=tmp_path).verdict == "pass"


@pytest.mark.parametrize(
    ("network", "fault"),
    [
        *(("switchml", fault) for fault in LOCK_STEP),
        ("ring", "skips"),
        ("ring", "extra"),
        ("timed", "longer"),
    ],
)
def test_broken_lock_step_names_both_workers_and_messages(tmp_path: Path, network: str, fault: str) -> None:
    run = netfold.run(given(fault, network), out=tmp_path)

    operation, own, others = LOCK_STEP[fault]
    found = re.fullmatch(
        r"worker (\d) sends (.*) where worker (\d) sends (.*) \(step 1, bucket 0, operation (\d)\): (.*)",
        detail_of(run),
    )
    assert found is not None
    sent = {int(found[1]): found[2], int(found[3]): found[4]}
    assert sent[3] == own
    (other,) = sent.keys() - {3}
    assert sent[other] == others
    assert (int(found[5]), found[6]) == (operation, SAME)
    assert "trace" not in run.summary["variants"][0]
    decodes = run.checks.filter(name="decodes")["verdict"].to_list()
    assert decodes == ["pass"]  # what was merged was decoded


@pytest.mark.parametrize("fault", CONTRACT)
def test_broken_contracts_say_what_was_found_and_what_is_allowed(tmp_path: Path, fault: str) -> None:
    assert detail_of(netfold.run(given(fault), out=tmp_path)) == PLACE + CONTRACT[fault]


PLACED = r" \(broken.py, line \d+, in _exchange\)"


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

    assert re.fullmatch(re.escape(PLACE) + detail + PLACED, detail_of(run), re.DOTALL)
    trace = run.summary["variants"][0]["trace"]
    assert trace.startswith('Traceback (most recent call last):\n  File "broken.py", line ')
    assert re.search(r"raise RAISED|words\[words.size\]|json.loads", trace)
    assert "codec_errors" not in trace
    assert str(Path(__file__).parents[3]) not in trace
    assert ('File "decoder.py"' in trace) == (fault == "elsewhere")
    assert "RAISED" in run.report().read_text(encoding="utf-8") or fault in (
        "index",
        "elsewhere",
    )


@pytest.mark.parametrize(
    ("fault", "steps", "detail"),
    [
        ("worker raises", 0, r"worker 3: `worker`: KeyError: 'rank' \(broken.py, line \d+, in worker\)"),
        ("worker returns", 0, "worker 3: the codec's `worker` returns nothing, must be an Encoder"),
        (
            "bound raises",
            0,
            r"step 0, bucket 0: ZeroDivisionError: no workers \(broken.py, line \d+, in error_bound\)",
        ),
    ],
)
def test_other_parts_of_a_codec_that_fail(tmp_path: Path, fault: str, steps: int, detail: str) -> None:
    assert re.fullmatch(detail, detail_of(netfold.run(given(fault), out=tmp_path), steps))


def test_a_beginning_of_a_step_that_fails() -> None:
    encoder = make_encoder(Broken("begin raises"), 2, 4, 1)

    with pytest.raises(
        CodecError, match=r"^worker 2, step 7: `begin`: OSError: no weights \(broken.py, line "
    ):
        encoder.begin(Step(7))


def test_states_that_fail() -> None:
    encoder = make_encoder(Broken(), 2, 4, 1)

    assert encoder.state() == {}
    assert encoder.per_unit == 1024  # type: ignore[attr-defined]
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

    result = CliRunner().invoke(app, ["run", str(file), "--out", str(tmp_path), "--no-report"])

    assert result.exit_code == 1
    assert isinstance(result.exception, SystemExit)
    detail = f"{PLACE}1, after 'steps': ValueError: no scale is right (broken.py"
    assert f"first/sick: finishes: fail: {detail}" in result.stdout
    assert "Traceback" not in result.output
    variants = load(tmp_path / "latest").summary["variants"]
    assert {one["name"]: one["verdict"] for one in variants} == {
        "first/well": "pass",
        "first/sick": "fail",
        "last": "pass",
    }


def test_memory_that_ends_is_no_fault_of_the_codec(tmp_path: Path) -> None:
    with pytest.raises(netfold.RunError, match="not enough memory: no room"):
        netfold.run(given("memory"), out=tmp_path)


def test_interrupts_and_broken_invariants_keep_their_meaning(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        netfold.run(given("interrupt"), out=tmp_path)
    with pytest.raises(netfold.InvariantError, match="bytes are missing"):
        netfold.run(given("invariant"), out=tmp_path)


def test_errors_of_netfold_itself_are_not_blamed_on_the_codec() -> None:
    with pytest.raises(ZeroDivisionError), blaming(Broken(), "here"):
        1 / 0  # noqa: B018
    with (
        pytest.raises(CodecError, match=r"^here: ZeroDivisionError: no workers \(broken\.py, "),
        blaming(Broken("bound raises"), "here"),
    ):
        Broken("bound raises").error_bound([])
    with pytest.raises(CodecError, match=r"^no retry helps \(here\)$") as caught, blaming(Broken(), "here"):
        raise DecodeError("no retry helps")
    assert caught.value.is_undecoded
    with pytest.raises(CodecError, match=r"^here: worker 1 sends something else$"), blaming(Broken(), "here"):
        raise LockStepError("worker 1 sends something else")
