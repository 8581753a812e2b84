"""How variants and the command line change a scenario, and what defaults there are."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import os
import pickle
import sys
import tempfile
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

import netfold
from netfold.errors import DataError, InvariantError, NetfoldError, ScenarioError
from netfold.homomorphic.codec import codec_kinds
from netfold.kinds import registered
from netfold.sim.collectives.in_network.in_network_keys import InNetworkSection
from netfold.sim.collectives.kinds.ring import Ring
from netfold.sim.scenario.faults import Fault
from netfold.sim.scenario.load import load, sets_of
from netfold.sim.scenario.resolve import resolve
from netfold.sim.scenario.sweep_keys import merge
from netfold.sim.scenario.yaml_tree import SCENARIO_BYTES_MAX, Node
from netfold.sim.workload.devices import NoDevice
from netfold.sim.workload.models.registry import model_kinds
from netfold.sim.workload.synthetic import Synthetic
from netfold.topologies.kind import Topology
from tests import ROOT
from tests.command_line import run_command
from tests.examples import examples
from tests.sim.results.test_damage import places
from tests.sim.scenario.files import GOOD, changed, told, write

MINIMAL = """\
name: minimal
topology: {kind: star, hosts: 2}
workers: 2
workload: {kind: synthetic, elements: 10}
codec: {kind: none}
collective: {kind: ring}
"""


def test_a_file_without_variants_has_one_of_its_name_and_all_defaults(tmp_path: Path) -> None:
    scenario = load(write(tmp_path, MINIMAL))

    (variant,) = scenario.variants
    assert (scenario.name, scenario.description, scenario.seed) == ("minimal", "", 1)
    assert variant.name == "minimal"
    assert (variant.topology.switch, variant.workers.placement) == ("tofino1", "pack")
    assert NoDevice() == variant.device
    assert variant.faults == ()


def test_a_variant_changes_keys_and_a_new_kind_replaces_the_mapping(tmp_path: Path) -> None:
    text = changed("  - name: switch", "  - name: switch\n    topology: {rate: 10Gbps}")

    switch, ring = load(write(tmp_path, text)).variants

    assert switch.topology.kind == "star"
    assert ring.topology.kind == "star"
    assert (switch.topology.rate, switch.topology.delay) == (10**10, 500_000)
    assert ring.topology.rate == 10**11
    assert isinstance(switch.collective, InNetworkSection)
    assert (switch.collective.frame, switch.collective.message_packets) == ("udp-256", 1)
    assert isinstance(ring.collective, Ring)
    assert (ring.collective.frame, ring.collective.window) == ("roce-1024", 64)


def test_a_count_may_be_written_as_1e6(tmp_path: Path) -> None:
    scenario = load(write(tmp_path, changed("elements: 1000", "elements: 1e6")), ["workers=2.0"])

    (workload, workers) = scenario.variants[0].workload, scenario.variants[0].workers
    assert isinstance(workload, Synthetic)
    assert (workload.elements, type(workload.elements), workers.count) == (1_000_000, int, 2)


def test_a_bare_count_of_workers_keeps_their_placement(tmp_path: Path) -> None:
    text = changed("workers: 8", "workers: {count: 8, placement: spread}").replace(
        "  - name: ring", "  - name: ring\n    workers: 4"
    )

    switch, ring = load(write(tmp_path, text)).variants
    assert [(v.workers.count, v.workers.placement) for v in (switch, ring)] == [(8, "spread"), (4, "spread")]

    switch, ring = load(write(tmp_path, text), ["workers=2"]).variants
    assert [(v.workers.count, v.workers.placement) for v in (switch, ring)] == [(2, "spread"), (2, "spread")]


def test_a_list_with_too_few_items_is_refused_in_words(tmp_path: Path) -> None:
    training = "kind: training\n  model: ncf\n  optimizer: {kind: adam, betas: [0.5]}"
    text = changed("kind: synthetic\n  elements: 1000\n  density: 5%", training)

    assert "workload.optimizer.betas: has too few items: 1" in told(write(tmp_path, text))


def test_the_command_line_wins_over_variants_and_can_address_one(tmp_path: Path) -> None:
    path = write(tmp_path, changed("  - name: switch", "  - name: switch\n    workload: {elements: 5}"))

    def elements(*sets: str) -> list[int]:
        workloads = [variant.workload for variant in load(path, sets).variants]
        return [workload.elements for workload in workloads if isinstance(workload, Synthetic)]

    assert elements() == [5, 1000]
    assert elements("workload.elements=9") == [9, 9]
    assert elements("variants.ring.workload.elements=9") == [5, 9]
    assert elements(
        "variants.ring.workload.elements=1", "workload.elements=9", "variants.switch.workload.elements=3"
    ) == [3, 9]


def test_the_command_line_takes_yaml_reaches_into_lists_and_changes_the_header(tmp_path: Path) -> None:
    scenario = load(
        write(tmp_path, GOOD),
        ["faults.0.links=[h0->*, h1->*]", "name=other", "seed=3", "device={kind: none}"],
        seed=4,
    )

    assert (scenario.name, scenario.seed) == ("other", 4)
    assert scenario.variants[0].faults[0].links == ("h0->*", "h1->*")
    assert scenario.variants[0].faults[0].rate == 0.01
    assert NoDevice() == scenario.variants[1].device


def test_every_value_can_be_located(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD)
    scenario = load(path, ["topology.delay=1us"])

    assert f"{path}:6" == scenario.locate("topology.rate")
    assert f"{path}:3" == scenario.locate("topology.buffer"), "a default is where it could be written"
    assert f"{path}:30" == scenario.locate("collective.window", "ring")
    assert f"{path}:19" == scenario.locate("collective", "switch")
    assert f"{path}:24" == scenario.locate("faults.0.rate", "ring")
    assert scenario.locate("topology.delay", "ring") == "--set"


def test_a_value_wrong_in_one_variant_names_it(tmp_path: Path) -> None:
    text = changed("  frame: udp-256", "  message_packets: 2").replace(
        "  - name: switch", "  - name: switch\n  - name: udp\n    collective: {frame: udp-256}"
    )

    assert told(write(tmp_path, text)) == (
        "FILE:21: collective.message_packets: must be 1 with frame udp-256, found 2\n"
        "  only RoCE has longer messages (in variant 'udp')"
    )


SHARED = """\
x-links: &links
  rate: 25Gbps
  delay: 2us
  buffer: 1MiB
