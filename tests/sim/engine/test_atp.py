"""ATP of both engines: exact whatever is lost, doubled or collides, in ints or floats; its times on paper."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from netfold.kernels import rng_streams
from netfold.kernels.keyed_random import mix_plain
from netfold.sim.engine.atp_transport import first_entries
from netfold.sim.engine.congestion_policies import AIMD, FIXED
from netfold.sim.engine.engine_data import Completion, Fate, Rule, Segment
from netfold.topologies.graph import add_host, add_link, add_switch, new_graph
from netfold.topologies.network import Network, compile_network
from tests.examples import examples
from tests.reference.engine.fabric import STREAM_TIMER
from tests.sim.engine.small import (
    FRAME,
    LINK,
    REFERENCE_BY_NIGHT,
    D,
    Make,
    Sim,
    Words,
    X,
    aggregate,
    atp_job,
    changed,
    check_sums,
    claimed,
    flow,
    gradients,
    link_between,
    run,
    run_dry,
    seeds,
    segment,
    star_of,
    start,
    windows,
)

ELEMENTS = FRAME.elements
MARGIN = 2**27  # words of up to four workers never saturate
INT32_MAX = 2**31 - 1


def float_segment(words: Words, floats: NDArray[np.float64], are_floats: Sequence[int] = ()) -> Segment:
    """A segment whose units can be sent as floats; `are_floats` are so from the start."""
    is_float = np.zeros(-(-words.size // ELEMENTS), np.uint8)
    is_float[list(are_floats)] = 1
    return segment(words, floats=floats.astype(np.float32), is_float=is_float)


def check_ended(sim: Sim, jobs: int, streams: int) -> None:
    """So many streams end, and nothing is left of them in any entry or on any link."""
    assert len(run_dry(sim)) == streams
    assert all(claimed(sim, number) == [] for number in range(jobs))


@REFERENCE_BY_NIGHT
@given(st.integers(1, 4), st.integers(1, 6), st.booleans(), st.floats(0, 0.3), st.integers(0, 2**32))
@examples(25)
def test_sums_do_not_depend_on_loss_window_or_entries(
    engine: Make, workers: int, window: int, is_adaptive: bool, loss: float, seed: int
) -> None:
    """Two streams of two segments; hardly more entries than places in the window: two jobs collide."""
    network = star_of(workers + 1)
    sim = engine(network, loss, seed)
    for _ in range(2):
        sim.add_job(atp_job(network, window, entries=window + 1, policy=AIMD if is_adaptive else FIXED))
    for stream in range(2):
        words = [gradients(workers, size, seed + stream, MARGIN) for size in (61, 45)]
        own = [[[segment(each[:30]), segment(each[30:])] for each in of_job] for of_job in words]
        for number, segments in enumerate(own):
            start(sim, number, segments)
        run(sim, 2 * workers)
        for segments, of_job in zip(own, words, strict=True):
            check_sums([np.concatenate([each.result for each in pair]) for pair in segments], of_job)
    check_ended(sim, 2, 0)


@REFERENCE_BY_NIGHT
def test_three_jobs_compete_for_few_entries(engine: Make) -> None:
    """Sixteen units of each on their way and 24 entries, 1 % loss: most collide, none is wrong."""
    network = star_of(5)
    for seed in seeds(engine, 5, 1):
        sim = engine(network, 0.01, seed)
        for number in range(3):
            sim.add_job(atp_job(network, 16, entries=24, policy=AIMD if number == 2 else FIXED))
        words = [gradients(4, 400 * ELEMENTS, 10 * seed + number, MARGIN) for number in range(3)]
        own = [[segment(each) for each in of_job] for of_job in words]
        for number, of_job in enumerate(own):
            start(sim, number, [[each] for each in of_job])
        check_ended(sim, 3, 12)
        for of_job, sent in zip(own, words, strict=True):
            check_sums([each.result for each in of_job], sent)
        assert sum(sim.switch_counters(number)["collisions"] for number in range(3)) > 1000


def test_a_collided_unit_moves_its_place_to_an_entry_of_its_own(engine: Make) -> None:
    """The second job finds the only entry taken, and is offered the other one for what follows."""
    network = star_of(3)
    seed = next(seed for seed in range(99) if first_entries(seed, 0, 2, 1) == first_entries(seed, 1, 2, 1))
    sim = engine(network, seed=seed)
    words = gradients(2, 4 * ELEMENTS, margin=MARGIN)
    own = [[segment(each) for each in words] for _ in range(2)]
    for _ in range(2):
        sim.add_job(atp_job(network, 1, entries=2))
    for number, of_job in enumerate(own):
        start(sim, number, [[each] for each in of_job])
    check_ended(sim, 2, 4)

    for of_job in own:
        check_sums([each.result for each in of_job], words)
    first, second = (sim.switch_counters(number) for number in range(2))
    assert (first["collisions"], first["results"]) == (0, 4)
    assert (second["collisions"], second["results"], second["server_packets"]) == (2, 3, 5)


@pytest.mark.parametrize(("stream", "answers"), [(0, 0), (1, 1), (2, 1)])
def test_the_server_answers_stragglers_of_the_last_two_streams(
    engine: Make, stream: int, answers: int
) -> None:
    """After three streams: a copy of a packet of one of them comes late to the server."""
    network = star_of(2)
    to_server = link_between(network, 2, 1)
    put_ps = stream * 4 * (X + D) + X + D
    copy = Rule(Fate.DUPLICATE, 1.0, (to_server,), 99 * D, from_ps=put_ps, until_ps=put_ps + 1)
    sim = engine(network, rules=[copy])
    number = sim.add_job(atp_job(network, 1))
    for seed in range(3):
        words = gradients(1, ELEMENTS, seed, MARGIN)
        check_sums(aggregate(sim, number, words).results, words)
    run_dry(sim)

    assert sim.worker_counters(number, 0)["stale_results"] == answers
    assert sim.switch_counters(number)["server_packets"] == 4


@pytest.mark.parametrize("loss", [0.0, 0.02])
def test_units_whose_sum_saturates_are_sent_again_as_floats(engine: Make, loss: float) -> None:
    """Of three units the second overflows at the switch: its floats are added, the others stay ints."""
    network = star_of(3)
    sim = engine(network, loss)
    number = sim.add_job(atp_job(network, 3))
    words = [np.arange(3 * ELEMENTS, dtype=np.int32) - 5 for _ in range(2)]
    for each in words:
        each[ELEMENTS + 1] = 2**30
    own = [float_segment(each, each / 8) for each in words]
    start(sim, number, [[each] for each in own])
    done = run(sim, 2)
    check_ended(sim, 1, 0)

    second = slice(ELEMENTS, 2 * ELEMENTS)
    for one in own:
        assert one.is_float is not None
        assert one.is_float.tolist() == [0, 1, 0]
        assert one.result.view(np.float32)[second].tolist() == (words[0][second] / 4).tolist()
        rest = np.delete(np.arange(3 * ELEMENTS), second)
        assert np.array_equal(one.result[rest], 2 * words[0][rest])
    counters = sim.switch_counters(number)
    assert counters["requests"] >= 1
    if loss == 0:
        # Floats go when the request comes; the result of the third unit, right behind it, makes a gap of the
        # second, so they go once more.
        assert (counters["requests"], counters["overflowed_words"], counters["server_packets"]) == (1, 1, 7)
        request_ps = (2 + 3) * X + 4 * D
        assert done[-1].time_ps == request_ps + 4 * (X + D) + X


def test_without_floats_a_saturated_word_sticks(engine: Make) -> None:
    """2^31 − 1 + 1 is not −2^31, as where addition wraps, and what follows brings it not back."""
    network = star_of(4)
    sim = engine(network)
    number = sim.add_job(atp_job(network, 1))
    words = [np.array([first, 7], np.int32) for first in (INT32_MAX, 1, -100)]
    results = aggregate(sim, number, words).results

    assert all(each.tolist() == [INT32_MAX, 21] for each in results)
    assert sim.switch_counters(number)["overflowed_words"] == 2


@pytest.mark.parametrize("minority", range(3))
@pytest.mark.parametrize("window", [1, 8])
@pytest.mark.parametrize("loss", [0.0, 0.1])
def test_units_that_one_host_cannot_quantise_are_floats_everywhere(
    engine: Make, minority: int, window: int, loss: float
) -> None:
    """Whether the others have sent their integers when they are asked for floats, or send nothing until then.
    A unit whose sum sticks is of floats, too."""
    network, units = star_of(4), 8
    for seed in seeds(engine, 10, 1):
        sim = engine(network, loss, seed)
        number = sim.add_job(atp_job(network, window))
        words = gradients(3, units * ELEMENTS, margin=MARGIN)
        words[0][6 * ELEMENTS] = INT32_MAX
        own = [
            float_segment(each, np.arange(each.size) / 4 + worker, [2, 5] if worker == minority else [])
            for worker, each in enumerate(words)
        ]
        start(sim, number, [[each] for each in own[:2]])
        assert sim.run(X + D) == []
        sim.open_stream(number, 2, [own[2]])
        check_ended(sim, 1, 3)

        is_float = np.isin(np.arange(units), [2, 5, 6]).repeat(ELEMENTS)
        total, floats = np.sum(words, axis=0), np.arange(units * ELEMENTS) * 0.75 + 3
        for one in own:
            assert one.is_float is not None
            assert one.is_float.tolist() == [0, 0, 1, 0, 0, 1, 1, 0]
            assert np.array_equal(one.result[~is_float], total[~is_float])
            assert np.array_equal(one.result.view(np.float32)[is_float], floats[is_float])


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_dense_aggregation_time_and_counts(engine: Make, workers: int) -> None:
    """With a window for everything: four links one after the other, and a packet of a unit on each."""
    units = 6
    network = star_of(workers + 1)
    sim = engine(network)
    number = sim.add_job(atp_job(network, units))
    own = [segment(each) for each in gradients(workers, units * ELEMENTS - 1, margin=MARGIN)]
    start(sim, number, [[each] for each in own])

    finished_ps = (units + 3) * X + 4 * D
    assert run(sim, workers) == [Completion(finished_ps, "stream", 0, worker) for worker in range(workers)]
    check_sums([each.result for each in own], [each.words for each in own])
    assert {name: count for name, count in sim.switch_counters(number).items() if count} == {
        "packets": workers * units,
        **dict.fromkeys(("results", "forwarded", "acknowledged", "server_packets"), units),
    }
    assert not any(any(sim.worker_counters(number, rank).values()) for rank in range(workers))


@pytest.mark.parametrize(("units", "window"), [(2, 2), (3, 32), (34, 32), (35, 40), (200, 40)])
def test_a_window_grows_by_1500_bytes_once_a_window(engine: Make, units: int, window: int) -> None:
    """From 2 packets of 50 bytes by 30, and not beyond 40."""
    network = star_of(3)
    sim = engine(network)
    number = sim.add_job(atp_job(network, 2, window_max=40, policy=AIMD))
    aggregate(sim, number, gradients(2, units * ELEMENTS))

    assert windows(sim, number) == [window] * 2


def beside_traffic() -> Network:
    """Worker 0 and the server on s0; worker 1 on s1, whose link to s0 is also that of host 3 to host 4."""
    graph = new_graph("beside")
    for host in range(5):
        add_host(graph, f"h{host}")
    for switch in ("s0", "s1"):
        add_switch(graph, switch, tier=1, profile="plain")
    for host, switch in enumerate(["s0", "s1", "s0", "s1", "s0"]):
        add_link(graph, f"h{host}", switch, LINK)
    add_link(graph, "s1", "s0", LINK)
    return compile_network(graph)


@pytest.mark.parametrize(("units", "window"), [(16, 16), (17, 8), (31, 8), (32, 4), (41, 2), (42, 1)])
@pytest.mark.parametrize("is_busy", [False, True])
def test_marks_halve_the_window_once_a_window(engine: Make, units: int, window: int, is_busy: bool) -> None:
    """Units 15, 30, 37, 40, 41 … end windows. Either every port marks what it sends, or only that of s1,
    where other traffic always waits: worker 1's marks reach all, by way of entry and server."""
    network = beside_traffic() if is_busy else star_of(3)
    sim = engine(network)
    changes = {"hosts": (0, 1), "routes": (0, 0), "host": 2, "switch": int(network.nodes.index("s0"))}
    made = atp_job(network, 16, policy=AIMD, ecn_bytes=int(is_busy), **changes)
    number = sim.add_job(changed(made, first_timeout_ps=10**10, timeout_ps=10**10))
    if is_busy:
        sim.open_flow(flow(3, 4, np.zeros(100 * units * ELEMENTS, np.int32)))
        sim.run(X + D + 1)  # the first packet is being sent
    start(sim, number, [[segment(each)] for each in gradients(2, units * ELEMENTS, margin=MARGIN)])
    assert [one.kind for one in run(sim, 2)] == ["stream"] * 2

    assert windows(sim, number) == [window] * 2


