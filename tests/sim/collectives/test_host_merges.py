"""Merges on hosts along a schedule: lanes, Marsit's signs, sums that overflow."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from netfold.homomorphic.codec import Exchange
from netfold.homomorphic.codecs.dense import AgreedEncoder
from netfold.homomorphic.message import Gradient, Round
from netfold.sim.run.variant import VariantResult
from netfold.sim.workload import synthetic
from tests.sim.host_codecs import known
from tests.sim.scenes import TINY, job_of, metrics_of, only, refused, run, simulate

LANES = """\
name: lanes
seed: 3
topology: {kind: star, hosts: 16, rate: 100Gbps, delay: 1us, switch: ideal}
workers: 8
workload: {kind: synthetic, elements: 1048576}
codec: {kind: fixed_point}
collective: {kind: in_network, slots: 512}
"""
SMALL = LANES.replace("1048576", "1000")
VOTES, SIGNS = "codec={kind: votes}", "codec={kind: signs}"
HEADER_BYTES, WORDS_BYTES, UNIT_BYTES = 82, 1024, 16 + 4  # RoCE; four packets are a unit


@pytest.fixture(autouse=True)
def codecs() -> Iterator[None]:
    with known():
        yield


def codes(lane_bits: int, **options: int) -> str:
    listed = "".join(f", {key}: {value}" for key, value in options.items())
    return f"codec={{kind: codes, lane_width: {lane_bits}{listed}}}"


def verdicts(result: VariantResult) -> dict[str, str]:
    return {check.name: check.verdict for check in result.jobs[0].checks}


def detail(result: VariantResult, name: str) -> str:
    return next(check.detail for check in result.jobs[0].checks if check.name == name)


@pytest.mark.parametrize(
    ("codec", "time_us", "words_up", "words_down", "small"),
    [
        (codes(32), 344, 1 << 17, 1 << 20, 1),
        (codes(8), 92, 1 << 17, 1 << 18, 1),
        (VOTES, 48, 1 << 17, 1 << 17, 0),
    ],
)
def test_a_mega_of_elements_takes_the_time_of_its_lanes(
    tmp_path: Path, codec: str, time_us: int, words_up: int, words_down: int, small: int
) -> None:
    """Eight workers at 100 Gbps: every narrower lane is bytes less, and nothing else; `small` are norms."""
    result = simulate(tmp_path, codec, text=LANES)
    found = metrics_of(result)

    assert set(verdicts(result).values()) == {"pass"}
    assert round(found["aggregation_time_us"]) == time_us
    units = words_up // 1024

    def wire_bytes(words: int) -> int:
        return 8 * (units * (4 * HEADER_BYTES + UNIT_BYTES) + 4 * words)

    norms = 8 * (4 * (HEADER_BYTES + WORDS_BYTES) + UNIT_BYTES)
    assert found["wire_bytes_up"] == wire_bytes(words_up) + small * norms
    assert found["wire_bytes_down"] == wire_bytes(words_down) + small * norms
    assert found.get("overflowed_words", 0) == 0
    slowest = max(found["wire_bytes_up"], found["wire_bytes_down"]) / 8
    assert 0 < found["aggregation_time_us"] - slowest * 8 / 1e5 < 9  # latencies of two operations


@pytest.mark.parametrize(
    ("policy", "done"), [("wrap", "wrapped"), ("saturate", "saturated"), ("sticky", "stuck at the limit")]
)
def test_lanes_that_overflow_are_counted_and_told(tmp_path: Path, policy: str, done: str) -> None:
    """Two workers with signs of weight 64: where both agree, ±128; 127 is not passed below zero."""
    sets = ("codec={kind: signs, weight: 64}", "workers=2", f"collective.overflow={policy}")
    outcome = run(tmp_path, *sets, text=SMALL)
    (variant,) = outcome.summary["variants"]
    count = variant["metrics"]["overflowed_words"]

    assert 200 < count < 300  # a quarter of 1000 elements are positive at both
    assert outcome.summary["warnings"] == [f"lanes: {count} sums left int8 in switches and {done}"]
    fine = run(tmp_path, *sets, "codec.weight=63", text=SMALL)
    assert fine.summary["warnings"] == []
    assert fine.summary["variants"][0]["verdict"] == "pass"


def test_words_damaged_on_the_way_are_found_in_their_lane(tmp_path: Path) -> None:
    """Corruption that no checksum notices: a flipped bit in one worker's codes."""
    fault = "faults=[{kind: corruption, rate: 20%, detected: false, links: ['h0->s0']}]"
    result = simulate(tmp_path, codes(8), fault, "workload.elements=100000", text=SMALL)
    told = detail(result, "merges_are_exact")

    assert verdicts(result)["merges_are_exact"] == "fail"
    assert re.search(
        r"merged words are wrong, first in step 0, bucket 0, worker 0, lane [0-3] of word \d+ of 'codes' "
        r"\(received -?\d+, the sum is -?\d+\): slot \d+",
        told,
    ), told