x-slow: &slow {rate: 1Gbps, delay: 9us}
name: minimal
topology:
  <<: [*links, *slow]
  kind: star
  hosts: 2
  delay: 3us
  x-note: {why: 1, why-not: [2]}
workers: 2
workload: {kind: synthetic, elements: 10}
codec: {kind: none, x-todo: another}
collective: {kind: ring}
variants:
  - {name: a, x-owner: me}
"""


def test_merge_keys_bring_what_is_not_written_and_the_first_mapping_wins(tmp_path: Path) -> None:
    path = write(tmp_path, SHARED)
    scenario = load(path)

    (variant,) = scenario.variants
    assert variant.topology.kind == "star"
    topology = variant.topology
    assert (topology.rate, topology.delay, topology.buffer, topology.hosts) == (
        25 * 10**9,
        3 * 10**6,
        2**20,
        2,
    )
    assert f"{path}:2" == scenario.locate("topology.rate", "a"), "where it was written"
    assert f"{path}:11" == scenario.locate("topology.delay", "a")


@pytest.mark.parametrize("path", ["x-note=1", "topology.x-note=1", "variants.a.x-note=1", "profiles=[]"])
def test_what_is_ignored_cannot_be_set(tmp_path: Path, path: str) -> None:
    file = write(tmp_path, SHARED)
    if path.startswith("profiles"):
        assert load(file, [path]).switch_profiles == {}
        return
    with pytest.raises(ScenarioError, match=r"^--set: .*: keys that begin with 'x-' are ignored, "):
        load(file, [path])


def test_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it names is relative to the working folder."""
    (tmp_path / "profile.yaml").write_text("name: own\nlike: tofino1\n")
    text = changed("topology:", "profiles: [profile.yaml]\ntopology:").replace("hosts: 8", "hosts: 0")
    monkeypatch.chdir(tmp_path)

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    with pytest.raises(ScenarioError) as caught:
        load("-")
    assert str(caught.value).startswith("<stdin>:6: topology.hosts: must be at least 1, found 0\n")

    right = text.replace("hosts: 0", "hosts: 8").encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(right)))
    scenario = load("-", ["topology.switch=own"])
    assert (scenario.file, list(scenario.switch_profiles)) == ("<stdin>", ["own"])
    assert scenario.source_text == right


