"""The published index in cells of 4 bits: refused where it cannot count so many workers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sim.scenes import RING, refused, simulate

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
