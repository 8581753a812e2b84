"""Damaged and foreign run folders, and what is none: refused in words, or used without a mistake."""

from __future__ import annotations

import copy
import hashlib
import io
import json
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from netfold.errors import DataError
from netfold.sim.plan.idle_network import PredictedTime
from netfold.sim.plan.plan import Reference
from netfold.sim.plan.prices import Bill
from netfold.sim.report.compare import compare, results_table
from netfold.sim.report.html_report import render, write_pages
from netfold.sim.results.file_formats import FORMAT, TABLES
from netfold.sim.results.folder import load, write_run
from netfold.sim.results.job_times import JobTimes
from netfold.sim.results.metrics import METRICS, VariantFacts
from netfold.sim.results.records import FaultRecord
from netfold.sim.results.summary import summarize
from tests.examples import examples
from tests.sim.results.builders import LOSSLESS, RING, records, run_data, summary

ODD: tuple[Any, ...] = (None, True, -1, 0, 10**400, 1e308, "", "text", [], {}, [None], {"x": [1]})
MISSING = object()
Place = tuple[str | int, ...]


def places(value: Any, place: Place = ()) -> Iterator[Place]:
    """Where the values of plain data are, the outermost first."""
    yield place
    children = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, child in children:
        yield from places(child, (*place, key))


def changed(value: Any, place: Place, new: Any) -> Any:
    """Plain data with another value at a place, or without it if that is MISSING."""
    if not place:
        return None if new is MISSING else new
    value = copy.deepcopy(value)
    holder = value
    for key in place[:-1]:
        holder = holder[key]
    if new is MISSING:
        del holder[place[-1]]
    else:
        holder[place[-1]] = new
    return value


def damaged(content: bytes, seed: int) -> bytes:
    """Bytes cut short, changed here and there, or with others between them."""
    drawn = random.Random(seed)
    place = drawn.randrange(len(content))
    way = drawn.randrange(4)
    if way == 0:
        return content[:place]
    if way == 1:
        return content[:place] + drawn.randbytes(drawn.randrange(1, 9)) + content[place:]
    if way == 2:
        return content[:place] + content[place + drawn.randrange(1, 40) :]
    several = bytearray(content)
    for _ in range(drawn.randrange(1, 5)):
        several[drawn.randrange(len(content))] = drawn.randrange(256)
    return bytes(several)


DAMAGED = "\n  the folder is damaged or was changed: run the scenario again"
FAULT = FaultRecord("ring", 0, "loss", "*", "", 4, "packets", 1000)
SLOT = {
    **{"job": "", "switch": "s0", "slot": 0, "version": 0, "stream": 0, "unit": 0, "waiting": [0, 1]},
    **{"missing": ["worker 1"], "missing_count": 1, "age_ps": 5, "last_event": "a packet", "why": "loss"},
    **{"advice": "none", "is_consequence": False},
}
MESSAGE = {
    **{"job": "", "source": "h0", "target": "h1", "age_ps": 4, "why": "loss", "advice": "none"},
    "is_consequence": False,
}
DIAGNOSIS = {
    **{"time_ps": 5, "quiet_ps": 3, "slots": [SLOT], "slots_count": 1, "messages": [MESSAGE]},
    **{"messages_count": 1, "idle": ["worker 0 waits"]},
}
JSON_FILES = ("summary.json", "checks.json", "run.json")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has something of everything."""
    ring = replace(RING, losses=(0.7, 0.6), references=(Reference("published", 1e9, "a paper"),))
    data = run_data(ring, replace(LOSSLESS, choices=("packed", "dense")), faults=[FAULT])
    whole = dict(data.summary)
    whole["variants"][0]["diagnosis"] = DIAGNOSIS
    whole["unfinished"] = ["third"]
    whole["inputs"] = [{"path": "g.npy", "kept": False, "bytes": 7, "sha256": "ab"}]
    whole["injected"] = [{name: getattr(FAULT, name) for name in FAULT.__slots__}]
    return write_run(tmp_path_factory.mktemp("runs"), replace(data, summary=whole))


@pytest.fixture
def whole(folder: Path) -> Any:
    """The files of the folder, put back after a test."""
    files = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    yield files
    for path, content in files.items():
        path.unlink(missing_ok=True)
        path.write_bytes(content)


def use(folder: Path) -> str:
    """Do with a run folder all that commands do, drawing left out; the error's text, or nothing."""
    try:
        run = load(folder)
        console = Console(file=io.StringIO(), width=80)
        console.print(compare([folder]).table())
        console.print(results_table(run.summary))
        json.dumps(compare([folder]).as_dict(), allow_nan=False)
        render(run, {})
    except DataError as error:
        return f"{error.message}\n  {error.hint}"
    return ""


