"""All-reduce on a two-dimensional torus: its plan, its schedule beside a plain one, its times."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import netfold
from netfold.homomorphic.codec import MessageSize
from netfold.homomorphic.merge import Hop, Merge, replay
from netfold.homomorphic.message import Message
from netfold.sim.collectives.host_collective import HostPlan
from netfold.sim.collectives.kinds.torus_2d import Torus2d, TorusGrid, squarest
from netfold.sim.collectives.schedule_costs import Routed, carrier_of, pace_of
from netfold.sim.engine.engine_data import Schedule
from netfold.sim.run.named_files import setups
from netfold.sim.workload.devices import FixedDevice, NoDevice
from netfold.topologies.kinds.leaf_spine import leaf_spine
from netfold.topologies.network import Network as CompiledNetwork
from netfold.topologies.network import compile_network
from netfold.units import TIME
from tests.reference.systems import torus_2d as twin
from tests.sim.engine.checked_schedule import check_schedule
from tests.sim.exchanges import FRAME, messages_of, torus, torus_schedule
from tests.sim.host_codecs import Cascade, cascade_encoded
from tests.sim.scenes import (
    BYTE_PS,
    LINK,
    TINY,
    Exchanged,
    Started,
    job_plan,
    only,
    plan,
    refused,
    small_star,
)
from tests.sim.toys import scenario

TEXT = TINY.replace("hosts: 4", "hosts: 16").replace(
    "  kind: in_network\n  frame: udp-256\n", "  kind: torus_2d\n"
)


@pytest.mark.parametrize(
    ("workers", "keys", "found"),
    [
        (1, {}, (1,)),
        (2, {}, (2,)),
        (4, {}, (2, 2)),
        (5, {}, (3, 2)),
        (11, {}, (4, 4, 3)),
        (16, {}, (4,) * 4),
        (16, {"rows": 1}, (16,)),
        (16, {"rows": 16}, (1,) * 16),
        (11, {"columns": 4}, (4, 4, 3)),
        (10, {"columns": 4}, (4, 3, 3)),
        (11, {"columns": 1}, (1,) * 11),
        (11, {"rows": 3, "columns": 4}, (4, 4, 3)),
    ],
)
def test_the_grid(tmp_path: Path, workers: int, keys: dict[str, int], found: tuple[int, ...]) -> None:
    """Rows and columns that a run records give the same grid again."""
    for given in (keys, {"rows": len(found), "columns": max(found)}):
        sets = [f"workers={workers}", *(f"collective.{key}={value}" for key, value in given.items())]
        plan = job_plan(only(tmp_path, *sets, text=TEXT)).collective
        assert isinstance(plan, HostPlan)
        assert isinstance(plan.collective, Torus2d)
        assert plan.collective.grid(workers).lengths == found


@pytest.mark.parametrize(
    ("workers", "keys", "told"),
    [
        (4, "rows: 5", "collective.rows: 4 workers cannot stand in 5 rows\n  use at most 4"),
        (1, "columns: 2", "collective.columns: 1 worker cannot stand in 2 columns\n  use at most 1"),
        (
            9,
            "columns: 4",
            "collective.columns: 9 workers in 3 rows are 3 + 3 + 3, 4 columns do not fit them\n"
            "  use collective.columns: 3",
        ),
        (
            11,
            "{rows: 2, columns: 4}",
            "collective.columns: 11 workers in 2 rows are 6 + 5, 4 columns do not fit them\n"
            "  use collective.columns: 6, or only rows",
        ),
        (4, "rows: 0", "collective.rows: must be at least 1, found 0"),
    ],
)
def test_a_grid_that_does_not_fit_says_why(tmp_path: Path, workers: int, keys: str, told: str) -> None:
    collective = f"collective={{kind: torus_2d, {keys.strip('{}')}}}"
    assert refused(tmp_path, f"workers={workers}", collective, text=TEXT).startswith(f"--set: {told}")


def test_what_a_run_records(tmp_path: Path) -> None:
    (setup,) = setups(plan(tmp_path, "workers=11", text=TEXT)).values()
    collective = setup["collective"]
    assert TIME.parse(collective.pop("timeout")) > TIME.parse("20us")  # four round trips of its windows
    assert collective == {"kind": "torus_2d", "frame": "roce-1024", "window": 512, "rows": 3, "columns": 4}


def test_memory_for_chunks_on_their_way_grows_with_the_rows(tmp_path: Path) -> None:
    """Each row has a message under way, sent and arriving; a ring has one together."""
    held = [
        job_plan(only(tmp_path, "workers=16", collective, text=TEXT)).collective.held_bytes
        for collective in (
            "collective={kind: ring}",
            "collective={kind: torus_2d, rows: 1}",
            "collective={kind: torus_2d, rows: 4}",
        )
    ]
    assert held == [12, 12, 36]


def test_the_timeout_covers_columns_that_share_an_uplink(tmp_path: Path) -> None:
    """2 × 8 on two racks: eight windows cross one uplink, and in rows none."""
    racks = "topology={kind: leaf_spine, leaves: 2, spines: 1, hosts_per_leaf: 8, switch: plain}"
    sets = ("workers=16", racks, "codec={kind: none}")
    told = refused(tmp_path, *sets, "collective={kind: torus_2d, rows: 2, timeout: 200us}", text=TEXT)
    assert "200us is too short: a full window's round trip takes" in told
    only(tmp_path, *sets, "collective={kind: torus_2d, rows: 1, timeout: 200us}", text=TEXT)


def test_a_host_that_nothing_reaches_is_named(tmp_path: Path) -> None:
    """Worker 4 of 3 + 2 never hears from worker 3, its neighbour in the row."""
    dead = [{"kind": "loss", "rate": "100%", "links": ["s0->h4"]}]
    run = netfold.run(scenario("none", 5, collective={"kind": "torus_2d"}, faults=dead), out=tmp_path)

    assert run.verdict == "stalled"
    (finishes,) = (one for one in run.summary["variants"][0]["checks"] if one["name"] == "finishes")
    assert "link s0->h4 loses every packet" in finishes["detail"]
    rows = run.summary["variants"][0]["diagnosis"]["messages"]
    sent = {(row["source"], row["target"]) for row in rows}
    assert ("h3", "h4") in sent
    told = re.compile(
        r"transfer \d+ from worker 3 to worker 4 \(step \d+\) of \S+ "
        r"of operation 0 of bucket 0 of step 0, flow \d+"
    )
    assert any(told.fullmatch(row["what"]) for row in rows)
    assert told.search(finishes["detail"])
    assert {target for _, target in sent} == {"h4"}


GRIDS = (
    *((2, 2), (5,) * 3),  # even
    *((4, 4, 3), (3, 3, 2, 2), (2, 1)),  # uneven
    *((1,), (5,), (1, 1, 1, 1)),  # lines
)
OF_SEVERAL = [lengths for lengths in GRIDS if sum(lengths) > 1]


def carried(messages: Sequence[Message], rows: int, **changes: Any) -> Exchanged:
    workers = len(messages)
    start = torus(workers, rows, **changes)
    return Exchanged(small_star(workers), start).run([[(one,)] for one in messages])


def test_the_squarest_grid() -> None:
    """Rows of equal length if there is a divisor; a prime is cut by its root."""
    rows = {1: 1, 2: 1, 3: 1, 4: 2, 5: 2, 6: 2, 7: 2, 8: 2, 9: 3, 11: 3, 12: 3, 13: 3, 16: 4, 64: 8, 512: 16}
    assert {workers: squarest(workers) for workers in rows} == rows


@pytest.mark.parametrize("host", [False, True])
@pytest.mark.parametrize("lengths", GRIDS)
def test_parts_are_those_of_the_definition(lengths: tuple[int, ...], host: bool) -> None:
    grid, parts = TorusGrid.of(sum(lengths), len(lengths)), twin.parts_of(lengths, host)
    cut = grid.equal if host else grid.words

    assert cut.parts == len(parts)
    size = 840 * len(lengths)
    assert cut.ends(size) == [*(part.start * size for part in parts), size]
    for number, part in enumerate(parts):
        segment, row = divmod(number, len(lengths))
        in_rows, down = twin.chains(part, lengths)
        assert row == part.number == down[-1]
        assert [chain[-1] for chain in in_rows] == cut.column(segment)


def sent_parts(schedule: Schedule) -> dict[int, list[tuple[int, int, int]]]:
    """By sender, in order: the receiver, each part that it sends, and how many workers' words it holds."""
    held = [[1] * schedule.chunks for _ in range(schedule.workers)]
    found: defaultdict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for number in range(schedule.transfers):
        source, target = int(schedule.source[number]), int(schedule.target[number])
        first = int(schedule.first[number])
        for part in range(first, first + int(schedule.count[number])):
            found[source].append((target, part, held[source][part]))
            own = held[target][part] if schedule.merges[number] else 0
            held[target][part] = held[source][part] + own
    return found


