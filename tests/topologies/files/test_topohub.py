"""Networks by name: the package itself where it is installed, a stand-in for it, and no package at all."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from netfold.topologies.files import topohub as ours
from netfold.topologies.files.topohub import TopoHub
from netfold.topologies.graph import hosts, switches
from netfold.topologies.kind import ParameterError

NETWORK: dict[str, Any] = {
    "directed": False,
    "multigraph": False,
    "graph": {"name": "tiny", "demands": {}},
    "nodes": [{"name": "A", "pos": [0, 0], "id": 0}, {"name": "B", "id": 1}, {"name": "B", "id": 2}],
    "edges": [{"dist": 200.0, "source": 0, "target": 1}, {"dist": 0.5, "source": 1, "target": 2}],
}


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    """Networks and stand-ins do not outlast a test."""
    known = sys.modules.pop("topohub", None)
    ours._graph.cache_clear()
    yield
    ours._graph.cache_clear()
    sys.modules.pop("topohub", None)
    if known is not None:
        sys.modules["topohub"] = known


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that has one network, `group/tiny`."""
    folder = tmp_path / "topohub"
    (folder / "data" / "group").mkdir(parents=True)
    (folder / "data" / "group" / "tiny.json").write_text("{}")
    (folder / "__init__.py").write_text(
        f"def get(key):\n    if key != 'group/tiny':\n        raise KeyError(key)\n    return {NETWORK!r}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("package")
def test_routers_lengths_and_hosts() -> None:
    topology = TopoHub(name="group/tiny", hosts_per_switch=2, rate_bps=10**9, fabric_rate_bps=4 * 10**9)
    graph = topology.graph()

    assert switches(graph) == ["A", "B_1", "B_2"]
    assert len(hosts(graph)) == 6
    assert graph.edges["A", "B_1"] == {
        "rate_bps": 4 * 10**9,
        "delay_ps": 10**9,
        "buffer_bytes": 2**24,
    }  # 1 ms
    assert graph.edges["B_1", "B_2"]["delay_ps"] == 2_500_000
    assert graph.edges["h5", "B_2"]["rate_bps"] == 10**9
    assert topology.size()[:2] == (9, 16)
    assert topology.facts()[:3] == (6, 3, 16)


@pytest.mark.usefixtures("package")
def test_a_delay_may_be_given() -> None:
    graph = TopoHub(name="group/tiny", fabric_delay_ps=5).graph()

    assert graph.edges["A", "B_1"]["delay_ps"] == 5
    assert graph.edges["h0", "A"]["delay_ps"] == 10**6


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("group/tinny", "there is no network 'group/tinny'; did you mean 'group/tiny'? groups: group"),
        ("other/tiny", "there is no network 'other/tiny'; groups: group"),
        ("tiny", "'tiny' cannot be a name; use one such as topozoo/Abilene"),
        ("../group/tiny", "'../group/tiny' cannot be a name"),
        ("group/../../x", "'group/../../x' cannot be a name"),
        ("/etc/passwd", "'/etc/passwd' cannot be a name"),
    ],
)
def test_names_that_there_are_not(name: str, words: str) -> None:
    with pytest.raises(ParameterError, match=re.escape(words)) as caught:
        TopoHub(name=name).size()

    assert caught.value.key == "name"


def test_a_missing_package_is_told_with_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "topohub", None)

    words = "the package topohub is not installed; install it with: pip install 'netfold[topohub]'"
    with pytest.raises(ParameterError, match=re.escape(words)):
        TopoHub(name="topozoo/Abilene").size()


def test_the_package_itself() -> None:
    pytest.importorskip("topohub")

    assert TopoHub(name="topozoo/Abilene").size()[:2] == (22, 50)
    assert len(switches(TopoHub(name="sndlib/polska").graph())) == 12
