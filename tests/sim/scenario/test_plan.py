"""What holding a plan guarantees, promise by promise, and every reason why a scenario cannot be run."""

from __future__ import annotations

import dataclasses
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from netfold.errors import RunError
from netfold.homomorphic.codecs.fixed_point import FixedPoint
from netfold.homomorphic.codecs.lossless import Lossless
from netfold.switch.fit import fit
from netfold.switch.profiles import PROFILES
from netfold.switch.program import Demand, programs
from netfold.topologies.kinds.leaf_spine import leaf_spine
from netfold.topologies.topology_files import to_json
from netfold.units import TIME
from tests.command_line import run_command
from tests.sim.scenes import DENSE, LINK, RING, TINY, job_of, job_plan, only, plan, refused, simulate

LEAF_SPINE = "topology={kind: leaf_spine, leaves: 2, spines: 2, hosts_per_leaf: 2}"


def test_every_worker_has_a_host_of_its_own(tmp_path: Path) -> None:
    for placement in ("pack", "spread", "[h3, h0, h2]"):
        variant = only(tmp_path, LEAF_SPINE, f"workers={{count: 3, placement: {placement}}}")
        names = [variant.network.nodes[host] for host in job_plan(variant).hosts]

        expected = {"pack": ["h0", "h1", "h2"], "spread": ["h0", "h2", "h1"]}
        assert names == expected.get(placement, ["h3", "h0", "h2"])


def test_an_in_network_job_fits_its_switch(tmp_path: Path) -> None:
    variant = only(tmp_path, "collective.frame=roce-1024", "collective.slots=64", "collective.timeout=2ms")
    job = job_of(variant)

    assert variant.network.nodes[job.switch] == "s0"
    assert job.hosts == job_plan(variant).hosts
    assert (job.slots_count, job.unit_packets, job.frame.elements) == (64, 4, 256)
    assert job.slots_count % job.unit_packets == 0
    assert (job.sender.timeout_ps, job.sender.first_timeout_ps) == (2 * 10**9, 2 * 10**9)
    assert job.sender.timeout_max_ps == 10**11


def test_a_job_gets_the_nearest_switch_that_can_aggregate(tmp_path: Path) -> None:
    """Uplinks carry what the hosts of a rack send, so all switches are equally fast."""
    graph = leaf_spine(2, 2, 2, LINK, dataclasses.replace(LINK, rate_bps=2 * LINK.rate_bps), "plain")
    graph.nodes["leaf1"]["profile"] = graph.nodes["spine1"]["profile"] = "ideal"
    (tmp_path / "net.json").write_text(to_json(graph))

    # Workers h0, h1, h2: 3 + 3 + 1 hops to leaf1, 2 + 2 + 2 to spine1. On leaf1 alone: 1 + 1.
    spine, leaf = (
        only(tmp_path, FROM_FILE, f"workers={{count: {len(hosts)}, placement: {json.dumps(hosts)}}}")
        for hosts in (["h0", "h1", "h2"], ["h2", "h3"])
    )
    assert spine.network.nodes[job_of(spine).switch] == "spine1"
    assert leaf.network.nodes[job_of(leaf).switch] == "leaf1"


@pytest.mark.parametrize(("frame", "passes"), [("udp-256", 1), ("roce-1024", 10)])
def test_results_pass_a_loopback_link_of_the_switch(tmp_path: Path, frame: str, passes: int) -> None:
    variant = only(tmp_path, f"collective.frame={frame}")
    network, link = variant.network, job_of(variant).loopback_link

    assert network.link_names[link] == "s0->s0"
    assert network.link_source[link] == network.link_target[link] == job_of(variant).switch
    assert network.rate_bps[link] == PROFILES["tofino1"].loopback_rate_bps
    assert network.delay_ps[link] == passes * PROFILES["tofino1"].pass_latency_ps
    assert job_of(only(tmp_path, "topology.switch=ideal")).loopback_link == -1