def refusal(folder: Path, name: str, change: Callable[[Any], Any]) -> str:
    """The error's text without the folder's path, after a change of one of its JSON files."""
    path = folder / name
    path.write_text(json.dumps(change(json.loads(path.read_bytes()))))
    return use(folder).replace(f"{folder}/", "")


def test_a_whole_folder_is_fine(folder: Path) -> None:
    assert use(folder) == ""


@pytest.mark.usefixtures("whole")
@pytest.mark.parametrize(
    ("name", "place", "new", "message"),
    [
        ("summary.json", (), [], "summary.json: must be a mapping, found an empty list"),
        (
            *("summary.json", ("variants", 0, "metrics", "iteration_time_us"), MISSING),
            "summary.json: variants.0.metrics.iteration_time_us: is missing",
        ),
        (
            *("summary.json", ("variants", 0, "metrics", "workers"), 0),
            "summary.json: variants.0.metrics.workers: must be 1 or more, found 0",
        ),
        (
            *("summary.json", ("variants", 0, "metrics", "packets"), True),
            "summary.json: variants.0.metrics.packets: must be a whole number, found true",
        ),
        (
            *("summary.json", ("variants", 0, "verdict"), "fine"),
            "summary.json: variants.0.verdict: must be pass, approximate: N entries, stalled or fail, "
            "found 'fine'",
        ),
        (*("summary.json", ("variants", 1, "name"), "ring"), "summary.json: two variants have the same name"),
        (
            *("summary.json", ("variants", 0, "metrics", "steps"), 3),
            "steps.parquet: has 2 steps of 'ring', summary.json says 3",
        ),
        ("checks.json", (0, "variant"), 7, "checks.json: 0.variant: must be text, found 7"),
    ],
)
def test_what_is_wrong_is_reported_with_file_and_key(
    folder: Path, name: str, place: tuple[str | int, ...], new: object, message: str
) -> None:
    assert refusal(folder, name, lambda found: changed(found, place, new)) == message + DAMAGED


@pytest.mark.usefixtures("whole")
@pytest.mark.parametrize("around", [lambda inner: {"kind": inner}, lambda inner: [inner]])
def test_a_setup_that_is_nested_deep_is_reported(folder: Path, around: Callable[[Any], Any]) -> None:
    def nested(found: Any) -> Any:
        inner: Any = "star"
        for _ in range(900):
            inner = around(inner)
        return changed(found, ("variants", 0, "setup"), {"topology": {"kind": inner}})

    assert refusal(folder, "summary.json", nested) == f"summary.json: damaged: nested too deep{DAMAGED}"


@pytest.mark.usefixtures("whole")
@pytest.mark.parametrize(
    ("name", "place", "new"),
    [
        ("summary.json", ("sets",), ["a=\ud800"]),
        ("summary.json", ("variants", 0, "setup"), {"codec": {"\ud800": 1}}),
        ("checks.json", (0, "detail"), "\udfff"),
    ],
)
def test_text_that_is_no_unicode_is_reported(folder: Path, name: str, place: Any, new: Any) -> None:
    message = refusal(folder, name, lambda found: changed(found, place, new))

    assert message.startswith(f"{name}: damaged: holds text that is not Unicode: ")
    assert message.endswith(DAMAGED)


