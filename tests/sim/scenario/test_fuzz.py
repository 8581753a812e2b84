"""Damaged files: whatever is done to a scenario or a graph, it is planned or refused in words."""

from __future__ import annotations

import contextlib
import copy
import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from netfold.sim.errors import NetfoldError
from netfold.sim.resolve import resolve
from netfold.sim.scenario import load
from tests import ROOT
from tests.examples import examples
from tests.sim.scenario.files import GOOD, write

SCENARIOS = ROOT / "scenarios"
TEXTS = [GOOD, *(path.read_text("utf-8") for path in sorted(SCENARIOS.glob("*.yaml")))]
GRAPH = json.loads((SCENARIOS / "graphs" / "two-racks.json").read_text("utf-8"))
ON_GRAPH = """\
name: graph
topology: {kind: file, path: net.json}
workers: 2
workload: {kind: synthetic, elements: 100}
codec: {kind: fixed_point}
collective: {kind: in_network}
"""
ANCHORS = (b"&a ", b"*a", b"<<: *a\n", b"<<: {kind: ring}\n", b"x-a: &a [1, 2]\n")
OPENED = (b"[" * 40, b"{a: " * 40, b"!!int x", b"? ", b"- ", b"|\n", b"---\n", b"%YAML 1.1\n")
CHARACTERS = (b"\t", b"\x00", b"\xff", b"\xef\xbb\xbf", b'"\\ud800"', b'"\\U00110000"')
VALUES = (b"9" * 5000, b"1e400", b"-1", b"1e12", b"0", b".nan", b"~", b"null", b"''")
UNITS = (b"1bps", b"1000s", b"99999999GiB", b"1Tbps")
KEYS = (
    b"kind: tree",
    b"jobs: [{name: a}, {name: b}]\n",
    b"faults: [{kind: slow_host, worker: 0, factor: 9999}]\n",
    b"profiles: [{name: p, like: tofino1}]\n",
)
SNIPPETS = [*ANCHORS, *OPENED, *CHARACTERS, *VALUES, *UNITS, *KEYS]


def planned_or_refused(folder: Path, content: bytes) -> None:
    path = folder / "scenario.yaml"
    path.write_bytes(content)
    with contextlib.suppress(NetfoldError):
        resolve(load(path))


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A scenario's bytes after some cuts, copies and insertions."""
    text = draw(st.sampled_from(TEXTS)).encode()
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(text)))
        length = draw(st.integers(0, 40))
        match draw(st.sampled_from(["cut", "copy", "insert", "replace", "byte"])):
            case "cut":
                text = text[:at] + text[at + length :]
            case "copy":
                to = draw(st.integers(0, len(text)))
                text = text[:to] + text[at : at + length] + text[to:]
            case "insert":
                text = text[:at] + draw(st.sampled_from(SNIPPETS)) + text[at:]
            case "replace":  # a value
                end = text.find(b"\n", at)
                colon = text.find(b": ", at)
                if at <= colon < end:
                    text = text[: colon + 2] + draw(st.sampled_from(SNIPPETS)) + text[end:]
            case "byte":
                text = text[:at] + bytes([draw(st.integers(0, 255))]) + text[at + 1 :]
    return text


@examples(30)
@given(damaged())
def test_damaged_scenarios(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        planned_or_refused(Path(folder), content)


PATHS = st.sampled_from(
    ["name", "seed", "topology", "topology.kind", "codec", "codec.kind", "faults.0", "workers"]
)
WRITTEN = st.sampled_from([one.decode("utf-8", "replace") for one in SNIPPETS])


@given(PATHS, WRITTEN)
def test_whatever_is_set(path: str, junk: str) -> None:
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(NetfoldError):
        load(write(Path(folder), GOOD), [f"{path}={junk}", f"variants.ring.{path}={junk}"])


NUMBERS = [-1, 0, 1, 1.5, 10**15, 10**16, 10**30]
WORDS = ["", "h0", "s0", "a->b", "\n", "\ud800", "100Gbps", "host", "switch", "1e999", "x" * 500]
JUNK = st.sampled_from([None, True, *NUMBERS, *WORDS, [], {}, [[]], {"id": {}}])


def places(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths to everything inside of a JSON value."""
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    else:
        return [here]
    return [here, *(place for key, child in items for place in places(child, (*here, key)))]


@st.composite
def damaged_graph(draw: st.DrawFn) -> Any:
    """A graph after some of its parts were left out, doubled or replaced."""
    data = copy.deepcopy(GRAPH)
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.sampled_from([place for place in places(data) if place]))
        above = data
        for key in place[:-1]:
            above = above[key]
        match draw(st.sampled_from(["remove", "replace", "double", "rename"])):
            case "remove":
                del above[place[-1]]
            case "replace":
                above[place[-1]] = draw(JUNK)
            case "double" if isinstance(above, list):
                above.append(copy.deepcopy(above[place[-1]]))
            case "rename" if isinstance(above, dict):
                above[draw(st.sampled_from(["rate", "delay", "id", "key", "x"]))] = above.pop(place[-1])
        if not isinstance(data, dict) or not data:
            break
    return data


@examples(100)
@given(damaged_graph())
def test_damaged_graphs(data: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "net.json").write_text(json.dumps(data))
        planned_or_refused(Path(folder), ON_GRAPH.encode())
