"""What a plan holds of hosts and switches: frames, windows, several workers on a host, programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from netfold.homomorphic.codecs.fixed_point import FixedPoint
from netfold.homomorphic.merge import Merge
from netfold.sim.collectives.collective import collectives
from netfold.sim.collectives.host_collective import ChunkedCollective, HostPlan
from netfold.sim.collectives.kinds.parameter_server import ServerPlan
from netfold.sim.engine.congestion_policies import AIMD
from netfold.sim.engine.engine_data import Overflow
from tests.registry import known
from tests.sim.host_codecs import HostCodec
from tests.sim.scenes import RING, TINY, job_of, job_plan, measure, only, plan, refused, simulate

TEXT = TINY.replace("hosts: 4", "hosts: 6").replace(
    "  kind: in_network\n  frame: udp-256\n", "  kind: ring\n"
)
JOBS = TEXT + "jobs: [{name: a}, {name: b, workers: 2}]\n"


def servers(folder: Path, keys: str) -> tuple[list[str], tuple[int, ...]]:
    """The hosts of servers, and the workers that they run beside."""
    variant = only(folder, f"collective={{kind: parameter_server{keys}}}", text=TEXT)
    plan = job_plan(variant).collective
    assert isinstance(plan, ServerPlan)
    return [variant.network.nodes[node] for node in plan.servers], plan.owners


@pytest.mark.parametrize(
    ("keys", "found"),
    [
        ("", (["h3"], ())),
        (", servers: 2, placement: spread", (["h3", "h4"], ())),
        (", servers: 2, placement: [h5, h3]", (["h5", "h3"], ())),
        (", placement: beside_workers", (["h0"], (0,))),
        (", servers: 2, placement: beside_workers", (["h0", "h1"], (0, 1))),
    ],
)
def test_servers_run_where_the_scenario_says(
    tmp_path: Path, keys: str, found: tuple[list[str], tuple[int, ...]]
) -> None:
    assert found == servers(tmp_path, keys)


def test_servers_of_several_jobs_share_no_host(tmp_path: Path) -> None:
    served = "collective={kind: parameter_server}"
    variant = only(tmp_path, served, text=JOBS.replace("hosts: 6", "hosts: 7"))
    nodes = [job.collective.servers for job in variant.jobs]  # type: ignore[attr-defined]
    assert [[variant.network.nodes[node] for (node,) in [one]] for one in nodes] == [["h5"], ["h6"]]

    told = refused(tmp_path, served, text=JOBS)
    assert "cannot place 1 servers on the 0 hosts that workers and other servers leave free" in told
    placed = "collective={kind: parameter_server, placement: [h5]}"
    told = refused(tmp_path, placed, text=JOBS)
    assert "host 'h5' runs a server of job 'a'\n  use another host; free: none" in told


@pytest.mark.parametrize("kind", ["all_gather", "parameter_server"])
def test_chunks_are_words_and_a_note_says_if_they_fill_the_window(tmp_path: Path, kind: str) -> None:
    plain = job_plan(only(tmp_path, f"collective={{kind: {kind}}}", text=TEXT))
    assert isinstance(plain.collective, HostPlan)
    assert isinstance(plain.collective.collective, ChunkedCollective)
    assert plain.collective.collective.chunk_words == 16384
    assert not any("chunk" in warning for warning in plain.warnings)

    # 64 packets of 256 words: half of a window of 128.
    half, more = (
        job_plan(only(tmp_path, f"collective={{kind: {kind}, window: {window}}}", text=TEXT))
        for window in (128, 127)
    )
    assert not any("chunk" in warning for warning in half.warnings)
    assert more.warnings == (
        "a chunk of 64KiB is 64 packets, more than half of a window of 127: a connection waits for the "
        "delivery of every chunk; use a smaller collective.chunk, or a larger collective.window",
    )


@pytest.mark.parametrize(
    ("keys", "packets"),
    [
        ("", 256),  # four chunks of 64 packets
        (", chunk: 256KiB", 1024),
        (", chunk: 4KiB", 256),
        (", frame: {words: 1024, overhead: 82B}", 64),
        (", frame: {words: 8192, overhead: 82B}", 16),  # as an acknowledgement is for so many
        (", window: 512", 512),
    ],
)
def test_by_default_the_window_of_a_tree_is_four_chunks(tmp_path: Path, keys: str, packets: int) -> None:
    plan = job_plan(only(tmp_path, f"collective={{kind: tree{keys}}}", text=TEXT)).collective
    assert plan.sender is not None
    assert plan.sender.window == packets
    assert plan.settled["window"] == packets


def test_the_window_of_a_tree_is_a_quarter_of_what_is_on_the_way_on_long_links(tmp_path: Path) -> None:
    """A packet takes 22.12 ns a link, its acknowledgement 1.72 ns, and each of four delays 10 us."""
    far = "topology={kind: star, hosts: 8, rate: 400Gbps, delay: 10us, switch: ideal}"
    plan = job_plan(only(tmp_path, far, "collective={kind: tree}", text=TEXT)).collective
    assert plan.sender is not None
    assert plan.sender.window == 453  # 40,047.68 / 22.12 = 1810, and a quarter of them


def test_a_window_is_auto_or_a_number(tmp_path: Path) -> None:
    told = refused(tmp_path, "collective={kind: tree, window: 0}", text=TEXT)
    assert "must be auto or a number of packets, at least 1; found 0" in told


def test_the_timeout_covers_the_waiting_at_a_server(tmp_path: Path) -> None:
    """Windows of all workers meet on its link: 3 · 512 packets of up to 1126 B, and the way."""
    told = refused(tmp_path, "collective={kind: parameter_server, timeout: 138us}", text=TEXT)
    assert "138us is too short: a full window's round trip takes" in told
    only(tmp_path, "collective={kind: parameter_server, timeout: 150us}", text=TEXT)


@pytest.mark.parametrize(
    ("how", "collective", "told"),
    [
        ("gather", "ring", "needs gather, which collective ring cannot carry"),
        ("gather", "in_network", "needs gather, which collective in_network cannot carry"),
        ("union", "in_network", "needs host, which collective in_network cannot carry"),
    ],
)
def test_refusals_name_a_collective_that_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, collective: str, told: str
) -> None:
    known(monkeypatch, HostCodec)
    codec = f"codec={{kind: host_codec, how: {how}}}"
    found = refused(tmp_path, codec, f"collective={{kind: {collective}}}", text=TEXT)

    message, hint = found.split("\n")
    assert message == f"--set: codec: codec 'host_codec' {told}"
    able = hint.removeprefix("  use collective.kind: ").replace(" or ", ", ").split(", ")
    needed = Merge.HOST if how == "union" else Merge.GATHER
    assert able == [kind for kind, spec in collectives().items() if needed in spec.merges]
    for one in able:
        within = ", group_size: 2, inner: {kind: ring}, outer: {kind: ring}" if one == "hierarchical" else ""
        only(tmp_path, codec, f"collective={{kind: {one}{within}}}", text=TEXT)


US = 10**6
X = 1106 * 80  # ps that a packet of 1106 B takes at 100 Gbps
W4 = """\
name: tiny
topology: {kind: star, hosts: 8, rate: 100Gbps, delay: 1us, switch: ideal}
workers: 8
workload: {kind: synthetic, elements: ELEMENTS}
codec: {kind: none}
collective: {kind: in_network, frame: {words: 256, overhead: 82B}}
"""
RACKS = "topology={kind: leaf_spine, leaves: 2, spines: 1, hosts_per_leaf: 4, rate: 100Gbps, delay: 1us, "
RACKS += "switch: ideal}"
TREE = ("collective.aggregators=tree", "collective.switch=spine0")
OWN = "collective.frame={words: 64, overhead: 70B, first: 16B, last: 4B, ack: 90B}"


def end_ps(folder: Path, elements: int, *sets: str) -> int:
    result = simulate(folder, *sets, text=W4.replace("ELEMENTS", str(elements)))
    assert [check for check in result.checks if check.verdict != "pass"] == []
    return result.steps[-1].end_ps


def one_switch_ps(packets: int) -> int:
    """Every packet takes X, one of them on the way down too, and both links their delay."""
    return (packets + 1) * X + 2 * US


def two_racks_ps(packets: int) -> int:
    """Two links and two delays more: each leaf adds up its rack, the spine both."""
    return (packets + 3) * X + 4 * US


def test_w4_takes_what_the_wire_allows(tmp_path: Path) -> None:
    assert end_ps(tmp_path, 1000 * 256) == one_switch_ps(1000)
    assert end_ps(tmp_path, 1000 * 256, RACKS, *TREE) == two_racks_ps(1000)


def test_the_same_bounds_give_the_figures_that_switchml_omnetpp_measures() -> None:
    """100 MB of 8 workers in frames of 1106 B: 8.6428 ms on one switch, 8.6450 in two racks."""
    packets = -(-25_000_000 // 256)

    assert one_switch_ps(packets) / 10**9 == pytest.approx(8.6428, abs=0.00005)
    assert two_racks_ps(packets) / 10**9 == pytest.approx(8.6450, abs=0.00005)


def test_every_part_of_a_frame_reaches_the_wire(tmp_path: Path) -> None:
    """6400 words are 100 packets: 25 messages of 4, with 16 B more on their first and 4 B on their last."""
    codec = "codec={kind: fixed_point, factor: 1e6}"
    result = simulate(tmp_path, codec, "workload.elements=6400", OWN, "collective.message_packets=4")
    sent = next(link for link in result.links if link.link == "h0->s0")

    assert (sent.packets, sent.bytes) == (100, 100 * 326 + 25 * 20)


def test_reliable_messages_use_it_too(tmp_path: Path) -> None:
    """A ring of 3 sends 4 chunks of 3333 words: 53 packets each, and as many acknowledgements."""
    ring = OWN.replace("collective.frame=", "collective={kind: ring, ack_every: 1, frame: ") + "}"
    result = simulate(tmp_path, ring, "codec={kind: none}", "workload.elements=9999")
    link = next(link for link in result.links if link.link == "h0->s0")
    data = 4 * 53

    assert link.packets == 2 * data
    assert link.bytes == data * 70 + 4 * 4 * 3333 + 4 * 20 + data * 90


@pytest.mark.parametrize("frame", ["{words: 4, overhead: 68B}", "{words: 16, overhead: 82B, ack: 84B}"])
def test_what_is_just_long_enough_is_fine(tmp_path: Path, frame: str) -> None:
    assert plan(tmp_path, f"collective={{kind: in_network, frame: {frame}}}")


# 256 words are folded over four pipelines: n workers make 3 n further streams, and reading out takes 7 more.
FOLDED = """\
name: racks
seed: 1
profiles: [{name: mine, like: tofino1, loopback_ports: 8}]
topology:
  {kind: leaf_spine, leaves: 2, spines: 1, hosts_per_leaf: 4, rate: 25Gbps, uplink_rate: 100Gbps,
   switch: mine}