@pytest.mark.usefixtures("whole")
def test_all_that_is_wrong_is_counted(folder: Path) -> None:
    def change(found: Any) -> Any:
        found["seed"], found["sets"] = "1", None
        return found

    assert refusal(folder, "summary.json", change) == (
        f"summary.json: seed: must be a whole number, found '1' (and 1 more){DAMAGED}"
    )


@pytest.mark.usefixtures("whole")
@pytest.mark.parametrize(
    ("version", "message"),
    [
        (
            MISSING,
            "summary.json: has no format version: an older netfold wrote it\n"
            f"  this netfold reads format {FORMAT}: run the scenario again, or use the version in run.json",
        ),
        (
            FORMAT + 1,
            f"summary.json: has format {FORMAT + 1}, a newer netfold wrote it: "
            f"this one reads format {FORMAT}\n"
            "  use the netfold version in run.json or a newer one, or run the scenario again with this one",
        ),
        (
            1,
            f"summary.json: has format 1, an older netfold wrote it: this one reads format {FORMAT}; since "
            "format 1, the metric and column 'exact' are two: 'bit_exact' and 'merges_verified'; since "
            "format 2, the verdict 'stuck' is 'stalled', and 'redo' (label, kind of notes, 'redo_messages') "
            "is 'fallback'\n  run the scenario again, or use the version in run.json",
        ),
        (
            2,
            f"summary.json: has format 2, an older netfold wrote it: this one reads format {FORMAT}; since "
            "format 2, the verdict 'stuck' is 'stalled', and 'redo' (label, kind of notes, 'redo_messages') "
            "is 'fallback'\n  run the scenario again, or use the version in run.json",
        ),
        ("1", f"summary.json: format: must be {FORMAT}, found '1'{DAMAGED}"),
    ],
)
def test_another_format(folder: Path, version: object, message: str) -> None:
    assert refusal(folder, "summary.json", lambda found: changed(found, ("format",), version)) == message


def test_a_newer_format_is_reported_before_what_it_changed(folder: Path, whole: Any) -> None:
    (folder / "summary.json").write_text(json.dumps({"format": FORMAT + 1}))
    (folder / "rounds.parquet").unlink()

    assert "a newer netfold wrote it" in use(folder)


@pytest.mark.usefixtures("whole")
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[" * 100_000, "damaged: nested too deep"),
        (b'{"format": 3, "seed": NaN}', "damaged: NaN is not a JSON number"),
        (b"\xff{}", "damaged: 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"),
        (b"[{]", "damaged: Expecting property name enclosed in double quotes: line 1 column 3 (char 2)"),
    ],
)
def test_json_that_is_none(folder: Path, content: bytes, message: str) -> None:
    (folder / "summary.json").write_bytes(content)

    assert use(folder) == f"{folder}/summary.json: {message}{DAMAGED}"


@pytest.mark.usefixtures("whole")
@pytest.mark.parametrize("name", ["checks.json", "phases.parquet"])
def test_what_is_no_regular_file_is_not_opened(folder: Path, name: str) -> None:
    (folder / name).unlink()
    os.mkfifo(folder / name)

    assert use(folder) == f"{folder}/{name}: cannot be read: it is a pipe{DAMAGED}"


NOWHERE = "no such run folder\n  give a folder that `netfold run` printed, or runs/latest"
NO_RUN = (
    "not a run folder, it has no summary.json\n  give a folder that `netfold run` printed, or runs/latest"
)