def test_standard_input_has_limits_too(monkeypatch: pytest.MonkeyPatch) -> None:
    with open("/dev/zero", encoding="utf-8") as zeros:
        monkeypatch.setattr(sys, "stdin", zeros)
        with pytest.raises(ScenarioError, match=r"^-: cannot be read: it is too large: it goes on, "):
            load("-")
    with pytest.raises(ScenarioError, match=r"^-: cannot be read: standard input is closed"):
        load("-")
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(ScenarioError, match=r"^-: cannot be read: standard input is closed"):
        load("-")


def node(value: object) -> Node:
    if isinstance(value, dict):
        return Node({key: node(child) for key, child in value.items()}, "f", 1, "")
    return Node(value, "f", 1, "")  # type: ignore[arg-type]  # a scalar


LEAVES = st.integers(0, 2)
TREES = st.dictionaries(
    st.sampled_from(["kind", "a", "b"]),
    LEAVES | st.dictionaries(st.sampled_from(["kind", "a", "b"]), LEAVES, max_size=3),
    max_size=3,
)


def merged(base: object, override: object) -> object:
    """The rule of `sim.scenario.merge`, on plain values."""
    if not isinstance(base, dict) or not isinstance(override, dict):
        return override
    if "kind" in base and "kind" in override and base["kind"] != override["kind"]:
        return override
    result = base | override
    for key in base.keys() & override.keys():
        result[key] = merged(base[key], override[key])
    return result


@given(TREES, TREES)
def test_merging_follows_the_rule(base: dict[str, object], override: dict[str, object]) -> None:
    assert merged(base, override) == merge(node(base), node(override)).plain


MISTAKES: list[dict[str, Any]] = YAML(typ="safe", pure=True).load(Path(__file__).with_name("mistakes.yaml"))

LISTS = {
    "CODECS": codec_kinds(),
    "TOPOLOGIES": registered(Topology),
    "MODELS": model_kinds(),
    "FAULTS": registered(Fault),
}


@pytest.mark.parametrize("case", MISTAKES, ids=[case["mistake"] for case in MISTAKES])
def test_mistakes_are_told_with_their_line_and_the_nearest_fix(tmp_path: Path, case: dict[str, Any]) -> None:
    found = told(write(tmp_path, case.get("before", "") + changed(case["change"], case["into"])))
    for label, kinds in LISTS.items():
        found = found.replace(", ".join(kinds), label)

    assert found.endswith(case.get("ends", ""))
    assert case.get("error", found) == found


SETS = [
    ("topology", "--set: cannot read 'topology'\n  use PATH=VALUE, for example topology.rate=10Gbps"),
    (
        "variants.ring.seed=1",
        "--set: variants.ring.seed: unknown key 'seed'\n"
        "  allowed: topology, routing, workers, hosts, workload, device, overlap, codec, collective, "
        "published, keep, faults, jobs, admission",
    ),
    (
        "topology.rate=fast",
        "--set: topology.rate: cannot read 'fast' as a rate\n"
        "  use a number and one of bps, Kbps, Mbps, Gbps, Tbps (for example '100Gbps')",
    ),
    (
        "variants.ring.collective.slots=3",
        "--set: variants.ring.collective.slots: unknown key 'slots'\n"
        "  allowed: kind, frame, window, timeout, ack_every, channels, chunk, order",
    ),
    (
        "topology.kind=leaf_spine",
        "--set: topology: the key 'leaves' is missing\n  leaves: Number of leaf switches.\n"
        "--set: topology: the key 'spines' is missing\n  spines: Number of spine switches.\n"
        "--set: topology: the key 'hosts_per_leaf' is missing\n"
        "  hosts_per_leaf: Number of hosts on each leaf.",
    ),
    (
        "variants.rnig.codec.kind=none",
        "--set: variants.rnig.codec.kind: there is no variant 'rnig'\n  variants: switch, ring",
    ),
    (
        "variants.ring=3",
        "--set: variants.ring: a variant cannot be replaced as a whole\n  use variants.NAME.PATH=VALUE",
    ),
    ("faults.1.rate=1%", "--set: faults.1.rate: there is no item '1'\n  items: 0"),
]