def test_fixed_point_takes_the_networks_unit_for_its_blocks(tmp_path: Path) -> None:
    assert FixedPoint(64) == job_plan(only(tmp_path)).codec
    assert FixedPoint(1024) == job_plan(only(tmp_path, "collective.frame=roce-1024")).codec
    assert FixedPoint(100) == job_plan(only(tmp_path, "codec.block_elements=100")).codec
    assert Lossless() == job_plan(only(tmp_path, "codec={kind: lossless}")).codec


@pytest.mark.parametrize(
    ("frame", "elements_per_s"),
    # Words of a packet per byte on the wire: 64/332, 256/1100 and, in the middle of a message, 256/1106.
    [("udp-256", 2.4096e9), ("udp-1024", 2.9091e9), ("roce-1024", 2.8933e9)],
)
def test_the_bound_of_the_wire(tmp_path: Path, frame: str, elements_per_s: float) -> None:
    (bound,) = job_plan(only(tmp_path, f"collective.frame={frame}")).references
    (slow,) = job_plan(only(tmp_path, f"collective.frame={frame}", "topology.rate=10Gbps")).references

    assert bound.label == "wire bound, dense"
    assert bound.elements_per_s == pytest.approx(elements_per_s, rel=1e-4)
    assert slow.elements_per_s == pytest.approx(elements_per_s / 10, rel=1e-4)


def test_published_figures_come_before_the_bound(tmp_path: Path) -> None:
    published = "published=[{label: paper, elements_per_s: 1e9, source: somewhere}]"

    assert [one.label for one in job_plan(only(tmp_path, published)).references] == [
        "paper",
        "wire bound, dense",
    ]
    assert [one.label for one in job_plan(only(tmp_path, published, RING, DENSE)).references] == ["paper"]


def test_routes_are_the_seeds(tmp_path: Path) -> None:
    first, again, other = (job_of(only(tmp_path, f"seed={seed}")).routes for seed in (1, 1, 2))

    assert first == again != other
    assert len(set(first)) == 3
    assert all(0 <= route < 2**31 for route in first)


def test_routes_that_do_not_fit_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("netfold.sim.scenario.resolve.available_bytes", lambda: 1)

    assert refused(tmp_path) == (
        "tiny.yaml:3: topology: the routes between 1 switches take up to 1.86e-09 GiB, "
        "9.31e-10 GiB of memory are free for them\n"
        "  use fewer switches, or topologies that variants have in common"
    )


FROM_FILE = "topology={kind: file, path: net.json}"
KNOWN = "plain, ideal, tofino1, tofino2, sharp, fpga, trio"
COLLECTIVE = "kind: in_network\n  frame: udp-256\n"