@pytest.mark.parametrize("host", [False, True])
@pytest.mark.parametrize("lengths", OF_SEVERAL)
def test_every_transfer_is_that_of_the_twin(lengths: tuple[int, ...], host: bool) -> None:
    expected: defaultdict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for one in twin.transfers(lengths, host):
        expected[one.sender].append((one.receiver, one.part, one.workers))
    schedule = torus_schedule(lengths, host)
    check_schedule(schedule)
    assert sent_parts(schedule) == expected  # in the order of the steps
    transfers = sum(map(len, expected.values()))
    assert transfers == 2 * (sum(lengths) - 1) * len(twin.parts_of(lengths, host))  # as often as on a ring


@pytest.mark.parametrize("lengths", GRIDS)
@pytest.mark.parametrize("size", [1, 101])
def test_floats_are_added_in_the_order_of_the_schedule(lengths: tuple[int, ...], size: int) -> None:
    messages = messages_of(Merge.FLOAT_ADD, sum(lengths), size)
    expected = twin.float_sums([one.words for one in messages], lengths)

    received = carried(messages, len(lengths)).received
    for ((merged,),) in received:
        assert expected.tobytes() == merged.words.tobytes()
    assert len({id(merged.words) for ((merged,),) in received}) == 1  # one array for all


# HOST: merges of the codec


