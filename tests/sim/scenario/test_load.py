"""How variants and the command line change a scenario, and what defaults there are."""

import io
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.sim.collectives.in_network.section import InNetworkSection
from netfold.sim.collectives.ring.spec import RingSection
from netfold.sim.errors import ScenarioError
from netfold.sim.scenario import load
from netfold.sim.scenario.merge import merge
from netfold.sim.scenario.models import NoDeviceSection
from netfold.sim.scenario.node import Node
from netfold.sim.workload.sections import Synthetic
from tests.sim.scenario.files import GOOD, changed, write

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
    assert NoDeviceSection() == variant.device
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
    assert isinstance(ring.collective, RingSection)
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

    with pytest.raises(ScenarioError, match=r"workload\.optimizer\.betas: has too few items: 1"):
        load(write(tmp_path, text))


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
    assert NoDeviceSection() == scenario.variants[1].device


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
    path = write(tmp_path, text)

    with pytest.raises(ScenarioError) as caught:
        load(path)

    assert str(caught.value) == (
        f"{path}:21: collective.message_packets: must be 1 with frame udp-256, found 2\n"
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
        assert load(file, [path]).profiles == {}
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

    monkeypatch.setattr(
        sys, "stdin", io.TextIOWrapper(io.BytesIO(text.replace("hosts: 0", "hosts: 8").encode()))
    )
    scenario = load("-", ["topology.switch=own"])
    assert (scenario.file, list(scenario.profiles)) == ("<stdin>", ["own"])
    assert scenario.source_text == text.replace("hosts: 0", "hosts: 8").encode()


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
