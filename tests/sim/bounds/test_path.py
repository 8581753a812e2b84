"""The critical path of rounds whose phases are written down by hand."""

from __future__ import annotations

import itertools
from collections import Counter

from netfold.sim.bounds.causes import Cause
from netfold.sim.bounds.path import Piece, critical_path
from netfold.sim.results.records import PhaseRecord, RoundRecord
from tests.sim.results.builders import RING, rounds

ROUND = rounds(RING)[0]


def a_round(bucket: int, start_ps: int, end_ps: int) -> RoundRecord:
    fields = {name: getattr(ROUND, name) for name in ROUND.__slots__}
    return RoundRecord(**fields | {"step": 0, "bucket": bucket, "start_ps": start_ps, "end_ps": end_ps})


def phases(worker: int, bucket: int, *spans: tuple[str, int, int]) -> list[PhaseRecord]:
    """Phases by name or, for a wait, by what is waited for."""
    found = []
    for name, start_ps, end_ps in spans:
        kind, _, label = name.partition(" ")
        found.append(PhaseRecord("v", 0, bucket, worker, kind, label, start_ps, end_ps, 0))
    return found


def times(pieces: list[Piece]) -> Counter[tuple[str, int, str]]:
    """Time by cause, worker and stage."""
    found: Counter[tuple[str, int, str]] = Counter()
    for piece in pieces:
        worker = piece.worker if piece.cause is Cause.STRAGGLER else -1
        found[str(piece.cause or "network"), worker, piece.stage] += piece.end_ps - piece.start_ps
    return found


def test_the_network_begins_with_the_last_worker_and_what_it_takes_longer_is_a_stragglers() -> None:
    """Workers encode for 10, 10 and 30: until 30 the straggler's 20 beyond the median count."""
    found = critical_path(
        [a_round(0, 0, 60)],
        [
            *phases(0, 0, ("encode", 0, 10), ("network", 10, 50), ("decode", 50, 60)),
            *phases(1, 0, ("encode", 0, 10), ("network", 10, 50), ("decode", 50, 60)),
            *phases(2, 0, ("encode", 0, 30), ("network", 30, 50), ("decode", 50, 60)),
        ],
    )

    assert times(found) == {
        ("device", -1, "encode"): 10,
        ("straggler", 2, "encode"): 20,
        ("network", -1, ""): 20,
        ("device", -1, "decode"): 10,
    }


def test_what_a_late_worker_did_before() -> None:
    """Worker 1 computes until 35, and nothing is known of it for 5 more."""
    found = critical_path(
        [a_round(0, 10, 80)],
        [
            *phases(0, -1, ("backward", 0, 10)),
            *phases(1, -1, ("backward", 0, 35)),
            *phases(0, 0, ("network", 10, 80)),
            *phases(1, 0, ("network", 40, 80)),
        ],
    )

    assert times(found) == {
        ("straggler", 1, "backward"): 25,
        ("straggler", 1, "idle"): 5,
        ("network", -1, ""): 40,
    }


def test_a_worker_that_begins_after_the_end_was_not_waited_for() -> None:
    found = critical_path(
        [a_round(0, 0, 100)],
        [
            *phases(0, 0, ("network", 0, 60), ("decode", 60, 100)),
            *phases(1, 0, ("network", 70, 80), ("decode", 80, 90)),
        ],
    )

    assert times(found)["network", -1, ""] == 60


def test_waits_are_what_the_device_or_the_network_does_meanwhile() -> None:
    """Decoding waits from 30 to 50 for the device, which encodes another bucket from 32 to 50."""
    found = critical_path(
        [a_round(0, 0, 60)],
        [
            *phases(
                0, 0, ("wait network", 0, 5), ("network", 5, 30), ("wait device", 30, 50), ("decode", 50, 60)
            ),
            *phases(0, 1, ("encode", 32, 50)),
        ],
    )

    assert times(found) == {
        ("network", -1, ""): 30,
        ("device", -1, "idle"): 2,
        ("device", -1, "encode"): 18,
        ("device", -1, "decode"): 10,
    }


def test_rounds_that_overlap_count_once() -> None:
    """The second round counts from the end of the first."""
    found = critical_path(
        [a_round(0, 0, 50), a_round(1, 20, 80), a_round(2, 30, 40)],
        [
            *phases(0, 0, ("network", 0, 50)),
            *phases(0, 1, ("encode", 20, 60), ("network", 60, 80)),
            *phases(0, 2, ("network", 30, 40)),
        ],
    )

    assert times(found) == {("network", -1, ""): 70, ("device", -1, "encode"): 10}
    spans = sorted((piece.start_ps, piece.end_ps) for piece in found)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))


def test_several_operations_are_walked_back_through_their_last_workers() -> None:
    """Worker 1 is last into the first operation, worker 0 into the second, after decoding for longer."""
    found = critical_path(
        [a_round(0, 0, 100)],
        [
            *phases(0, 0, ("encode", 0, 10), ("network", 10, 40), ("decode", 40, 60), ("network", 60, 100)),
            *phases(1, 0, ("encode", 0, 20), ("network", 20, 40), ("decode", 40, 50), ("network", 50, 100)),
        ],
    )

    assert times(found) == {
        ("device", -1, "encode"): 15,  # the median of two is their mean
        ("straggler", 1, "encode"): 5,
        ("network", -1, ""): 20 + 40,
        ("device", -1, "decode"): 15,
        ("straggler", 0, "decode"): 5,
    }