@pytest.mark.parametrize("lengths", OF_SEVERAL)
def test_cascaded_signs_are_merged_in_the_order_of_the_schedule(lengths: tuple[int, ...]) -> None:
    workers, random, merge = sum(lengths), np.random.default_rng(sum(lengths)), Cascade()
    words = [
        cascade_encoded(random.standard_normal(300).astype(np.float32), np.float32(random.uniform(0.5, 2)))
        for _ in range(workers)
    ]
    done = carried([Message(one, Merge.HOST, "signs", host_merge=merge) for one in words], len(lengths))
    order = done.collective.merge_orders(0, 0)[0, 0]

    plans = [twin.tree(part, lengths) for part in twin.parts_of(lengths, host=True)]
    pieces = [merge.split(one, len(plans)) for one in words]
    used: Counter[int] = Counter()

    def evaluated(plan: Any, part: int) -> Any:
        if not isinstance(plan, twin.Merge):
            return pieces[plan][part]
        hops = (twin.first(plan.arriving), twin.first(plan.own))
        (key,) = (hop.key for hop in order[part] if (hop.into, hop.taken) == hops)
        used[key] += 1
        accumulated, arriving = (evaluated(one, part) for one in (plan.arriving, plan.own))
        return merge.merge(accumulated, arriving, Hop(*twin.by_counts(plan), key))

    right = merge.join([evaluated(plan, part) for part, plan in enumerate(plans)])
    assert set(used.values()) == {1}  # every merge has a key of its own
    assert len(used) == len(plans) * (workers - 1)
    assert right.tolist() == replay(merge, words, order).tolist()
    for ((found,),) in done.received:
        assert right.tolist() == found.words.tolist()
        assert workers == found.workers
    assert done.collective.merge_orders(0, 0) == {}


def test_progress_grows_from_nothing_to_all_while_a_message_is_carried() -> None:
    words = [cascade_encoded(np.ones(300, np.float32), np.float32(1)) for _ in range(11)]
    for messages in (
        messages_of(Merge.ADD, 11, 500),
        [Message(one, Merge.HOST, "signs", host_merge=Cascade()) for one in words],
    ):
        run = Exchanged(small_star(11), torus(11, 3))
        shares: list[float] = []

        def watch(run: Exchanged = run, shares: list[float] = shares) -> Any:
            while True:
                yield run.environment.timeout(200_000)
                shares.append(run.collective.share())

        run.environment.process(watch())
        run.run([[(one,)] for one in messages])
        assert shares == sorted(shares)
        assert shares[0] < 0.1
        assert shares[-1] > 0.8
        assert run.collective.share() == 0.0


PACKET_PS = 100 * BYTE_PS
ACK_PS = FRAME.ack_bytes * BYTE_PS
TIMES_EVEN = ((2, 1), (2, 3), (3, 2), (4, 4), (1, 5))


def time_ps(start: Started, workers: int, words: int, network: CompiledNetwork | None = None) -> int:
    """When the last worker has the sums of dense words."""
    messages = messages_of(Merge.ADD, workers, words)
    return Exchanged(network or small_star(workers), start).run([[(one,)] for one in messages]).end_ps