@pytest.mark.parametrize(
    ("codec", "kind", "text"),
    [
        (codes(8, sent_width=16), "in_network", r"worker \d, .*: message 'codes': it is in lanes of 16 bits"),
        (codes(8, rank_width=32), "ring", r"worker 1, .*: message 'codes': it is in lanes of 32 bits"),
    ],
)
def test_messages_in_other_lanes_than_declared_end_the_variant(
    tmp_path: Path, codec: str, kind: str, text: str
) -> None:
    result = simulate(tmp_path, codec, f"collective={{kind: {kind}}}", text=SMALL)
    assert "fail" in verdicts(result).values()
    told = " ".join(check.detail for check in result.jobs[0].checks)
    assert re.search(f"{text}, codec 'codes' declares 8", told), told


def test_a_job_s_figures_follow_its_lanes(tmp_path: Path) -> None:
    for bits in (8, 16, 32):
        variant = only(tmp_path, codes(bits), text=SMALL)
        assert job_of(variant).lanes == bits // 4
        assert variant.jobs[0].collective.held_bytes == bits // 8
    assert job_of(only(tmp_path, SIGNS, text=SMALL)).lanes == 1
    assert only(tmp_path, VOTES, text=SMALL).jobs[0].collective.held_bytes == 1


@pytest.mark.parametrize(
    ("sets", "told"),
    [
        (
            (VOTES, "workers=16"),
            "--set: codec: votes has room for 15 workers, found 16\n"
            "  use at most 15 workers, or another codec",
        ),
        (
            (VOTES, "collective.overflow=sticky"),
            "--set: codec: votes needs adders that wrap: adders of 32 bits add its lanes of 4 bits, up to "
            "the sign bit\n  use another codec, or collective.overflow: wrap",
        ),
        (
            (SIGNS, "collective={kind: in_network, program: atp}"),
            "--set: codec: ATP cannot add lanes of 8 bits (its adders have: 32)\n"
            "  use program switchml or tree or timed, or a codec whose sums have lanes of 32 bits",
        ),
        (
            (SIGNS, "topology.switch=trio"),
            "--set: codec: switch profile 'trio' cannot add lanes of 8 bits (its adders have: 32)\n"
            "  use a switch that can: ideal, fpga",
        ),
        (
            (codes(8), "topology.switch=tofino1"),
            "--set: codec: switch profile 'tofino1' cannot merge words by table_add (it can: add, max, or)\n"
            "  use a switch that can: ideal, fpga",
        ),
        (
            (codes(8), "topology.switch=tofino2"),
            "lanes.yaml:7: collective.frame (default): SwitchML with 64 words a pass, 512 values of 8 bits, "
            "needs 260 stateful ALUs (256 for values), tofino2 has 80\n  use 17 words a packet at most",
        ),
        (
            ("codec={kind: signs, lane_width: 12}",),
            "--set: codec: codec 'signs' has sums in lanes of 12 bits\n  use lanes of 4, 8, 16 or 32 bits",
        ),
    ],
)
def test_lanes_that_do_not_fit_are_refused_in_words(tmp_path: Path, sets: tuple[str, ...], told: str) -> None:
    assert refused(tmp_path, *sets, text=SMALL).replace("tiny.yaml", "lanes.yaml") == told


@pytest.mark.parametrize(
    "sets",
    [
        (VOTES, "workers=15", "topology.switch=tofino1"),
        (codes(8), "workers=8"),
        (codes(32), "topology.switch=trio"),
        (codes(8), "topology.switch=tofino2", "collective.frame={words: 17, overhead: 82B}"),
        (SIGNS, "topology.switch=tofino1", "collective.frame={words: 18, overhead: 82B}"),
    ],
)
def test_lanes_that_just_fit_run(tmp_path: Path, sets: tuple[str, ...]) -> None:
    result = simulate(tmp_path, *sets, text=SMALL)
    assert set(verdicts(result).values()) == {"pass"}
    assert metrics_of(result).get("overflowed_words", 0) == 0  # a full counter beside the sign bit is none


@pytest.mark.parametrize(
    ("switch", "refusal"),
    [
        (
            "tofino2",
            "codec: switch s0 has registers for codes lifted to lanes of 8 bits for job 'a', not for "
            "lanes of 32 bits\n  use codecs with the same lanes, or another switch",
        ),
        ("ideal", ""),
    ],
)
def test_jobs_of_different_lanes_on_one_switch(tmp_path: Path, switch: str, refusal: str) -> None:
    """The registers of a pipeline have one width; memory can hold any."""
    text = SMALL.replace("workers: 8", "workers: 4").replace("collective: {kind: in_network, slots: 512}", "")
    text += (
        "collective: {kind: in_network, frame: {words: 16, overhead: 82B}, slots: 64}\n"
        "jobs: [{name: a, codec: {kind: codes}}, {name: b, codec: {kind: fixed_point}}]\n"
    )
    if refusal:
        assert refused(tmp_path, f"topology.switch={switch}", text=text).endswith(refusal)
        return
    result = simulate(tmp_path, f"topology.switch={switch}", text=text)
    assert {check.verdict for job in result.jobs for check in job.checks} == {"pass"}


