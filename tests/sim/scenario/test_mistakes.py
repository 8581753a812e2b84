"""Every kind of mistake in a scenario file, and the whole text of what a person is told."""

import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from netfold.homomorphic.codec import codec_kinds
from netfold.sim.errors import DataError, InvariantError, NetfoldError, ScenarioError
from netfold.sim.scenario import load
from netfold.sim.scenario.source import SCENARIO_BYTES_MAX
from netfold.topologies.kind import topology_kinds
from tests.sim.scenario.files import GOOD, changed, write

MISTAKES: list[dict[str, Any]] = YAML(typ="safe", pure=True).load(Path(__file__).with_name("mistakes.yaml"))


def told(path: Path, *sets: str) -> str:
    with pytest.raises(ScenarioError) as caught:
        load(path, sets)

    assert caught.value.exit_code == 2
    text = str(caught.value).replace(str(path), "FILE").replace(", ".join(codec_kinds()), "CODECS")
    return text.replace(", ".join(topology_kinds()), "TOPOLOGIES")


@pytest.mark.parametrize("case", MISTAKES, ids=[case["mistake"] for case in MISTAKES])
def test_mistakes_are_told_with_their_line_and_the_nearest_fix(tmp_path: Path, case: dict[str, Any]) -> None:
    found = told(write(tmp_path, case.get("before", "") + changed(case["change"], case["into"])))

    assert found.endswith(case.get("ends", ""))
    assert case.get("error", found) == found


SETS = [
    (
        "topology",
        "--set: cannot read 'topology'\n  use PATH=VALUE, for example topology.rate=10Gbps",
    ),
    (
        "variants.ring.seed=1",
        "--set: variants.ring.seed: unknown key 'seed'\n"
        "  allowed: topology, routing, workers, hosts, workload, device, overlap, codec, collective, "
        "published, faults, jobs, admission",
    ),
    (
        "topology.rate=fast",
        "--set: topology.rate: cannot read 'fast' as a rate\n"
        "  use a number and one of bps, Kbps, Mbps, Gbps, Tbps (for example '100Gbps')",
    ),
    (
        "variants.ring.collective.slots=3",
        "--set: variants.ring.collective.slots: unknown key 'slots'\n"
        "  allowed: kind, frame, window, timeout, ack_every, channels, chunk",
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
    (
        "faults.1.rate=1%",
        "--set: faults.1.rate: there is no item '1'\n  items: 0",
    ),
]


@pytest.mark.parametrize(("text", "error"), SETS)
def test_mistakes_on_the_command_line_are_told(tmp_path: Path, text: str, error: str) -> None:
    assert error == told(write(tmp_path, GOOD), text)


@pytest.mark.parametrize("written", ["", "faults: []\n"])
def test_an_item_of_a_list_that_is_not_there(tmp_path: Path, written: str) -> None:
    path = write(tmp_path, changed("faults:\n  - kind: loss\n    rate: 1%\n", written))

    assert told(path, "faults.0.rate=1%") == (
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
    assert (
        told(tmp_path / "nowhere" / "scenario.yaml")
        == "FILE: cannot be read: there is no such file\n  give the path of a scenario file"
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