def test_what_is_no_run_folder(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "notes.txt").touch()
    run = write_run(tmp_path / "runs", run_data())

    assert use(tmp_path / "nowhere") == f"{tmp_path}/nowhere: {NOWHERE}"
    assert use(tmp_path / "loop") == f"{tmp_path}/loop: {NOWHERE}"
    assert use(tmp_path) == f"{tmp_path}: {NO_RUN}"
    assert use(tmp_path / "notes.txt") == f"{tmp_path}/notes.txt: {NO_RUN}"
    assert use(run.parent) == (
        f"{run.parent}: not a run folder, it has no summary.json\n  did you mean {run}?"
    )
    partial = run.rename(run.with_name(".partial-here-1-0"))
    assert use(partial) == (
        f"{partial}: this run did not finish\n  run its scenario again; this folder can be removed"
    )
    assert use(tmp_path / "runs" / "latest") == f"{tmp_path}/runs/latest: {NOWHERE}"


@pytest.mark.usefixtures("whole")
@pytest.mark.parametrize("name", ["rounds.parquet", "checks.json", "run.json", "scenario.yaml"])
def test_a_file_that_is_missing(folder: Path, name: str) -> None:
    (folder / name).unlink()

    assert use(folder) == (
        f"{folder}: {name} is missing from this run folder\n  a finished run has it; run the scenario again"
    )