ELEMENTS = 9610  # of the digits model, in one bucket
TEXT = """\
name: marsit
seed: 5
topology: {kind: star, hosts: 8, rate: 100Gbps, delay: 1us, switch: ideal}
workers: 8
workload: {kind: training, model: mlp, batch: 2, learning_rate: 0.01, steps: 5}
codec: {kind: marsit, every: 3}
collective: {kind: ring}
"""


RACKS = "topology={kind: leaf_spine, leaves: 3, spines: 2, hosts_per_leaf: 5, switch: ideal}"  # 5, 5 and 1
FAULTS = "faults=[{kind: loss, rate: 2%}, {kind: duplicate, rate: 20%}]"


@pytest.mark.parametrize(
    "sets",
    [
        ("collective={kind: in_network, program: switchml, timeout: 100us}", FAULTS),
        (RACKS, "workers=11", "collective={kind: in_network, program: tree, aggregators: tree, slots: 16}"),
        ("codec={kind: marsit, every: 0, eta_s: 0.001, compensation: false}",),
    ],
    ids=" ".join,
)
def test_every_collective_keeps_the_promise(tmp_path: Path, sets: tuple[str, ...]) -> None:
    result = simulate(tmp_path, *sets, text=TEXT)

    assert set(verdicts(result).values()) == {"pass"}
    assert "around the sum of the contributions; no bias: " in detail(result, "sum_is_right")
    assert "each worker's as often as is fair" in detail(result, "merges_are_right")


def test_full_precision_is_held_to_the_promise_of_its_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sum of digits that is off by the last bit is within any bound of signs."""
    exact = AgreedEncoder.exchange

    def off_by_a_bit(self: AgreedEncoder, gradient: Gradient, round: Round) -> Exchange:
        decoded = yield from exact(self, gradient, round)
        return replace(decoded, total=np.nextafter(decoded.total, np.float32(np.inf)))

    monkeypatch.setattr(AgreedEncoder, "exchange", off_by_a_bit)
    result = simulate(tmp_path, "codec={kind: marsit, every: 3, values: exact}", text=TEXT)

    failed = {name for name, verdict in verdicts(result).items() if verdict != "pass"}
    assert failed == {"sum_is_right"}
    assert re.search(
        "are not the exact sum of the contributions|of the codec's bound", detail(result, *failed)
    )


LARGE = "codec={kind: fixed_point, factor: 9e8}"  # about one sum of two in a hundred leaves int32


def test_atp_sends_floats_where_sums_stick_and_says_how_many_did(tmp_path: Path) -> None:
    told = run(tmp_path, LARGE, "collective={program: atp, frame: atp}", text=TINY).summary
    (variant,) = told["variants"]

    assert variant["verdict"] == "pass"
    count = variant["metrics"]["overflowed_words"]
    assert count > 0
    assert told["warnings"] == [f"tiny: {count} sums left int32 in switches and stuck at the limit"]
    (switch,) = variant["switches"]
    assert (switch["switch"], switch["overflowed_words"]) == ("s0", count)
    assert switch["requests"] > 0


DONE = {"saturate": "saturated", "sticky": "stuck at the limit"}


@pytest.mark.parametrize("overflow", DONE)
def test_counters_that_were_clipped_are_told_where_their_tiles_were_sent_again_or_are_wrong(
    tmp_path: Path, overflow: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values just below their exponent's limit: two of them leave no room in a counter for a third."""
    monkeypatch.setitem(synthetic._VALUES, "normal", lambda _, count: np.full(count, 1.9, np.float32))
    sets = "codec={kind: lossless}", "workload.elements=50000", "workload.density=2%"

    result = simulate(tmp_path, *sets, f"collective.overflow={overflow}")

    assert set(verdicts(result).values()) == {"pass"}
    assert re.fullmatch(
        r"all merged words of 1 rounds equal their integer sums, except \d+ in parts that were sent again; "
        rf"\d+ sums left int32 in switches and {DONE[overflow]}: use overflow wrap: first in "
        r"step 0, bucket 0, worker 0, word \d+ of '.*' \(received -?\d+, the sum is -?\d+\): slot .*",
        detail(result, "merges_are_exact"),
    )
    wrapped = simulate(tmp_path, *sets, "collective.overflow=wrap")
    assert detail(wrapped, "merges_are_exact") == "all merged words of 1 rounds equal their integer sums"

    # The release never sends them again and does not notice: the merged words are not the sums.
    codec = "codec={kind: lossless, setting: published, values: block_exponent, ratio: 10}"
    sets = codec, "workload.elements=50000", "workload.density=20%", f"collective.overflow={overflow}"
    result = simulate(tmp_path, *sets)
    told = detail(result, "merges_are_exact")

    assert verdicts(result)["merges_are_exact"] == "fail"
    assert re.match(r"\d+ merged words are wrong, first in step 0, bucket 0, worker 0, word \d+ of '", told)
    assert told.endswith(f" sums left int32 in switches and {DONE[overflow]}: use overflow wrap")
