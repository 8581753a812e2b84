"""When jobs of a template arrive, and what a scenario may say of them."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import pytest

from netfold.sim.scenario.arrivals import PoissonArrivals
from tests.sim.scenes import TINY, plan, refused


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