workers: 8
workload: {kind: synthetic, elements: 300000}
codec: {kind: fixed_point}
collective: {kind: in_network, frame: roce-1024, switch: spine0, aggregators: one}
"""
STREAMS = 8 * 3 + 7
PORTS, PORT_RATE = "profiles.mine.loopback_ports={}", "profiles.mine.loopback_rate={}Gbps"


def needed(ports: int, rate_gbps: str, sent_gbps: str, workers: int = 8) -> str:
    return (
        f"{workers} workers send {sent_gbps} Gbps through loopback ports with SwitchML, "
        f"mine has {ports} of {rate_gbps} Gbps"
    )


@pytest.mark.parametrize(
    ("port_gbps", "ports", "fits"),
    [("25", STREAMS, True), ("25", STREAMS - 1, False), ("25.84", 30, True), ("25.83", 30, False)],
)
def test_just_at_the_limit(tmp_path: Path, port_gbps: str, ports: int, fits: bool) -> None:
    """31 streams of 25 Gbps; 30 ports carry them from 25.8334 Gbps on."""
    sets = (PORTS.format(ports), PORT_RATE.format(port_gbps))

    if fits:
        assert only(tmp_path, *sets, text=FOLDED)
    else:
        assert needed(ports, port_gbps, "775") in refused(tmp_path, *sets, text=FOLDED)


def test_an_uplink_that_streams_share_slows_them_all(tmp_path: Path) -> None:
    """Four streams on 50 Gbps have 12.5 each, 31 of them 387.5: four ports. In a tree each has 25."""
    slow = "topology.uplink_rate=50Gbps"

    assert only(tmp_path, slow, PORTS.format(4), text=FOLDED)
    assert needed(3, "100", "387.5") in refused(tmp_path, slow, PORTS.format(3), text=FOLDED)
    # A leaf has four workers: 4 · 3 + 7 = 19 streams.
    tree = ("collective.aggregators=tree", slow)
    assert only(tmp_path, *tree, PORTS.format(5), text=FOLDED)
    assert needed(4, "100", "475", 4) in refused(tmp_path, *tree, PORTS.format(4), text=FOLDED)


def test_a_slow_port_for_results_slows_what_comes(tmp_path: Path) -> None:
    """Every result passes one port of 10 Gbps, and no worker is ahead of results: 31 streams of 10."""
    slow = PORT_RATE.format(10)

    assert only(tmp_path, slow, PORTS.format(31), text=FOLDED)
    assert needed(30, "10", "310") in refused(tmp_path, slow, PORTS.format(30), text=FOLDED)


@pytest.mark.parametrize(
    ("sets", "stream_gbps", "port_gbps"),
    [(("topology.uplink_rate=50Gbps",), 12.5, 100), ((PORT_RATE.format(10), PORTS.format(31)), 10, 10)],
)
def test_a_run_is_as_busy(
    tmp_path: Path, sets: tuple[str, ...], stream_gbps: float, port_gbps: float
) -> None:
    """The port that results pass carries one stream, at the rate that the check counts with."""
    metrics = measure(tmp_path, *sets, "workload.elements=1000000", text=FOLDED)

    assert metrics["loopback_busy"] == pytest.approx(stream_gbps / port_gbps, rel=0.03)
    assert metrics["loopback_busy"] <= stream_gbps / port_gbps


STAR = """\
name: star
seed: 1
profiles: [{name: mine, like: tofino1, loopback_ports: 56}]
topology: {kind: star, hosts: 24, rate: 25Gbps, switch: mine}
workers: 8
workload: {kind: synthetic, elements: 1000}
codec: {kind: fixed_point}
collective: {kind: in_network, frame: roce-1024}
jobs: [{name: a}, {name: b}]
"""


def test_jobs_on_one_switch_add_up(tmp_path: Path) -> None:
    """Two jobs of eight workers: 62 streams of 25 Gbps, 1550 in all."""
    assert only(tmp_path, PORTS.format(16), text=STAR)
    assert refused(tmp_path, PORTS.format(15), text=STAR) == (
        "tiny.yaml:5: workers: 8 workers and those of other jobs send 1550 Gbps through loopback ports "
        "with SwitchML, mine has 15 of 100 Gbps\n  use 7 workers at most, "
        "or 64 words (256 B) a packet (collective.frame: udp-256)"
    )


BARE = TINY.replace("  frame: udp-256\n", "")
FACTOR = "codec={kind: fixed_point, factor: 1e6}"
ATP = ("collective.program=atp", FACTOR)
TIMED = ("collective={program: timed, slot_timer: 2ms}", FACTOR)


def test_atp(tmp_path: Path) -> None:
    variant = only(tmp_path, *ATP, "collective.slots=100", "collective.timeout=released", text=BARE)
    job = job_of(variant)

    assert (job.program.name, job.overflow) == ("atp", Overflow.STICKY)
    assert (job.slots_count, job.unit_packets) == (100, 1)
    assert (job.frame.elements, job.frame.wire_bytes(62, first=True, last=True)) == (62, 332)
    assert (job.sender.timeout_ps, job.sender.first_timeout_ps) == (200 * 10**6, 50 * 10**9)
    assert job.server is not None
    assert variant.network.nodes[job.server.host] == "h3"
    assert (job.server.entries, job.server.window_max, job.sender.ecn_bytes) == (20_000, 100, 80_000)
    assert job.sender.policy == AIMD
    assert job_plan(variant).codec == FixedPoint(factor=1e6)
    (bound,) = job_plan(variant).references
    assert bound.elements_per_s == pytest.approx(62 / 332 * 12.5e9)


def test_timed(tmp_path: Path) -> None:
    released = "collective.slots=512", "collective.timeout=released"
    job = job_of(only(tmp_path, *TIMED, *released, "topology.switch=trio", text=BARE))

    assert (job.program.name, job.overflow, job.slot_timer_ps) == ("timed", Overflow.WRAP, 2 * 10**9)
    assert (job.frame.name, job.slots_count, job.sender.timeout_ps) == ("udp-1024", 512, 10**10)


def test_two_jobs_of_atp_share_entries_and_may_share_their_server(tmp_path: Path) -> None:
    text = BARE.replace("hosts: 4", "hosts: 8") + "jobs: [{name: a}, {name: b}]\n"
    variant = only(tmp_path, *ATP, text=text)
    jobs = [job.collective.aggregation for job in variant.jobs]

    servers = [job.server for job in jobs]  # type: ignore[union-attr]
    assert [variant.network.nodes[server.host] for server in servers if server is not None] == ["h6", "h6"]

    told = refused(tmp_path, *ATP, "jobs.b.collective.entries=100", text=text)
    assert told == (
        "--set: jobs.b.collective.entries: switch s0 has 20000 entries for job 'a', which all jobs share\n"
        "  use 20000"
    )


REFUSED = [
    (
        ("collective.program=atp", "workers=4", FACTOR),
        "tiny.yaml:9: collective.server (default): every host runs a worker, so none is free for the "
        "parameter server\n  use a larger topology or fewer workers",
    ),
    (
        (*ATP, "collective.server=h1"),
        "--set: collective.server: host 'h1' runs a worker\n  name a host without one, or use auto",
    ),
    (
        (*ATP, "collective.server=h11"),
        "--set: collective.server: there is no host 'h11'\n  did you mean 'h1'? there are 4 hosts, ",
    ),
    (
        ("collective.program=atp",),
        "tiny.yaml:8: codec: codec 'fixed_point' cannot decode the sum of only some workers' messages, "
        "which program atp may deliver\n"
        "  use program switchml or tree, or codec fixed_point with a factor, for example "
        "{kind: fixed_point, factor: 1e6}",
    ),
    (
        ("collective.program=atp", "codec={kind: none}", "topology.switch=ideal"),
        "--set: codec: codec 'none' needs float_add, which program atp cannot do (it does add)\n"
        "  use program switchml or tree or timed, or codec fixed_point with a factor, for example "
        "{kind: fixed_point, factor: 1e6}",
    ),
    (
        (*ATP, "collective.timeout=1us"),
        "--set: collective.timeout: 1us is too short: a full window's round trip takes ",
    ),
]


SERVERS = [
    (
        "servers: 4",
        "collective.servers: cannot place 4 servers on the 3 hosts that workers and other servers leave "
        "free\n  use at most 3 servers or a larger topology or collective.placement: beside_workers",
    ),
    (
        "servers: 4, placement: beside_workers",
        "collective.servers: cannot place 4 servers beside 3 workers, one a host\n"
        "  use at most 3 servers, or collective.placement: pack",
    ),
    (
        "servers: 2, placement: [h4]",
        "collective.placement: 2 servers need as many host names, found 1\n  name exactly one a server",
    ),
    (
        "placement: [h2]",
        "collective.placement: host 'h2' runs a worker\n  use another host; free: h3, h4, h5",
    ),
    ("chunk: 3B", "collective.chunk: must be at least 4B, found '3B'\n"),
]
FRAMES = [
    (
        "{words: 4, overhead: 67B}",
        "collective.frame: a full packet of 83B is shorter than Ethernet's minimum\n"
        "  use 84B or more: 64B, and 20B of preamble and gap",
    ),
    (
        "{words: 256, overhead: 82B, ack: 83B}",
        "collective.frame: an acknowledgement of 83B is shorter than Ethernet's minimum\n"
        "  use 84B or more: 64B, and 20B of preamble and gap",
    ),
    (
        "{words: 16000, overhead: 1KB, last: 537B}",
        "collective.frame: a full packet of 65537B is too long\n  use 65536B on the wire at most",
    ),
    ("{words: 1024, overhead: 82B}", "collective.frame: SwitchML with 1024 words a pass needs"),
]


@pytest.mark.parametrize(
    ("text", "sets", "told"),
    [
        *((BARE, *refusal) for refusal in REFUSED),
        *(
            (TEXT, [f"collective={{kind: parameter_server, {keys}}}"], f"--set: {told}")
            for keys, told in SERVERS
        ),
        *(
            (TINY, [f"collective={{kind: in_network, frame: {frame}}}"], f"--set: {told}")
            for frame, told in FRAMES
        ),
    ],
)
def test_what_is_refused(tmp_path: Path, text: str, sets: tuple[str, ...], told: str) -> None:
    assert refused(tmp_path, *sets, text=text).startswith(told)


@pytest.mark.parametrize("policy", ["saturate", "sticky"])
def test_lossless_on_switches_that_saturate_is_warned_of(tmp_path: Path, policy: str) -> None:
    sets = ("codec={kind: lossless}", f"collective.overflow={policy}")

    assert job_plan(only(tmp_path, *sets)).warnings == (
        f"codec lossless with overflow {policy}: saturation is not invertible, so peeling can fail where a "
        "counter overflows",
    )
    assert job_plan(only(tmp_path, sets[0])).warnings == ()
    assert job_plan(only(tmp_path, sets[1])).warnings == ()


PUBLISHED = "codec={kind: lossless, setting: published, values: block_exponent}"
ONE_BIT = "codec={kind: lossless, setting: published, values: block_exponent, index_bits: 1}"
WRAP = "collective.overflow=wrap"
TOO_MANY = (
    "--set: codec.index_bits (default): 16 workers overflow the index's cells of 4 bits, which count to 15\n"
    "  use codec.index_bits: 1, or 15 workers at most"
)


def of(workers: int) -> tuple[str, str]:
    return f"workers={workers}", f"topology.hosts={workers}"


@pytest.mark.parametrize("collective", [WRAP, "collective.overflow=saturate", RING])
def test_more_workers_than_a_cell_counts(tmp_path: Path, collective: str) -> None:
    assert refused(tmp_path, PUBLISHED, collective, *of(16)) == TOO_MANY
    assert only(tmp_path, PUBLISHED, *of(7)).jobs
    assert only(tmp_path, ONE_BIT, collective, *of(16)).jobs


@pytest.mark.parametrize("overflow", ["saturate", "sticky"])
def test_words_that_leave_int32_where_they_must_not(tmp_path: Path, overflow: str) -> None:
    sets = PUBLISHED, f"collective.overflow={overflow}"

    assert refused(tmp_path, *sets, *of(8)) == (
        "--set: codec.index_bits (default): 8 workers in the index's cells of 4 bits leave int32, and with "
        f"overflow {overflow} the index would be wrong; up to 7 fit\n"
        "  use codec.index_bits: 1, or collective.overflow: wrap"
    )


@pytest.mark.parametrize(("workers", "overflow"), [(7, "saturate"), (7, "sticky"), (15, "wrap")])
def test_the_most_workers_count_right(tmp_path: Path, workers: int, overflow: str) -> None:
    """All share all elements, so every cell counts to the number of workers.

    A sketch of a full gradient does not decode, so its estimates fail; what switches merge is right.
    """
    sets = f"collective.overflow={overflow}", "workload.elements=20000", "workload.density=100%"
    (job,) = simulate(tmp_path, PUBLISHED, *sets, *of(workers)).jobs

    verdicts = {check.name: check.verdict for check in job.checks}
    assert verdicts["merges_are_exact"] == "pass"