def test_values_of_python_become_those_of_the_command_line() -> None:
    values = {"a": np.array([1, 2]), "b": Path("x"), "c": MappingProxyType({"d": np.int64(1)}), "e": "[x"}

    assert sets_of(values) == ("a=[1, 2]", 'b="x"', 'c={"d": 1}', 'e="[x"')


@pytest.mark.parametrize(("text", "error"), SETS)
def test_mistakes_on_the_command_line_are_told(tmp_path: Path, text: str, error: str) -> None:
    assert error == told(write(tmp_path, GOOD), [text])


@pytest.mark.parametrize("written", ["", "faults: []\n"])
def test_an_item_of_a_list_that_is_not_there(tmp_path: Path, written: str) -> None:
    path = write(tmp_path, changed("faults:\n  - kind: loss\n    rate: 1%\n", written))

    assert told(path, ["faults.0.rate=1%"]) == (
        "--set: faults.0.rate: faults has no item 0\n"
        "  write the list whole, for example --set 'faults=[{kind: loss, rate: 1%}]'"
    )


def test_a_codec_refuses_an_option_in_its_own_words(tmp_path: Path) -> None:
    error = told(write(tmp_path, changed("kind: fixed_point", "kind: lossless\n  load: 3.0")))

    assert error.startswith("FILE:17: codec: load is 3.0: ")
    assert error.endswith("\n  `netfold codecs` lists codecs and their options")


def test_files_that_are_no_scenario(tmp_path: Path) -> None:
    needs = "  it needs the keys topology, workers, workload, codec, collective, name"

    assert f"FILE:1: a scenario must be a mapping, found nothing\n{needs}" == told(write(tmp_path, ""))
    assert f"FILE:1: a scenario must be a mapping, found a list\n{needs}" == told(write(tmp_path, "- a\n"))


def test_a_file_that_is_not_there_names_the_nearest(tmp_path: Path) -> None:
    near = write(tmp_path, GOOD)
    missing = tmp_path / "scenaro.yaml"

    assert f"FILE: cannot be read: there is no such file\n  did you mean {near}?" == told(missing)
    assert told(tmp_path / "nowhere" / "scenario.yaml") == (
        "FILE: cannot be read: there is no such file\n"
        "  `netfold examples` copies those that come with netfold"
    )


def test_what_cannot_be_read_is_not_proposed(tmp_path: Path) -> None:
    """There may well be something of that very name."""
    path = tmp_path / "scenario.yaml"
    path.symlink_to("nothing.yaml")
    assert told(path) == (
        "FILE: cannot be read: it is a link to 'nothing.yaml', which is not there\n"
        "  give the path of a scenario file"
    )
    path.unlink()
    path.symlink_to("scenario.yaml")
    assert told(path) == (
        "FILE: cannot be read: it is a link that leads back to itself\n  give the path of a scenario file"
    )
    path.unlink()
    path.mkdir()
    assert told(path) == "FILE: cannot be read: it is a directory\n  give the path of a scenario file"
    (path / "b.yaml").write_text(GOOD)
    (path / "a.yaml").write_text(GOOD)
    assert told(path) == "FILE: cannot be read: it is a directory\n  give a file, for example FILE/a.yaml"


def test_what_never_ends_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")

    assert told(Path("/dev/zero")).startswith("FILE: cannot be read: it is a device\n")
    assert told(tmp_path / "pipe.yaml").startswith("FILE: cannot be read: it is a pipe\n")


def test_a_scenario_has_a_largest_size(tmp_path: Path) -> None:
    filled = GOOD + "#" * (SCENARIO_BYTES_MAX - len(GOOD.encode()))

    assert load(write(tmp_path, filled)).name == "quick"
    assert told(write(tmp_path, filled + "#")) == (
        "FILE: cannot be read: it is too large: it has 1048577 bytes, up to 1048576 are read\n"
        "  give the path of a scenario file"
    )


def test_a_file_in_another_encoding(tmp_path: Path) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_bytes("name: quick\ndescription: Größe\n".encode("latin-1"))

    assert told(path) == "FILE:2: is not UTF-8 text\n  save the file as UTF-8"


