"""Several jobs in a scenario: what they take from their variant, and every mistake in words."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import pytest

from netfold.sim.collectives.in_network.section import InNetworkSection
from netfold.sim.errors import ScenarioError
from netfold.sim.scenario import load
from netfold.sim.scenario.arrivals import PoissonArrivals
from tests.sim.scenario.files import write
from tests.sim.scenes import TINY, plan, refused

TWO = """\
name: two
topology: {kind: star, hosts: 8}
workers: {count: 2, placement: spread}
workload: {kind: synthetic, elements: 1000}
codec: {kind: fixed_point}
collective: {kind: in_network, slots: 64}
jobs:
  - name: a
  - name: b
    workers: 4
    start: 5ms
    collective: {timeout: 2ms}
variants:
  - name: x
  - name: y
    workload: {elements: 5}
    collective: {slots: 128}
  - name: z
    jobs: []
"""


def told(path: Path, *sets: str) -> str:
    with pytest.raises(ScenarioError) as caught:
        load(path, sets)
    return str(caught.value).replace(str(path), "FILE")


def test_jobs_are_merged_over_what_their_variant_says(tmp_path: Path) -> None:
    x, y, z = load(write(tmp_path, TWO)).variants

    found = [(job.name, job.workers.count, job.workers.placement, job.start) for job in x.jobs]
    assert found == [("a", 2, "spread", 0), ("b", 4, "spread", 5 * 10**9)]
    for variant, slots, elements in ((x, 64, 1000), (y, 128, 5)):
        for job in variant.jobs:
            assert isinstance(job.collective, InNetworkSection)
            assert (job.collective.slots, job.workload.elements) == (slots, elements)  # type: ignore[union-attr]
    assert [job.collective.timeout for job in x.jobs] == ["auto", 2 * 10**9]
    assert z.jobs == ()


def test_a_variant_needs_nothing_that_all_its_jobs_bring(tmp_path: Path) -> None:
    text = TWO.replace("workers: {count: 2, placement: spread}\n", "").replace(
        "name: a", "name: a\n    workers: 3"
    )

    x, y, _ = load(
        write(tmp_path, text.replace("  - name: z\n    jobs: []\n", "  - {name: z, workers: 1}\n"))
    ).variants

    assert [job.workers.count for job in x.jobs] == [job.workers.count for job in y.jobs] == [3, 4]
    assert x.workers.count == 3


def test_the_command_line_wins_over_jobs_and_reaches_each(tmp_path: Path) -> None:
    x, *_ = load(write(tmp_path, TWO), ["collective.timeout=9ms", "variants.x.jobs.a.workers=3"]).variants

    assert [job.collective.timeout for job in x.jobs] == [9 * 10**9] * 2
    assert [(job.workers.count, job.workers.placement) for job in x.jobs] == [(3, "spread"), (4, "spread")]

    x, y, _ = load(write(tmp_path, TWO), ["variants.y.jobs.b.start=1s", "jobs=[{name: c}]"]).variants
    assert [job.name for job in (*x.jobs, *y.jobs)] == ["c", "c"]
    assert x.jobs[0].workers.placement == "spread"


def test_an_error_points_to_the_line_of_the_job_or_of_what_it_took_over(tmp_path: Path) -> None:
    path = write(tmp_path, TWO)
    scenario = load(path)

    def where(key: str) -> str:
        return str(scenario.error(key, "wrong", variant="x")).replace(str(path), "FILE")

    assert where("jobs.b.collective.timeout") == "FILE:12: jobs.b.collective.timeout: wrong"
    assert where("jobs.b.collective.slots") == "FILE:6: collective.slots: wrong"
    assert where("jobs.a.collective.timeout") == "FILE:6: collective.timeout (default): wrong"


MISTAKES = [
    (
        "  - name: b\n",
        "  - name: a\n",
        "FILE:9: jobs.a: the name 'a' appears twice\n  it is already on line 8",
    ),
    (
        "  - name: a\n",
        "  - a\n",
        "FILE:8: jobs.0: must be a mapping, found 'a'\n  each job has a name and the keys it changes",
    ),
    (
        "    start: 5ms",
        "    topology: {hosts: 3}",
        "FILE:11: jobs.b.topology: unknown key 'topology'\n  "
        "allowed: name, start, count, arrivals, fallback, workers, hosts, workload, device, overlap, codec, "
        "collective, published",
    ),
    (
        "    start: 5ms",
        "    fallback: {kind: ring, windw: 3}",
        "FILE:11: jobs.b.fallback.windw: unknown key 'windw'\n  did you mean 'window'? ",
    ),
    ("workers: {count: 2, placement: spread}\n", "", "FILE:7: jobs.a: the key 'workers' is missing\n"),
]


@pytest.mark.parametrize(("old", "new", "error"), MISTAKES)
def test_mistakes_in_jobs(tmp_path: Path, old: str, new: str, error: str) -> None:
    assert TWO.count(old) == 1
    found = told(write(tmp_path, TWO.replace(old, new)))

    assert found.startswith(error), found


SETS = [
    ("jobs.c.workers=1", "--set: jobs.c.workers: there is no job 'c'\n  jobs: a, b"),
    (
        "variants.z.jobs.a.workers=1",
        "--set: variants.z.jobs.a.workers: there is no job 'a'\n  this variant has no jobs; "
        "write the list whole",
    ),
    ("jobs.a=1", "--set: jobs.a: a job cannot be replaced as a whole\n  use jobs.NAME.PATH=VALUE"),
]


@pytest.mark.parametrize(("text", "error"), SETS)
def test_mistakes_on_the_command_line(tmp_path: Path, text: str, error: str) -> None:
    path = write(tmp_path, TWO if "variants.z" in text else TWO.replace("  - name: z\n    jobs: []\n", ""))

    assert told(path, text) == error


def arrivals_ps(tmp_path: Path, jobs: str, *sets: str) -> list[tuple[str, int]]:
    (variant,) = plan(tmp_path, *sets, text=f"{TINY}admission: fifo\njobs: {jobs}\n").variants
    return [(name, job.start_ps) for name, job in zip(variant.job_names, variant.jobs, strict=True)]


def test_a_template_without_arrivals_has_all_jobs_at_its_start(tmp_path: Path) -> None:
    found = arrivals_ps(tmp_path, "[{name: a, count: 2, start: 3us}, {name: b}]")

    assert found == [("a-1", 3_000_000), ("a-2", 3_000_000), ("b", 0)]


def test_fixed_times_count_from_the_start(tmp_path: Path) -> None:
    found = arrivals_ps(tmp_path, "[{name: a, start: 1us, arrivals: {kind: fixed, at: [0us, 2us, 2us]}}]")

    assert found == [("a-1", 1_000_000), ("a-2", 3_000_000), ("a-3", 3_000_000)]


def test_even_arrivals_are_a_gap_apart(tmp_path: Path) -> None:
    found = arrivals_ps(tmp_path, "[{name: a, count: 3, arrivals: {kind: even, gap: 5us}}]")

    assert [time for _, time in found] == [0, 5_000_000, 10_000_000]


def test_poisson_gaps_are_exponential_and_independent() -> None:
    mean, count = 1_000_000, 20_000
    times = PoissonArrivals(kind="poisson", mean_gap="1us").times_ps(count, 1, 0)
    gaps = [after - before for before, after in zip((0, *times), times, strict=False)]

    assert sum(gaps) / count == pytest.approx(mean, rel=4 / math.sqrt(count))
    # Kolmogorov and Smirnov: the largest distance of the distributions is below 1.95 / √n but once in 1000.
    distance = max(
        abs(rank / count - (1 - math.exp(-gap / mean))) for rank, gap in enumerate(sorted(gaps), start=1)
    )
    assert distance < 1.95 / math.sqrt(count)
    centred = [gap - mean for gap in gaps]
    together = sum(a * b for a, b in itertools.pairwise(centred)) / (count * mean**2)
    assert abs(together) < 4 / math.sqrt(count)


def test_poisson_arrivals_are_those_of_the_seed_and_the_place_in_the_list() -> None:
    arrivals = PoissonArrivals(kind="poisson", mean_gap="1us")

    assert arrivals.times_ps(5, 1, 0) == arrivals.times_ps(9, 1, 0)[:5]
    assert arrivals.times_ps(5, 1, 0) != arrivals.times_ps(5, 2, 0)
    assert arrivals.times_ps(5, 1, 0) != arrivals.times_ps(5, 1, 1)


@pytest.mark.parametrize(
    ("jobs", "words"),
    [
        ("[{name: a, count: 2, arrivals: {kind: poisson, mean_gap: 0us}}]", "mean_gap"),
        ("[{name: a, arrivals: {kind: fixed, at: [-1us]}}]", "at"),
        ("[{name: a, arrivals: {kind: fixed, at: []}}]", "at least one time"),
        ("[{name: a, arrivals: {kind: fixed, at: [2us, 1us]}}]", "in order"),
        ("[{name: a, count: 3, arrivals: {kind: fixed, at: [1us]}}]", "leave out count"),
        ("[{name: a, count: 1001}]", "1000"),
        ("[{name: a-1}, {name: a, count: 1}]", "'a-1'"),
        ("[{name: a, hosts: {nic: connectx6}}]", "hosts"),
    ],
)
def test_jobs_that_cannot_be_are_refused_in_words(tmp_path: Path, jobs: str, words: str) -> None:
    assert words in refused(tmp_path, text=f"{TINY}admission: fifo\njobs: {jobs}\n")


def test_jobs_with_hosts_of_their_own_need_hosts_for_all(tmp_path: Path) -> None:
    assert "hosts" in refused(tmp_path, text=f"{TINY}jobs: [{{name: a, workers: 2, count: 3}}]\n")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("jobs: [{name: a, workers: 1, fallback: {kind: ring}}]", "admission: fifo"),
        ("admission: fifo", "one job"),
        (
            "admission: fifo\nfaults: [{kind: worker_crash, worker: 0, at: 1us}]\njobs: [{name: a}]",
            "admission: reserved",
        ),
    ],
)
def test_keys_that_have_no_meaning_together_are_refused(tmp_path: Path, more: str, words: str) -> None:
    assert words in refused(tmp_path, text=f"{TINY}{more}\n")