@pytest.mark.parametrize(("rows", "columns"), TIMES_EVEN)
@pytest.mark.parametrize("packets", [1, 3])
def test_time_of_a_torus_on_an_idle_network(rows: int, columns: int, packets: int) -> None:
    """2 (C − 1) steps of M / C words in the rows, 2 (R − 1) of M / (R C) in the columns.

    The packets of a step follow each other on both links, and the first is waited for twice; all steps but
    the first wait for an ACK on the same link.
    """
    workers = rows * columns
    found = time_ps(torus(workers, rows), workers, workers * packets * FRAME.elements)

    in_row_ps = (rows * packets + 1) * PACKET_PS + 2 * LINK.delay_ps
    in_column_ps = (packets + 1) * PACKET_PS + 2 * LINK.delay_ps
    steps = 2 * (columns - 1) + 2 * (rows - 1)
    closed_ps = 2 * (columns - 1) * in_row_ps + 2 * (rows - 1) * in_column_ps
    assert closed_ps + (steps - 1) * ACK_PS == found


@pytest.mark.parametrize(("rows", "columns"), TIMES_EVEN)
def test_it_is_charged_for_merging(rows: int, columns: int) -> None:
    """C − 1 times M / C words in the rows and R − 1 times M / (R C) in the columns: read two, write one."""
    workers, words = rows * columns, 16 * rows * columns
    device = FixedDevice(forward_ps=0, backward_ps=0, memory_bps=8 * 10**9)  # a byte a nanosecond
    free, charged = (time_ps(torus(workers, rows, device=one), workers, words) for one in (None, device))

    merged = (columns - 1) * words // columns + (rows - 1) * words // workers
    merges = columns - 1 + rows - 1
    # While a worker merges, the ACK before the next chunk is gone.
    assert free + 3 * 4 * merged * 1000 - merges * ACK_PS == charged


def routed_of(network: CompiledNetwork, workers: int, rows: int) -> Routed:
    outline = Torus2d(kind="torus_2d", rows=rows).outline(workers)
    return Routed(outline, network, range(workers), lambda *flow: 0)


@pytest.mark.parametrize("lengths", [(4, 4, 3), (3, 2), (3, 3, 2, 2)])
def test_rows_of_unequal_length_take_about_as_long_as_it_says(lengths: tuple[int, ...]) -> None:
    """Up to a quarter longer: workers of short rows begin their columns while long rows are still busy."""
    workers, rows, words = sum(lengths), len(lengths), 500 * sum(lengths) * FRAME.elements
    network = small_star(workers)
    found = time_ps(torus(workers, rows, ack_every=100, window=8192), workers, words)

    pace = pace_of(routed_of(network, workers, rows), FRAME)
    shortest, longest = min(lengths), max(lengths)
    in_rows, in_columns = 2 * (1 - 1 / longest), 2 * (rows - 1) / (rows * shortest)
    packet_words = words / FRAME.elements * PACKET_PS
    rate_ps = pace.time_ps(words) - pace.latency_ps
    # A segment's owners are in long rows and in short ones: none has the most words of both.
    assert in_rows * packet_words < rate_ps <= (in_rows + in_columns) * packet_words
    assert rate_ps < found < 1.25 * pace.time_ps(words)


@pytest.mark.parametrize("rows", [1, 2, 4])
@pytest.mark.parametrize("size", [64, 40_000])
def test_codecs_that_choose_by_time_are_told_about_what_it_takes(rows: int, size: int) -> None:
    """Two racks of four on one uplink each: all columns of 2 × 4 share it, and no row does.

    In other grids, and on a ring, some hops of a chain cross the racks, and all are taken to be as long.
    """
    workers = 8
    network = compile_network(leaf_spine(2, 1, 4, LINK, uplink=LINK))
    nodes = [node for node, name in enumerate(network.nodes) if name.startswith("h")]
    told = carrier_of(routed_of(network, workers, rows), FRAME, NoDevice()).time_ps([MessageSize(size)])

    assert nodes == list(range(workers))
    found = time_ps(torus(workers, rows, ack_every=100), workers, size, network)
    if rows == 2:
        assert told == pytest.approx(found, rel=0.1)
    assert 0.9 * found < told < 1.6 * found


def test_its_stages_are_on_links_of_their_own() -> None:
    """2 × 4 on two racks: the columns' four streams share an uplink, the rows' none."""
    network = compile_network(leaf_spine(2, 1, 4, LINK, uplink=LINK))
    routed = routed_of(network, 8, 2)
    loads = [max(routed.traffic(routed.sent(number)).load.values()) for number in range(8)]

    assert loads == [1] * 3 + [4] * 2 + [1] * 3
    assert [level.merging_times for level in routed.outline.levels] == [1] * 4 + [0] * 4
    pace = pace_of(routed, FRAME)
    wire = FRAME.elements / (PACKET_PS * 1e-12)
    # 6 steps of a quarter at the rate of a link, and 2 of an eighth at a quarter of it.
    assert pace.elements_per_s == pytest.approx(wire / (6 / 4 + 2 / 8 * 4))
