"""No run is faster than the two bounds of its aggregation time, and that of its schedule is near it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.errors import ScenarioError
from netfold.kinds import registered
from netfold.sim.collectives.host_collective import HostPlan
from netfold.sim.collectives.schedule_costs import Routed
from netfold.sim.plan.problem_bound import problem_bound
from netfold.sim.scenario.load import load
from netfold.sim.scenario.resolve import resolve
from netfold.sim.scenario.yaml_tree import ScenarioText
from netfold.topologies.graph import hosts
from netfold.topologies.kind import Topology
from netfold.topologies.network import Network, compile_network
from tests.examples import examples, nightly
from tests.pairs.scenario import small_network
from tests.sim.scenes import entry_of, simulated

ROUNDING = 1e-6  # times are whole picoseconds
KINDS = sorted(set(registered(Topology)) - {"topohub"})
LEVEL = {"kind": "ring"}
COLLECTIVES: tuple[dict[str, Any], ...] = (
    {"kind": "ring"},
    {"kind": "ring", "channels": 3, "chunk": "4KiB", "order": "topology"},
    {"kind": "tree", "chunk": "2KiB"},
    {"kind": "tree", "trees": 1, "order": "topology"},
    {"kind": "halving_doubling"},
    {"kind": "torus_2d"},
    {"kind": "all_gather"},
    {"kind": "parameter_server", "servers": 2},
    {"kind": "in_network", "program": "tree"},
    {"kind": "in_network", "program": "switchml"},
    {"kind": "hierarchical", "group_size": 3, "inner": LEVEL, "outer": LEVEL},
)
HOST_CODECS = ("none", "lossless", "topk", "random_k", "majority", "fixed_point")
SWITCH_CODECS = ("fixed_point", "lossless", "random_k")


def network_of(kind: str, **keys: Any) -> Any:
    return compile_network(registered(Topology)[kind](**keys).graph())


def scenario(
    collective: dict[str, Any], topology: dict[str, Any], elements: int, bucket: str = "25MB", **more: Any
) -> dict[str, Any]:
    """A scenario; switches aggregate if the collective asks for it."""
    in_switches = collective["kind"] == "in_network"
    return {
        "name": "bounded",
        "topology": {**topology, **({"switch": "ideal"} if in_switches else {})},
        "workload": {"kind": "synthetic", "elements": elements, "bucket": bucket},
        "codec": {"kind": "fixed_point" if in_switches else "none"},
        "collective": collective,
        **more,
    }


@st.composite
def scenarios(draw: st.DrawFn) -> dict[str, Any]:
    workers = draw(st.integers(2, 9))
    kind, collective = draw(st.sampled_from(KINDS)), draw(st.sampled_from(COLLECTIVES))
    policies = ["ecmp", "ecmp", "spray", "adaptive", {"kind": "flowlet", "gap": "1us"}]
    policies += [["valiant"], ["ugal"] * 2][draw(st.booleans())] if kind == "dragonfly" else []
    in_switches = collective["kind"] == "in_network"
    codecs = SWITCH_CODECS if in_switches else HOST_CODECS
    keys = dict(small_network(kind, workers + 2))
    window = {} if in_switches else {"window": draw(st.sampled_from([16, 512]))}
    return scenario(
        collective | window,
        {"kind": kind, **keys, "delay": draw(st.sampled_from(["10ns", "1us"]))},
        draw(st.sampled_from([256, 1000, 4096, 20_000])),
        seed=draw(st.integers(0, 10**6)),
        routing=draw(st.sampled_from(policies)),
        workers={"count": workers, "placement": draw(st.sampled_from(["pack", "random"]))},
        codec={"kind": draw(st.sampled_from(codecs))},
        bucket=draw(st.sampled_from(["25MB", "3KB"])),
        overlap={"buckets_in_flight": draw(st.sampled_from([1, 3]))},
    )


@pytest.mark.slow
@given(scenarios())
@examples(200, at_night=3)
def test_no_run_beats_its_bounds(drawn: dict[str, Any]) -> None:
    try:
        metrics = entry_of(simulated(drawn))["metrics"]
    except ScenarioError:
        return  # the switches cannot, or the codec does not go with it
    time_us, bound_us, own_us = (
        metrics[name] for name in ("aggregation_time_us", "bound_us", "schedule_bound_us")
    )
    if bound_us is not None:  # of messages that the codec alone merges nothing is known
        assert bound_us <= own_us
        assert own_us <= time_us * (1 + ROUNDING)


CELLS = {
    "star": {"kind": "star", "hosts": 16},
    "leaf_spine": {"kind": "leaf_spine", "leaves": 4, "hosts_per_leaf": 4, "spines": 4},
    "fat_tree": {"kind": "fat_tree", "k": 4},
    "rails": {"kind": "rail_optimized", "islands_per_pod": 4, "gpus_per_island": 4, "spines": 2},
}
OF_CELLS: dict[str, dict[str, Any]] = {
    "ring": {},
    "tree": {},
    "halving_doubling": {},
    "in_network": {"program": "tree"},
}
CROWDED = {("leaf_spine", "halving_doubling"), ("fat_tree", "halving_doubling")}
"""Where flows of one step meet on a link. All of them end late, as links are first come, first served."""

PREDICTED = 0.03
"""How far predictions are off, of long messages, but for these: what they are off by, measured."""
OFF = {
    ("fat_tree", "tree"): 0.043,  # links carry later pieces while the first passes
    ("rails", "tree"): 0.039,
    ("leaf_spine", "halving_doubling"): -0.150,  # flows of one step meet on a link
    ("fat_tree", "halving_doubling"): -0.195,
    ("rails", "halving_doubling"): -0.120,
}


@pytest.mark.parametrize("network", CELLS)
@pytest.mark.parametrize("kind", OF_CELLS)
def test_bound_and_prediction_of_a_schedule_are_near_its_time(network: str, kind: str) -> None:
    drawn = scenario({"kind": kind, **OF_CELLS[kind]}, CELLS[network], 10**6, workers=16)
    drawn["workload"]["payload"] = "none"
    drawn["codec"] |= {"factor": 1e6} if kind == "in_network" else {}  # so that only words are sent
    metrics = entry_of(simulated(drawn))["metrics"]
    assert metrics["of_schedule_bound"] <= 1 + ROUNDING
    off = metrics["predicted_time_us"] / metrics["aggregation_time_us"] - 1
    exact = 0.005 if (network, kind) in OFF else PREDICTED
    assert off == pytest.approx(OFF.get((network, kind), 0.0), abs=exact)
    if (network, kind) not in CROWDED:
        assert metrics["of_schedule_bound"] >= 0.9
        return
    assert metrics["of_schedule_bound"] >= 0.75
    # In another order the same transfers need hardly more than the bound. (Packets, which are received before
    # they are forwarded, take longer than bits.)
    assert 0.94 <= metrics["schedule_bound_us"] / one_by_one_us(drawn, 10**6) <= 1.001


LARGER: dict[str, tuple[int, dict[str, Any]]] = {
    **{name: (16, keys) for name, keys in CELLS.items()},
    "torus": (16, {"kind": "torus", "dimensions": [4, 4]}),
    "hyperx": (16, {"kind": "hyperx", "hosts_per_switch": 4, "dimensions": [4]}),
    "dragonfly": (
        16,
        {"kind": "dragonfly", "groups": 4, "routers_per_group": 2, "hosts_per_router": 2, "global_links": 2},
    ),
    "slim_fly": (16, {"kind": "slim_fly", "hosts_per_switch": 1, "q": 3}),
}
AT_NIGHT: dict[str, tuple[int, dict[str, Any]]] = {
    "64 on leaf_spine": (64, {"kind": "leaf_spine", "leaves": 8, "hosts_per_leaf": 8, "spines": 8}),
    "64 on fat_tree": (64, {"kind": "fat_tree", "k": 8}),
    "64 on rails": (64, {"kind": "rail_optimized", "islands_per_pod": 8, "gpus_per_island": 8, "spines": 4}),
    "64 on torus": (64, {"kind": "torus", "hosts_per_switch": 4, "dimensions": [4, 4]}),
    "64 on slim_fly": (64, {"kind": "slim_fly", "hosts_per_switch": 4, "q": 3}),
    "256 on leaf_spine": (256, {"kind": "leaf_spine", "leaves": 8, "hosts_per_leaf": 32, "spines": 8}),
    "256 on hyperx": (256, {"kind": "hyperx", "hosts_per_switch": 16, "dimensions": [16]}),
    "256 on slim_fly": (256, {"kind": "slim_fly", "hosts_per_switch": 15, "q": 3}),
    "256 on torus": (256, {"kind": "torus", "hosts_per_switch": 16, "dimensions": [4, 4]}),
}


@pytest.mark.parametrize("network", [*LARGER, *(pytest.param(name, marks=nightly) for name in AT_NIGHT)])
def test_times_of_longer_messages_go_on_as_predicted(network: str) -> None:
    """From 8 MB to 32 MB on trees, whose predictions are the farthest off."""
    workers, topology = (LARGER | AT_NIGHT)[network]
    drawn = scenario({"kind": "tree"}, topology, 2 * 10**6, "1GB", workers=workers)
    drawn["workload"]["payload"] = "none"
    short = entry_of(simulated(drawn))["metrics"]
    drawn["workload"]["elements"] *= 4
    long = entry_of(simulated(drawn))["metrics"]
    more_us = long["predicted_time_us"] - short["predicted_time_us"]
    assert short["aggregation_time_us"] + more_us == pytest.approx(long["aggregation_time_us"], rel=PREDICTED)


def one_by_one_us(drawn: dict[str, Any], words: int) -> float:
    """The time if every transfer, by number, has all of its path for itself as soon as that is free.

    What it sends passes all links of the path at the same time, each bit the later the farther it has come.
    """
    (variant,) = resolve(load(ScenarioText(json.dumps(drawn), "scenario.yaml"))).variants
    network, (job,) = variant.network, variant.jobs
    assert isinstance(job.collective, HostPlan)
    collective, frame, workers = job.collective.collective, job.collective.sender.frame, len(job.hosts)
    paths = Routed.by_seed(collective.outline(workers), network, job.hosts, variant.seed).paths
    schedule, ends = collective.cut(workers, words).schedule, collective.cut(workers, words).ends(words)
    assert schedule.channel is not None
    free_ps, done_ps = np.zeros(network.rate_bps.size), list[float]()
    for number in range(schedule.transfers):
        flow = tuple(int(column[number]) for column in (schedule.source, schedule.target, schedule.channel))
        links = list(paths[flow[0], flow[1], flow[2]].outbound)
        first = int(schedule.first[number])
        sent = int(ends[first + int(schedule.count[number])] - ends[first])
        sent_bytes = 4 * sent + -(-sent // frame.elements) * frame.overhead_bytes
        busy_ps = 8e12 * sent_bytes / network.rate_bps[links].min()
        delays_ps = network.delay_ps[links].cumsum()
        awaited = schedule.waits_for[schedule.waits_first[number] : schedule.waits_first[number + 1]]
        ready_ps = max((done_ps[other] for other in awaited.tolist()), default=0.0)
        begin_ps = max(ready_ps, float((free_ps[links] - np.r_[0, delays_ps[:-1]]).max()))
        free_ps[links] = begin_ps + busy_ps + np.r_[0, delays_ps[:-1]]
        done_ps.append(begin_ps + busy_ps + float(delays_ps[-1]))
    return max(done_ps) / 1e6


@pytest.mark.parametrize(
    ("topology", "routing"),
    [
        (
            {"kind": "leaf_spine", "leaves": 2, "hosts_per_leaf": 4, "spines": 4},
            {"kind": "flowlet", "gap": "1ns"},
        ),
        (
            {
                "kind": "dragonfly",
                "groups": 5,
                "routers_per_group": 2,
                "hosts_per_router": 2,
                "global_links": 2,
            },
            "ugal",
        ),
    ],
    ids=["flowlet", "ugal"],
)
def test_flows_that_leave_a_crowded_link_do_not_beat_the_bound(topology: Any, routing: Any) -> None:
    drawn = scenario({"kind": "halving_doubling"}, topology, 400_000, workers=8, routing=routing, seed=4)
    drawn["workload"]["payload"] = "none"
    assert entry_of(simulated(drawn))["metrics"]["of_schedule_bound"] <= 1 + ROUNDING


def test_only_steps_of_one_dense_message_are_predicted() -> None:
    star = CELLS["star"]
    whole = scenario({"kind": "ring"}, star, 20_000, workers=4)
    for unlike in ({"codec": {"kind": "random_k"}}, {"codec": {"kind": "majority"}}, {"workers": 1}):
        assert "predicted_time_us" not in entry_of(simulated(whole | unlike))["metrics"]
    assert "predictions" not in entry_of(
        simulated(scenario({"kind": "ring"}, star, 20_000, "8KB", workers=4))
    )
    entry = entry_of(simulated(whole))
    points = dict(map(tuple, entry["predictions"]))
    assert (min(points), max(points)) == (1e3, 1e9)
    # A ring of four moves 2 · 3/4 of the message, in frames of 1024 + 82 bytes, at 100 Gbit/s, and with every
    # 16 of them an acknowledgement of 86 bytes, of what comes from the worker before.
    packet_us = (1106 + 86 / 16) * 80 / 1e6
    assert points[1e9] - points[5e8] == pytest.approx(1.5 * 5e8 / 1024 * packet_us, rel=1e-9)


def test_the_bound_of_any_algorithm_on_a_star() -> None:
    # Four workers send 8,000 bytes each at 80 ps a byte, and 2 us lie between any two of them.
    bound = problem_bound(network_of("star", hosts=4, rate_bps=100 * 10**9, delay_ps=10**6), range(4))
    sent = np.full(4, 8000.0)
    merged, crossing = bound.crossing_bytes(sent, is_merged=True)
    assert merged.tolist() == [8000.0] * 4
    assert bound.time_ps(sent, merged, crossing) == 8000 * 80 + 2_000_000
    assert bound.trip_ps == 2_000_000
    gathered, crossing = bound.crossing_bytes(sent, is_merged=False)
    assert gathered.tolist() == [24000.0] * 4
    assert bound.time_ps(sent, gathered, crossing) == max(8000 * 80 + 2_000_000, 24000 * 80)


def test_the_bound_of_any_algorithm_on_a_dumbbell() -> None:
    # Behind a link of 10 Gbps, on which a byte takes 800 ps, are two workers on each side.
    network = network_of("dumbbell", hosts_per_side=2, bottleneck_rate_bps=10 * 10**9)
    bound = problem_bound(network, range(4))
    sent = np.array([1e6, 2e6, 3e6, 4e6])
    received, crossing = bound.crossing_bytes(sent, is_merged=True)
    assert bound.time_ps(sent, received, crossing) == 4e6 * 800  # the larger half: one sum crosses each way
    received, crossing = bound.crossing_bytes(sent, is_merged=False)
    assert bound.time_ps(sent, received, crossing) == 7e6 * 800


@given(st.sampled_from(KINDS), st.integers(3, 8), st.integers(0, 2**32 - 1))
@examples(30)
def test_the_least_cut_is_that_of_networkx(kind: str, workers: int, seed: int) -> None:
    graph = registered(Topology)[kind](**small_network(kind, workers)).graph()
    rates_bps = np.random.default_rng(seed).integers(1, 9, graph.number_of_edges()) * 10**9
    for edge, rate_bps in zip(graph.edges, rates_bps.tolist(), strict=True):
        graph.edges[edge]["rate_bps"] = rate_bps
    placed = hosts(graph)[:workers]
    flows = nx.DiGraph()
    for source, target, data in nx.DiGraph(graph).edges(data=True):
        flows.add_edge(source, target, capacity=data["rate_bps"])
    least_bps = min(nx.minimum_cut_value(flows, placed[0], other) for other in placed[1:])
    network = compile_network(graph)
    bound = problem_bound(network, [network.nodes.index(name) for name in placed])
    sent = np.full(workers, 1.0)
    received, crossing = bound.crossing_bytes(sent, is_merged=True)
    lasts_ps = max(bound.own_ps.max(), (crossing * bound.cut_ps).max(initial=0.0))
    assert received.tolist() == sent.tolist()
    assert lasts_ps == pytest.approx(8e12 / least_bps)


def program_ps(network: Network, nodes: Sequence[int], is_merged: bool) -> float:
    """The least time of a byte of every worker, by a linear program.

    Each worker's byte flows to each other worker; where nothing is merged, all bytes flow to each worker at
    the same time. No link carries more than its rate of any of these flows, which may share what they carry.
    """
    optimize = pytest.importorskip("scipy.optimize", reason="it is in the extra `exact`")
    pairs = [([source], sink) for source in nodes for sink in nodes if source != sink]
    if not is_merged:
        pairs = [([source for source in nodes if source != sink], sink) for sink in nodes]
    rows, count = len(network.nodes), network.rate_bps.size
    outward = np.zeros((rows, count))
    np.add.at(outward, (network.link_source, np.arange(count)), 1)
    np.add.at(outward, (network.link_target, np.arange(count)), -1)
    supply = np.zeros((len(pairs), rows))
    is_open = np.zeros((len(pairs), count), np.bool_)
    for number, (sources, sink) in enumerate(pairs):
        supply[number, sources], supply[number, sink] = 1, -len(sources)
        is_open[number] = ~network.is_host[network.link_target] | (network.link_target == sink)
    every = np.eye(len(pairs))
    byte_ps = 8e12 / network.rate_bps
    found = optimize.linprog(
        np.r_[np.zeros(is_open.size), 1],
        A_ub=np.c_[np.kron(every, np.diag(byte_ps)), np.full(is_open.size, -1)],
        b_ub=np.zeros(is_open.size),
        A_eq=np.c_[np.kron(every, outward), np.zeros(supply.size)],
        b_eq=supply.ravel(),
        bounds=[*((0, None if may_pass else 0) for may_pass in is_open.ravel()), (0, None)],
    )
    return float(found.fun)


@given(st.sampled_from(KINDS), st.integers(3, 5), st.booleans(), st.integers(0, 2**32 - 1))
@examples(8, at_night=10)
def test_no_linear_program_raises_the_bound(kind: str, workers: int, is_merged: bool, seed: int) -> None:
    graph = registered(Topology)[kind](**small_network(kind, max(4, workers))).graph()
    rates_bps = np.random.default_rng(seed).integers(1, 9, graph.number_of_edges()) * 10**9
    for edge, rate_bps in zip(graph.edges, rates_bps.tolist(), strict=True):
        graph.edges[edge]["rate_bps"] = rate_bps
    network = compile_network(graph)
    nodes = [network.nodes.index(name) for name in hosts(graph)[:workers]]
    bound, sent = problem_bound(network, nodes), np.full(workers, 1.0)
    received, crossing = bound.crossing_bytes(sent, is_merged=is_merged)
    bound = replace(bound, farthest_ps=np.zeros(workers))  # rates alone
    assert bound.time_ps(sent, received, crossing) == pytest.approx(program_ps(network, nodes, is_merged))
