"""Programs held to the switches of a scenario: what fits, what it takes, and every refusal in full."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from netfold.sim.commands.main import app
from netfold.sim.plan.collective import Passes
from netfold.switch.fit import fit
from netfold.switch.profiles import PROFILES
from netfold.switch.program import Demand
from netfold.switch.programs import programs
from netfold.topologies.files.node_link import to_json
from netfold.topologies.graph import LinkSpec
from netfold.topologies.kinds.leaf_spine import leaf_spine
from tests.sim.scenes import TINY, job_of, job_plan, only, refused

BARE = TINY.replace("  frame: udp-256\n", "")
OWN = TINY.replace("workers:", "profiles:\n  - name: mine\n    like: tofino1\nworkers:")
FLOATS = "codec={kind: none}"
TREE = "collective.program=tree"
FACTOR = "codec={kind: fixed_point, factor: 1e6}"
RACKS = "topology={kind: file, path: net.json}"


@pytest.mark.parametrize(
    ("sets", "demand"),
    [
        (("collective.frame=udp-1024",), Demand(3, 512, 256)),
        (("collective.frame=udp-1024", "topology.switch=fpga"), Demand(3, 512, 256)),
        (("collective.program=atp", FACTOR), Demand(3, 20_000, 62)),
    ],
)
def test_passes_are_those_of_the_fit(tmp_path: Path, sets: tuple[str, ...], demand: Demand) -> None:
    variant = only(tmp_path, *sets, text=BARE)
    program = "atp" if demand.words == 62 else "switchml"
    found = fit(PROFILES[variant.network.profiles[-1]], program, demand)

    assert job_plan(variant).collective.passes == Passes(found.packet_passes, found.read_passes)
    loopback = job_of(variant).loopback_link
    assert (loopback >= 0) == (found.extra_passes > 0)
    if loopback >= 0:
        assert variant.network.delay_ps[loopback] == found.extra_passes * 600_000


def test_a_profile_of_ones_own(tmp_path: Path) -> None:
    own = ("topology.switch=mine", "profiles.mine.pass_latency=1us", "profiles.mine.words_out=2")
    variant = only(tmp_path, *own, text=OWN)

    assert variant.network.profiles[-1] == "mine"
    assert variant.network.delay_ps[0] == 2_000_000
    assert job_plan(variant).collective.passes == Passes(1, 0)
    assert refused(tmp_path, *own, "profiles.mine.stages=10", text=OWN) == (
        "tiny.yaml:14: collective.frame: SwitchML with 64 words a pass needs 36 stateful ALUs in stages "
        "that wait for each other, the 10 stages of mine have room for 28 of its 32 arrays 'values'\n"
        "  use a switch that can: ideal, tofino1, tofino2, fpga, trio"
    )


FAST = LinkSpec(10**11, 10**6, 1 << 24)


def racks(folder: Path, spine: str, leaf: str) -> None:
    """Two racks as a file, which `RACKS` names."""
    graph = leaf_spine(2, 1, 4, FAST, FAST, leaf)
    graph.nodes["spine0"]["profile"] = spine
    (folder / "net.json").write_text(to_json(graph))


@pytest.mark.parametrize(
    ("leaf", "spine", "program", "root"),
    [
        ("sharp", "trio", "switchml", "spine0"),
        ("sharp", "trio", "tree", "leaf0"),
        ("tofino1", "sharp", "tree", "spine0"),  # trees are for networks that lose nothing
        ("tofino1", "sharp", "switchml", "leaf0"),
        ("trio", "fpga", "atp", "spine0"),  # ATP reads sums that stick
    ],
)
def test_auto_takes_the_nearest_switch_that_can_run_the_program(
    tmp_path: Path, leaf: str, spine: str, program: str, root: str
) -> None:
    """A leaf is nearer."""
    racks(tmp_path, spine, leaf)
    codec = (FACTOR,) if program == "atp" else ()
    found = only(tmp_path, RACKS, f"collective.program={program}", *codec, text=BARE)

    assert found.network.nodes[job_of(found).switch] == root
    if program == "switchml" and leaf == "sharp":
        below = only(tmp_path, RACKS, "workers=8", "collective.aggregators=tree")
        assert job_of(below).branches == ()  # the leaves cannot


SHARP = ("topology.switch=sharp", TREE)
REFUSED = {
    "a tree where packets get lost": (
        (TREE,),
        "tiny.yaml:3: topology.switch: program tree does not recover from lost packets, and networks of "
        "tofino1 drop some\n  use program switchml, or a switch that can: ideal, sharp",
    ),
    "more operations than there are": (
        (*SHARP, "collective.slots=24"),
        "--set: collective.slots: 24 slots need as many outstanding operations, sharp has 23\n"
        "  use 23 slots at most",
    ),
    "larger packets than an operation holds": (
        (TREE, "topology.switch=small", "profiles=[{name: small, like: sharp, operation_payload: 1KiB}]"),
        "tiny.yaml:9: collective.frame (default): an operation of small holds 1024 B, "
        "512 words a packet are 2048 B\n  use 64 (256 B) or 256 words (1024 B) a packet",
    ),
    "an overflow it cannot have": (
        (*SHARP, "collective.overflow=saturate"),
        "--set: collective.overflow: switch profile 'sharp': its ALUs cannot make sums saturate "
        "(they can: wrap)\n  use wrap, or a switch that can: ideal, tofino1, tofino2, fpga",
    ),
    "more aggregators than registers hold": (
        ("collective.program=atp", FACTOR, "collective.entries=50000"),
        "--set: collective.entries: 50000 slots need 31 register arrays of 100000 entries "
        "(26 map RAMs each), tofino1 with 48 map RAMs a stage has room for 8\n  use 22528 slots at most",
    ),
}


@pytest.mark.parametrize("mistake", REFUSED)
def test_refusals_in_full(tmp_path: Path, mistake: str) -> None:
    sets, told = REFUSED[mistake]

    assert told == refused(tmp_path, *sets, text=BARE)


TWO = BARE.replace("hosts: 4", "hosts: 8") + "jobs: [{name: a}, {name: b}]\n"


def test_operations_are_shared_by_jobs(tmp_path: Path) -> None:
    sets = (*SHARP, "jobs.a.collective.slots=16")
    assert only(tmp_path, *sets, "jobs.b.collective.slots=7", text=TWO)

    assert refused(tmp_path, *sets, "jobs.b.collective.slots=8", text=TWO) == (
        "--set: jobs.b.collective.slots: 8 slots do not fit on switch s0: 16 are taken by job 'a' "
        "(up to 16), 7 are left\n  use 7 slots at most, fewer for the other jobs, or another switch"
    )


def test_a_point_of_a_tree_that_does_not_fit_is_named(tmp_path: Path) -> None:
    """The loopback ports of a small leaf are fewer than its four workers need."""
    graph = leaf_spine(2, 1, 4, FAST, FAST, "tofino1")
    graph.nodes["leaf1"]["profile"] = "mine"
    (tmp_path / "net.json").write_text(to_json(graph))
    tree = ("collective.aggregators=tree", "collective.switch=spine0", "collective.frame=udp-1024")
    sets = (RACKS, "workers=8", *tree)
    assert only(tmp_path, *sets, "profiles.mine.loopback_ports=19", text=OWN)

    assert refused(tmp_path, *sets, "profiles.mine.loopback_ports=18", text=OWN) == (
        "--set: workers: switch leaf1: 4 workers send 1900 Gbps through loopback ports with SwitchML, "
        "mine has 18 of 100 Gbps\n  use 3 workers at most, "
        "or 64 words (256 B) a packet (collective.frame: udp-256)"
    )


@pytest.mark.parametrize("name", PROFILES)
@pytest.mark.parametrize("program", ["switchml", "tree", "timed", "atp"])
def test_what_netfold_switch_fit_says_is_so_in_a_run(tmp_path: Path, program: str, name: str) -> None:
    """With the size of packets and the slots of the released program, and all else as it is by default."""
    frames = {"switchml": "udp-256", "tree": "roce-2048", "timed": "udp-256", "atp": "atp"}
    demand = replace(programs()[program].released, workers=3)
    entries = f", entries: {demand.slots}" if program == "atp" else ""
    collective = f"kind: in_network, program: {program}, frame: {frames[program]}, slots: {demand.slots}"
    timer = ", slot_timer: 10ms" if program == "timed" else ""
    sets = (f"topology.switch={name}", f"collective={{{collective}{entries}{timer}}}")
    codec = FLOATS if program == "tree" else FACTOR

    command = ["switch", "fit", program, "--profile", name, "--workers", "3"]
    told = CliRunner().invoke(app, command)
    if told.exit_code == 0:
        assert job_of(only(tmp_path, *sets, codec, text=BARE)).slots_count == demand.slots
    else:
        reason = told.stdout.splitlines()[0].removeprefix("does not fit: ")
        reason = "no switch can aggregate" if name == "plain" else reason
        assert reason in refused(tmp_path, *sets, codec, text=BARE)
