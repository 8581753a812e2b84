"""Jobs of every switch program, resolved: what they get, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from netfold.homomorphic.codecs.dense.kinds import FixedPoint
from netfold.sim.engine.interface import Overflow
from tests.sim.scenes import RING, TINY, job_of, job_plan, only, refused, simulate

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
    assert (job.timeout_ps, job.first_timeout_ps) == (200 * 10**6, 50 * 10**9)
    assert job.server is not None
    assert variant.network.nodes[job.server.host] == "h3"
    assert (job.server.entries, job.server.window_max, job.server.ecn_bytes) == (20_000, 100, 80_000)
    assert job.server.is_adaptive
    assert job_plan(variant).codec == FixedPoint(factor=1e6)
    (bound,) = job_plan(variant).references
    assert bound.elements_per_s == pytest.approx(62 / 332 * 12.5e9)


def test_timed(tmp_path: Path) -> None:
    released = "collective.slots=512", "collective.timeout=released"
    job = job_of(only(tmp_path, *TIMED, *released, "topology.switch=trio", text=BARE))

    assert (job.program.name, job.overflow, job.slot_timer_ps) == ("timed", Overflow.WRAP, 2 * 10**9)
    assert (job.frame.name, job.slots_count, job.timeout_ps) == ("udp-1024", 512, 10**10)


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


def test_an_atp_window_needs_as_many_entries(tmp_path: Path) -> None:
    assert refused(tmp_path, *ATP, "collective.slots=100", "collective.entries=10", text=BARE) == (
        "--set: collective.entries: a window of 100 packets needs at least 100 entries, found 10\n"
        "  use 100 entries or more, or 10 slots or fewer"
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


@pytest.mark.parametrize(("sets", "told"), REFUSED)
def test_what_is_refused(tmp_path: Path, sets: tuple[str, ...], told: str) -> None:
    assert refused(tmp_path, *sets, text=BARE).startswith(told)


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