def test_scenario_errors_show_place_message_and_hint() -> None:
    error = ScenarioError("a.yaml", 3, "topology.rate", "cannot read it", "write it well")

    assert str(error) == "a.yaml:3: topology.rate: cannot read it\n  write it well"
    assert str(ScenarioError("a.yaml", 0, "", "is empty")) == "a.yaml: is empty"


@pytest.mark.parametrize(
    "error",
    [ScenarioError("a.yaml", 3, "x", "m", "h"), DataError("m", "h"), InvariantError("m"), NetfoldError("m")],
)
def test_errors_survive_pickling(error: NetfoldError) -> None:
    copy = pickle.loads(pickle.dumps(error))

    assert type(error) is type(copy)
    assert (str(error), vars(error)) == (str(copy), vars(copy))


def test_exit_statuses() -> None:
    assert [error.exit_code for error in (ScenarioError, DataError, InvariantError)] == [2, 2, 3]


TEXT = """\
name: mine
topology: {kind: star, hosts: 4, rate: 10Gbps}
workers: 2
codec: {kind: none}
collective: {kind: ring}
workload: {kind: training, model: mlp, batch: 4, steps: 1}
variants:
  - {name: own}
  - name: theirs
    workload: {model: ../code/mdl.py:make}
jobs: null
"""
MODEL = """
import pathlib
from torch import nn, zeros
pathlib.Path(__file__).with_name("ran").touch()

def make():
    return nn.Linear(4, 2), (zeros(16, 4), zeros(16, 2)), nn.MSELoss()
"""
SAID = "runs code from ../code/mdl.py\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    for folder in ("code", "scenario"):
        (tmp_path / folder).mkdir()
    (tmp_path / "code" / "mdl.py").write_text(MODEL)
    path = tmp_path / "scenario" / "mine.yaml"
    path.write_text(TEXT.replace("jobs: null\n", ""))
    return path


def ran(file: Path) -> bool:
    return (file.parents[1] / "code" / "ran").exists()


@pytest.mark.parametrize("command", ["validate", "run", "sweep"])
def test_the_command_refuses_it_with_its_place(file: Path, command: str) -> None:
    sets = ["--over", "workers=2,3"] if command == "sweep" else []
    done = run_command(command, file, "--no-code", *sets)

    assert (done.exit_code, done.stdout) == (2, "")
    assert f"{file}:10: variants.theirs.workload.model: names the Python file '../code/mdl.py'" in done.stderr
    assert not ran(file)


def test_the_command_says_it_once(file: Path) -> None:
    assert run_command("validate", file).stderr == SAID
    assert ran(file)


@pytest.mark.parametrize("model", ["../code/mdl.py:make", "{kind: user, make: ../code/mdl.py:make}"])
def test_swept_models_are_refused_and_said(
    file: Path, capsys: pytest.CaptureFixture[str], model: str
) -> None:
    file.write_text(
        TEXT.partition("variants:")[0]
        + f"sweep: {{workload.model: [mlp, '{model}']}}\n".replace("'{", "{").replace("}']", "}]")
    )
    with pytest.raises(ScenarioError, match=r"names the Python file '\.\./code/mdl\.py'"):
        netfold.validate(file, code=False)
    with pytest.raises(ScenarioError, match=r"names the Python file '\.\./code/mdl\.py'"):
        netfold.sweep(file, code=False, out=file.parent)
    assert not ran(file)
    netfold.validate(file)
    assert capsys.readouterr().err == SAID


def test_jobs_are_refused_by_name(file: Path) -> None:
    file.write_text(
        TEXT.replace("jobs: null", "jobs: [{name: a}, {name: b, workload: {model: ../code/mdl.py:make}}]")
        .replace("    workload: {model: ../code/mdl.py:make}\n", "")
        .replace("workers: 2", "workers: 1")
    )
    with pytest.raises(ScenarioError, match=r"mine.yaml:10: jobs.b.workload.model: names the Python file"):
        netfold.validate(file, code=False)


def test_python_says_it_too(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ScenarioError, match="names the Python file"):
        netfold.run(file, out=file.parent, code=False)
    assert not ran(file)
    netfold.run(file, out=file.parent, variants=["theirs"])
    netfold.run(file, out=file.parent, variants=["theirs"])
    assert capsys.readouterr().err == 2 * SAID


def test_models_of_netfold_are_no_code(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    netfold.validate(file, set={"workload.model": "mlp"}, code=False)
    assert capsys.readouterr().err == ""


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