@pytest.mark.parametrize("name", ["report.html", "run.json", "figures/..", "."])
def test_a_file_of_a_run_gives_the_run(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever its folder was moved to."""
    folder = write_run(tmp_path, run_data()).rename(tmp_path / "elsewhere")
    write_pages(folder, {}, "the report")
    monkeypatch.chdir(folder)

    assert load(Path(name)).path == load(folder / name).path == folder


@pytest.mark.usefixtures("whole")
def test_files_and_tables_have_limits(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = max(pl.read_parquet(folder / f"{name}.parquet").height for name in TABLES)
    monkeypatch.setattr("netfold.sim.results.folder.ROWS_MAX", rows)
    assert use(folder) == ""
    monkeypatch.setattr("netfold.sim.results.folder.ROWS_MAX", rows - 1)
    assert use(folder) == (f"{folder}/phases.parquet: has {rows} rows, the most is {rows - 1}{DAMAGED}")
    monkeypatch.setattr("netfold.sim.results.folder.ROWS_MAX", rows)

    size = (folder / "summary.json").stat().st_size
    monkeypatch.setattr("netfold.sim.results.folder.TEXT_BYTES_MAX", size)
    assert use(folder) == ""

    monkeypatch.setattr("netfold.sim.results.folder.TEXT_BYTES_MAX", size - 1)
    assert use(folder) == (
        f"{folder}/summary.json: cannot be read: it is too large: it has {size} bytes, "
        f"up to {size - 1} are read{DAMAGED}"
    )


def forge(folder: Path, name: str, frame: pl.DataFrame) -> None:
    """Replace a table, and its digest."""
    buffer = io.BytesIO()
    frame.write_parquet(buffer)
    (folder / f"{name}.parquet").write_bytes(buffer.getvalue())
    found = json.loads((folder / "summary.json").read_bytes())
    found["tables"][f"{name}.parquet"] = hashlib.sha256(buffer.getvalue()).hexdigest()
    (folder / "summary.json").write_text(json.dumps(found))


@pytest.mark.usefixtures("whole")
@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        (
            "steps",
            {"end_ps": pl.lit(None, pl.Int64)},
            "steps.parquet: end_ps: row 0 is empty, it must have a value",
        ),
        (
            "links",
            {"busy_ps": pl.lit(-1, pl.Int64)},
            "links.parquet: busy_ps: row 0 is -1, must be 0 or more",
        ),
        (
            "phases",
            {"bucket": pl.lit(-2, pl.Int64)},
            "phases.parquet: bucket: row 0 is -2, must be -1 or more",
        ),
        (
            "phases",
            {"phase": pl.lit("sleep")},
            "phases.parquet: phase: must be one of forward, backward, more passes, update, wait, encode, "
            "network, decode, found 'sleep'",
        ),
        ("notes", {"variant": pl.lit("x")}, "notes.parquet: variant: 'x' is not in summary.json"),
    ],
)
def test_a_table_that_contradicts(folder: Path, name: str, change: dict[str, pl.Expr], message: str) -> None:
    forge(folder, name, pl.read_parquet(folder / f"{name}.parquet").with_columns(**change))

    assert use(folder) == f"{folder}/{message}{DAMAGED}"


@pytest.mark.usefixtures("whole")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("rename", "columns end_ns, end_ps differ from those that this version of netfold writes"),
        ("reverse", "columns are in another order than this version of netfold writes"),
    ],
)
def test_columns_of_another_version(folder: Path, name: str, message: str) -> None:
    frame = pl.read_parquet(folder / "steps.parquet")
    changes = {"rename": frame.rename({"end_ps": "end_ns"}), "reverse": frame.select(reversed(frame.columns))}
    forge(folder, "steps", changes[name])

    assert use(folder) == (
        f"{folder}/steps.parquet: {message}\n"
        "  run the scenario again, or read the file with the version in run.json"
    )


@pytest.mark.usefixtures("whole")
def test_a_table_cut_short_never_reaches_its_reader(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A Parquet reader may panic and print on damaged bytes."""
    path = folder / "rounds.parquet"
    content = path.read_bytes()
    for end in range(0, len(content), 97):
        path.write_bytes(content[:end])
        assert use(folder).startswith(f"{folder}/rounds.parquet: damaged: {end} bytes whose SHA-256 is ")
    assert capfd.readouterr().err == ""


@given(name=st.sampled_from(JSON_FILES), drawn=st.data())
@examples(12)
def test_no_value_of_a_json_file_leads_to_a_traceback(folder: Path, name: str, drawn: st.DataObject) -> None:
    path = folder / name
    before = path.read_bytes()
    found = json.loads(before)
    place = drawn.draw(st.sampled_from(list(places(found))))
    new = drawn.draw(st.sampled_from((MISSING, *ODD)))
    try:
        path.write_text(json.dumps(changed(found, place, new)))
        use(folder)
    finally:
        path.write_bytes(before)


@given(
    name=st.sampled_from((*JSON_FILES, "scenario.yaml", *(f"{table}.parquet" for table in TABLES))),
    seed=st.integers(0, 10**6),
)
@examples(25)
def test_no_bytes_of_a_file_lead_to_a_traceback(folder: Path, name: str, seed: int) -> None:
    path = folder / name
    before = path.read_bytes()
    try:
        path.write_bytes(damaged(before, seed))
        use(folder)
    finally:
        path.write_bytes(before)


def test_some_metrics_are_of_some_variants_only() -> None:
    """Two are of sprayed packets, four of a score to reach, five of jobs, six of a network's parts, one of a
    dense message.
    """
    job_times = JobTimes(arrival_ps=0, admitted_ps=0, end_ps=1, alone_ps=1, admission="fifo")
    bill = Bill(1, 1, 1, 1, 1, 1, 1, 1, 0)
    fact = VariantFacts(RING.workers, 17, 9, reordering=(3, 1), target=0.5, bill=bill, job_times=job_times)
    fact = replace(fact, prediction=PredictedTime(latency_ps=1e6, word_ps=100.0, link_word_ps=0.0))
    dense = replace(RING, buckets=1, messages=(("values", 5, 4 * RING.elements),))
    sprayed = summarize({RING.name: fact}, records(dense))["variants"][0]["metrics"]
    assert sprayed["predicted_time_us"] == 1.0 + 1e-4 * RING.elements
    assert (sprayed["packets_reordered"], sprayed["packets_retransmitted_in_vain"]) == (3, 1)

    assert {metric.name for metric in METRICS} == set(sprayed)
    others = summary(RING)["variants"][0]["metrics"]
    assert set(sprayed) - set(others) == {
        *("packets_reordered", "packets_retransmitted_in_vain", "predicted_time_us"),
        *("target", "steps_to_target", "time_to_target_us", "bytes_to_target"),
        *("cost_usd", "power_w", "network_switches", "network_ports", "network_cables", "network_optics"),
        *("arrival_us", "waiting_us", "completion_time_us", "alone_us", "slowdown"),
    }