MISTAKES = {
    "more workers than hosts": (
        "workers: 3",
        "workers: 5",
        "4: workers: cannot place 5 workers on 4 hosts, one a host\n"
        "  use at most 4 workers or a larger topology",
    ),
    "unknown host": (
        "workers: 3",
        "workers: {count: 2, placement: [h0, h11]}",
        "4: workers.placement: there is no host 'h11' (did you mean 'h1'?)\n"
        "  there are 4 hosts, from 'h0' to 'h3'",
    ),
    "one host for two workers": (
        "workers: 3",
        "workers: {count: 2, placement: [h0, h0]}",
        "4: workers.placement: host 'h0' is named for 2 workers\n  a host takes one, so name another",
    ),
    "too few hosts named": (
        "workers: 3",
        "workers: {count: 3, placement: [h0, h1]}",
        "4: workers.placement: 3 workers need as many host names, found 2\n  name exactly one a worker",
    ),
    "mistyped profile": (
        "switch: tofino1",
        "switch: tofino",
        f"3: topology.switch: there is no switch profile 'tofino'\n  did you mean 'tofino2'? known: {KNOWN}",
    ),
    "no programmable switch": (
        "switch: tofino1",
        "switch: plain",
        "3: topology.switch: no switch can aggregate: profiles found are 'plain' on 1\n"
        "  give one a programmable profile: ideal, tofino1, tofino2, sharp, fpga, trio",
    ),
    "mistyped switch": (
        COLLECTIVE,
        COLLECTIVE + "  switch: s00\n",
        "12: collective.switch: there is no switch 's00'\n  did you mean 's0'? switches: s0",
    ),
    "float sums in a switch": (
        "kind: fixed_point",
        "kind: none",
        "8: codec: switch profile 'tofino1' cannot merge words by float_add (it can: add, max, or)\n"
        "  use a switch that can (ideal, sharp, fpga), or a codec that needs no more than it can",
    ),
    "slots that are no whole messages": (
        COLLECTIVE,
        "kind: in_network\n  message_packets: 4\n  slots: 510\n",
        "12: collective.slots: 510 slots cannot be divided into messages of 4 packets\n  use a multiple of 4",
    ),
    "a window that is never acknowledged": (
        COLLECTIVE,
        "kind: ring\n  ack_every: 9\n  window: 8\n",
        "12: collective.window: a window of 8 packets is smaller than ack_every, 9: "
        "it would be full before an acknowledgement is sent\n  use at least 9",
    ),
    "no such link": (
        COLLECTIVE,
        COLLECTIVE + "faults:\n  - {kind: loss, rate: 1%}\n  - kind: loss\n    rate: 1%\n"
        "    links: ['h*', h0->s1]\n",
        "16: faults.1.links: no link matches 'h0->s1'\n"
        "  did you mean 'h0->s0'? links are named like 'h0->s0'",
    ),
    "too many slots": (
        COLLECTIVE,
        COLLECTIVE + "  slots: 11265\n",
        "12: collective.slots: 11265 slots need 32 register arrays of 22530 entries (13 map RAMs each), "
        "tofino1 with 48 map RAMs a stage has room for 27\n  use 11264 slots at most",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_in_full(tmp_path: Path, mistake: str) -> None:
    old, new, told = MISTAKES[mistake]
    assert TINY.count(old) == 1

    assert f"tiny.yaml:{told}" == refused(tmp_path, text=TINY.replace(old, new))


def test_slots_up_to_what_the_registers_hold(tmp_path: Path) -> None:
    assert job_of(only(tmp_path, "collective.slots=11264")).slots_count == 11264
    # The ideal switch has no such limit.
    ideal = only(tmp_path, "collective.slots=100000", "topology.switch=ideal")
    assert job_of(ideal).slots_count == 100_000


@pytest.mark.parametrize(("written", "found"), [("0s", "0ps"), ("1ps", "1ps"), ("16851840ps", "16.85184us")])
def test_a_timeout_that_expires_while_all_is_well(tmp_path: Path, written: str, found: str) -> None:
    """It would send everything again and again, and in no time if it is 0."""
    # Up: 512 packets of 332 B in a row, 1 us and a pass. Through: a second pass. Down: one packet, 1 us.
    # A window up, then one packet through the loopback (one more pass) and down.
    round_trip_ps = 512 * 332 * 80 + 1_000_000 + 600_000 + 332 * 80 + 600_000 + 332 * 80 + 1_000_000
    assert round_trip_ps == 16_851_840

    for key in ("timeout", "first_timeout"):
        assert refused(tmp_path, "collective.slots=512", f"collective.{key}={written}") == (
            f"--set: collective.{key}: {found} is too short: a full window's round trip takes 16.9us "
            "on the idle network, so packets would be sent again without need\n"
            "  use more than 16.9us, or a smaller window (collective.slots)"
        )
    assert plan(tmp_path, "collective.slots=512", "collective.timeout=16851841ps")


def test_a_longest_timeout_below_the_first(tmp_path: Path) -> None:
    """Written, it would be ignored; a default gives way."""
    assert refused(tmp_path, "collective.timeout=2ms", "collective.timeout_max=1999us") == (
        "--set: collective.timeout_max: 1999us is less than timeout, 2ms\n"
        "  use 2ms or more, or a timeout of 1999us at most"
    )
    assert refused(tmp_path, "collective.timeout=released", "collective.timeout_max=4ms") == (
        "--set: collective.timeout_max: 4ms is less than timeout, 10ms (released)\n"
        "  use 10ms or more, or a timeout of 4ms at most"
    )
    same = job_of(only(tmp_path, "collective.timeout=2ms", "collective.timeout_max=2ms"))
    assert (same.sender.timeout_ps, same.sender.timeout_max_ps) == (2 * 10**9, 2 * 10**9)
    longer = job_of(only(tmp_path, "collective.timeout=200ms"))
    assert (longer.sender.timeout_ps, longer.sender.timeout_max_ps) == (2 * 10**11, 2 * 10**11)


def test_a_ring_has_as_little_use_for_a_short_timeout(tmp_path: Path) -> None:
    # Through the switch: a packet twice, a window once; then the acknowledgement.
    size_bytes, ack_bytes = 82 + 1024 + 16 + 4, 86
    trip_ps = size_bytes * 80 * (2 + 511) + 2_600_000 + ack_bytes * 80 * 2 + 2_600_000

    ring = "collective={{kind: ring, timeout: {}ps}}"
    assert refused(tmp_path, ring.format(trip_ps), DENSE) == (
        f"--set: collective.timeout: {TIME.format(trip_ps)} is too short: a full window's round trip takes "
        f"{TIME.rough(trip_ps)} on the idle network, so packets would be sent again without need\n"
        f"  use more than {TIME.rough(trip_ps)}, or a smaller window (collective.window)"
    )
    assert plan(tmp_path, ring.format(trip_ps + 1), DENSE)


def test_a_link_faster_than_the_switchs_ports(tmp_path: Path) -> None:
    assert refused(tmp_path, "topology.rate=200Gbps") == (
        "--set: topology.rate: link h0–s0 has 200Gbps, a port of tofino1 100Gbps\n"
        "  use a lower rate, or topology.switch: ideal"
    )
    assert plan(tmp_path, "topology.rate=200Gbps", "topology.switch=ideal")


def test_a_network_with_too_many_nodes(tmp_path: Path) -> None:
    assert refused(tmp_path, "topology.hosts=16384") == (
        "--set: topology.hosts: 16385 nodes are too many: the packet engine takes up to 16384\n"
        "  use 16383 hosts at most"
    )
    assert "1000000000001 nodes are too many" in refused(tmp_path, "topology.hosts=1e12")
    huge = "topology={kind: leaf_spine, leaves: 1000, spines: 1000, hosts_per_leaf: 1000, switch: tofino1}"
    assert refused(tmp_path, huge, "topology.hosts_per_leaf=2") == (
        "--set: topology.leaves: 2004000 links are too many: the packet engine takes up to 262144\n"
        "  use 130 leaves at most"
    )


def test_defaults_of_timeouts_outlast_a_full_window(tmp_path: Path) -> None:
    slow = "topology.rate=1Mbps"
    window_ps = 512 * 332 * 8 * 10**6
    for timeout in ("auto", "released"):
        job = job_of(only(tmp_path, slow, "collective.slots=512", f"collective.timeout={timeout}"))
        assert job.sender.timeout_ps == job.sender.first_timeout_ps > 2 * window_ps


LIMIT_PS = 2**61
FIXED = "device={kind: fixed, forward: 1000s, backward: 1000s}"
SLOW = "faults=[{kind: slow_host, worker: 1, factor: 10000}]"


def test_a_rate_at_which_a_window_outlasts_all_time(tmp_path: Path) -> None:
    assert refused(tmp_path, "topology.rate=1bps") == (
        "--set: topology.rate: at 1bps a full window waits for more than 26 days of simulated time\n"
        "  use a higher rate, or a smaller window"
    )
    assert refused(tmp_path, "topology.rate=1bps", "collective.slots=1", "workload.elements=1e6") == (
        "--set: topology.rate: at 1bps a step takes up to 384000000 s, "
        "which is more than 26 days of simulated time\n"
        "  use fewer elements, or links of 167bps or more"
    )


def test_just_inside_and_just_outside(tmp_path: Path) -> None:
    """3 workers send 4 · 2 · 2 bytes for an element, at 1 Kbps: 0.384 s."""
    most = LIMIT_PS // (3 * 16 * 8 * 10**9)
    rate = ("topology.rate=1Kbps", "collective.slots=1")

    assert plan(tmp_path, *rate, f"workload.elements={most}")
    assert "use fewer elements, or links of 1010bps or more" in refused(
        tmp_path, *rate, f"workload.elements={most + 1}"
    )


def test_steps(tmp_path: Path) -> None:
    """Each takes 2000 s, and 1000 elements of 3 workers at 100 Gbps 3.84 us at most."""
    most = LIMIT_PS // (2000 * 10**12 + 3_840_000)

    assert most == 1152
    assert plan(tmp_path, FIXED, f"workload.steps={most}")
    assert refused(tmp_path, FIXED, f"workload.steps={most + 1}") == (
        "--set: workload.steps: 1153 steps of up to 2010s each are more than 26 days of simulated time\n"
        "  use 1152 steps at most"
    )


def test_local_steps_take_time_each(tmp_path: Path) -> None:
    """An exchange after 4 local steps of 2000 s; 40,000 steps of a training are within memory."""
    trained = "workload={kind: training, model: mlp, local_steps: 4, steps: %d}"
    most = LIMIT_PS // (4 * 2000 * 10**12)

    assert plan(tmp_path, FIXED, trained % most)
    assert f"workload.steps: {most + 1} steps of up to " in refused(tmp_path, FIXED, trained % (most + 1))


def test_a_slow_host(tmp_path: Path) -> None:
    assert refused(tmp_path, FIXED, SLOW) == (
        "--set: device: a step takes up to 20000000 s, which is more than 26 days of simulated time\n"
        "  use shorter times, or a smaller factor of slow_host"
    )
    assert plan(tmp_path, "device={kind: fixed, forward: 1ms, backward: 1ms}", SLOW)


def test_factors_multiply(tmp_path: Path) -> None:
    twice = (
        "faults=[{{kind: slow_host, worker: 1, factor: 100}}, {{kind: slow_host, worker: {}, factor: 101}}]"
    )
    device = "device={kind: fixed, forward: 1ms, backward: 1ms}"

    assert plan(tmp_path, device, twice.format(2))
    assert refused(tmp_path, device, twice.format(1)) == (
        "--set: faults: worker 1 becomes 10100 times as slow, by all of its faults together\n"
        "  use factors whose product is 10000 at most"
    )


def test_a_link_that_stays_slow(tmp_path: Path) -> None:
    fault = "faults: [{{kind: link_rate, at: 0s, rate: 1bps{}}}]\n"

    few = "collective.slots=8"
    assert plan(tmp_path, "workload.elements=1e6", few, text=TINY + fault.format(", for: 1ms"))
    assert "links of 167bps or more" in refused(
        tmp_path, "workload.elements=1e6", text=TINY + fault.format("")
    )


@pytest.mark.parametrize(
    "sets", [("collective.slots=512",), ("collective={kind: ring, window: 8192}", DENSE)]
)
def test_a_link_on_which_a_window_outlasts_the_clock(tmp_path: Path, sets: tuple[str, ...]) -> None:
    """2^59 ps, however short the fault is: nobody waits for its end to say so."""
    fault = "faults: [{{kind: link_rate, links: ['h0->s0'], at: 1us, rate: {}, for: 50us}}]\n"
    found = refused(tmp_path, *sets, text=TINY + fault.format("1bps"))

    assert found.startswith(
        "tiny.yaml:12: faults.0.rate: at 1bps a full window waits for link h0->s0 for more than 6 days of "
        "simulated time\n"
    )
    least = re.search(r"use (\d+)bps or more, or a smaller window$", found)
    assert least is not None
    assert plan(tmp_path, *sets, text=TINY + fault.format(f"{least[1]}bps"))


RELEASED = "collective.slots=512", "collective.timeout=released"  # timers that know nothing of losses


def test_what_is_sent_again_may_still_outlast_the_clock(tmp_path: Path) -> None:
    """A window fits, a second one behind it does not: the run ends in words."""
    fault = "faults: [{kind: link_rate, links: ['h0->s0'], at: 1us, rate: 3bps, for: 10ms}]\n"

    with pytest.raises(RunError) as caught:
        simulate(tmp_path, "workload.elements=1e5", *RELEASED, text=TINY + fault)

    assert str(caught.value).removeprefix(f"{tmp_path}/") == (
        "tiny.yaml: tiny: the backlog of link h0->s0 takes longer than 576460752303423488 ps, the most "
        "that fits the engine's clock\n"
        "  use a higher rate for it (link_rate in `faults`, or the topology), fewer slots, or a longer "
        "timeout"
    )


BARE = TINY.replace("  frame: udp-256\n", "")
OWN = TINY.replace("workers:", "profiles:\n  - name: mine\n    like: tofino1\nworkers:")
TREE = "collective.program=tree"
FACTOR = "codec={kind: fixed_point, factor: 1e6}"


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

    assert job_plan(variant).collective.passes == (found.packet_passes, found.read_passes)
    loopback = job_of(variant).loopback_link
    assert (loopback >= 0) == (found.extra_passes > 0)
    if loopback >= 0:
        assert variant.network.delay_ps[loopback] == found.extra_passes * 600_000


def test_a_profile_of_ones_own(tmp_path: Path) -> None:
    own = ("topology.switch=mine", "profiles.mine.pass_latency=1us", "profiles.mine.words_out=2")
    variant = only(tmp_path, *own, text=OWN)

    assert variant.network.profiles[-1] == "mine"
    assert variant.network.delay_ps[0] == 2_000_000
    assert job_plan(variant).collective.passes == (1, 0)
    assert refused(tmp_path, *own, "profiles.mine.stages=10", text=OWN) == (
        "tiny.yaml:14: collective.frame: SwitchML with 64 words a pass needs 36 stateful ALUs in stages "
        "that wait for each other, the 10 stages of mine have room for 28 of its 32 arrays 'values'\n"
        "  use a switch that can: ideal, tofino1, tofino2, fpga, trio"
    )


def racks(folder: Path, spine: str, leaf: str) -> None:
    """Two racks as a file, which `FROM_FILE` names."""
    graph = leaf_spine(2, 1, 4, LINK, LINK, leaf)
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
    found = only(tmp_path, FROM_FILE, f"collective.program={program}", *codec, text=BARE)

    assert found.network.nodes[job_of(found).switch] == root
    if program == "switchml" and leaf == "sharp":
        below = only(tmp_path, FROM_FILE, "workers=8", "collective.aggregators=tree")
        assert job_of(below).branches == ()  # the leaves cannot


SHARP = ("topology.switch=sharp", TREE)
REFUSED = {
    "a switch that only forwards": (
        ("topology.switch=plain", "collective.switch=s0"),
        "--set: collective.switch: switch profile 'plain' only forwards\n"
        "  use a switch that can: ideal, tofino1, tofino2, fpga, trio",
    ),
    "a switch that runs other programs": (
        ("topology.switch=sharp",),
        "tiny.yaml:9: collective.program (default): sharp runs program tree alone, found switchml\n"
        "  use program tree, or a programmable switch: ideal, tofino1, tofino2, fpga, trio",
    ),
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
    "a window of more packets than entries": (
        ("collective.program=atp", FACTOR, "collective.slots=100", "collective.entries=10"),
        "--set: collective.entries: a window of 100 packets needs at least 100 entries, found 10\n"
        "  use 100 entries or more, or 10 slots or fewer",
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


def test_a_point_of_a_tree_that_does_not_fit_is_named(tmp_path: Path) -> None:
    """The loopback ports of a small leaf are fewer than its four workers need."""
    graph = leaf_spine(2, 1, 4, LINK, LINK, "tofino1")
    graph.nodes["leaf1"]["profile"] = "mine"
    (tmp_path / "net.json").write_text(to_json(graph))
    tree = ("collective.aggregators=tree", "collective.switch=spine0", "collective.frame=udp-1024")
    sets = (FROM_FILE, "workers=8", *tree)
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
    codec = DENSE if program == "tree" else FACTOR

    command = ["switch", "fit", program, "--profile", name, "--workers", "3"]
    told = run_command(*command)
    if told.exit_code == 0:
        assert job_of(only(tmp_path, *sets, codec, text=BARE)).slots_count == demand.slots
    else:
        reason = told.stdout.splitlines()[0].removeprefix("does not fit: ")
        reason = "no switch can aggregate" if name == "plain" else reason
        assert reason in refused(tmp_path, *sets, codec, text=BARE)