def test_the_timer_waits_from_the_last_result_on(engine: Make) -> None:
    """Armed for the first deadline, it finds it moved, and is armed for what it is now. Of two units only the
    first comes past the switch. Then it waits for a timeout, and up to a quarter of it longer."""
    network = star_of(3)
    silenced = Rule(Fate.LOSS, 1.0, (link_between(network, 3, 2),), from_ps=X + D + 1)
    sim = engine(network, rules=[silenced])
    number = sim.add_job(atp_job(network, 2, timeout_ps=300_000_000, first_timeout_ps=100_000_000))
    start(sim, number, [[segment(each)] for each in gradients(2, 2 * ELEMENTS, margin=MARGIN)])
    assert sim.run(4 * (X + D) + 300_000_000) == []

    fired = [row[0] for row in sim.log if row[2] == STREAM_TIMER and row[4] == 0]
    assert fired == [100_000_000, 4 * (X + D) + 300_000_000]
    assert [sim.worker_counters(number, rank)["timeouts"] for rank in range(2)] == [1, 1]
    jitter_ps = mix_plain(1, rng_streams.JITTER, number, 0, 0, 1, 1) % 75_000_000  # base 1, one timeout
    sim.run(fired[1] + 375_000_000)
    again = [row[0] for row in sim.log if row[2] == STREAM_TIMER and row[4] == 0][2:]
    assert again == [fired[1] + 300_000_000 + jitter_ps]
