"""All workers of a job must send agreement, in every round, which damaged words can keep them from."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from netfold.homomorphic.codec import Decoded
from netfold.homomorphic.message import Merge, Merged, Message
from netfold.sim.checks.rounds import Operation
from netfold.sim.collectives.collective import OperationPlace
from netfold.sim.run.codec_errors import CodecError
from netfold.sim.run.step.lock_step import MessageAgreement
from tests.sim.checks.test_checks_limits import FINE
from tests.sim.run.test_failures import run_netfold

# One flipped bit of a result at worker 0 alone makes it ask for a redo that no other worker sends.
SCENARIO = """\
name: flip
topology: {kind: star, hosts: 4, rate: 100Gbps, delay: 1us}
workers: 4
workload: {kind: synthetic, elements: 20000, density: 0.05, steps: 2, bucket: 8KB}
codec: {kind: lossless}
collective: {kind: in_network, program: switchml, frame: udp-256, slots: 16}
variants:
  - {name: sound}
  - name: damaged
    faults: [{kind: corruption, detected: false, links: ["s0->h0"], rate: 1%}]
  - {name: sound-too}
"""


def message(words: int, label: str = "values", merge: Merge = Merge.ADD) -> tuple[Message, ...]:
    return (Message(np.zeros(words, np.int32), merge, label),)


@pytest.mark.parametrize(("codec", "seed"), [("{kind: lossless}", 1), ("{kind: auto}", 4)])
def test_a_worker_that_redoes_alone_is_reported(tmp_path: Path, seed: int, codec: str) -> None:
    file = tmp_path / "flip.yaml"
    file.write_text(f"seed: {seed}\n{SCENARIO}", encoding="utf-8")

    summary = run_netfold(tmp_path, file, f"codec={codec}")

    assert summary.exit_code == 1
    assert {name: one["verdict"] for name, one in summary.variants.items()} == {
        **{"sound": "pass", "damaged": "fail", "sound-too": "pass"},
    }
    detail = summary.detail("damaged", "finishes")
    found = re.fullmatch(
        r"worker (\d) sends (.*) where worker (\d) sends (.*) \(step \d, bucket \d+, operation \d\): "
        "they read different words of '.*', so some were damaged on the way",
        detail,
    )
    assert found is not None
    both = {int(found[1]): found[2], int(found[3]): found[4]}
    assert "'redo' (" in both[0]  # whose words were damaged
    (other,) = both.keys() - {0}
    assert re.fullmatch(r"nothing more, having decoded \d+ elements", both[other])
    assert summary.checks("damaged")["decodes"] == "fail"


PLACE = OperationPlace(2, 1, 3)


def decoded(elements: int = 4) -> Decoded:
    return Decoded(np.zeros(elements, np.float32), np.zeros(elements, np.float32))


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (message(6), "'values' (add of 6 int32 words)"),
        (message(5, "redo"), "'redo' (add of 5 int32 words)"),
        (message(5, merge=Merge.MAX), "'values' (max of 5 int32 words)"),
        ((), "no messages"),
        ((*message(5), *message(5)), "'values' (add of 5 int32 words) and 'values' (add of 5 int32 words)"),
        (decoded(), "nothing more, having decoded 4 elements"),
        ((replace(message(5)[0], lane_bits=8),), "'values' (add of 5 int32 words in 8-bit lanes)"),
        ((replace(message(5)[0], digest=26),), "'values' (add of 5 int32 words, digest 0x1a)"),
    ],
)
@pytest.mark.parametrize("is_first", [True, False])
def test_what_differs(other: tuple[Message, ...] | Decoded, words: str, is_first: bool) -> None:
    """Both messages are named, whoever was first; a worker that ends its round differs from all others."""
    agreement = MessageAgreement(2)
    usual = "'values' (add of 5 int32 words)"
    sent = [(other, words), (message(5), usual)] if is_first else [(message(5), usual), (other, words)]
    agreement.require(PLACE, 1, sent[0][0])

    with pytest.raises(CodecError) as caught:
        agreement.require(PLACE, 0, sent[1][0])

    assert str(caught.value) == (
        f"worker 0 sends {sent[1][1]} where worker 1 sends {sent[0][1]} (step 2, bucket 1, operation 3): "
        "all workers must send the same messages, and these read the same words before"
    )
    assert not caught.value.is_undecoded


def received(*words: int) -> tuple[Merged, ...]:
    return (Merged(np.array(words, np.int32), 3),)


@pytest.mark.parametrize("is_damaged", [True, False])
def test_damaged_words_are_named_as_the_cause(is_damaged: bool) -> None:
    """Of the two workers that differ: what a third one received is not the cause."""
    before = Operation(
        {rank: message(2, "index") for rank in range(3)},
        {0: received(1, 2), 1: received(1, 3 if is_damaged else 2), 2: received(7, 7)},
    )
    agreement = MessageAgreement(3)
    agreement.require(PLACE, 0, message(5), [before])

    with pytest.raises(CodecError) as caught:
        agreement.require(PLACE, 1, message(6), [before])

    damage = "they read different words of 'index', so some were damaged on the way"
    assert str(caught.value).endswith(damage) == is_damaged
    assert caught.value.is_undecoded == is_damaged


@pytest.mark.parametrize("agree", [True, False])
def test_earlier_rounds_that_were_decoded_differently_are_the_cause(agree: bool) -> None:
    findings = [replace(FINE, replicas_agree=agree)]
    agreement = MessageAgreement(2, findings)
    agreement.require(PLACE, 0, message(5))

    with pytest.raises(CodecError) as caught:
        agreement.require(PLACE, 1, message(6))

    assert ("different sums in an earlier round" in str(caught.value)) == (not agree)
    assert caught.value.is_undecoded == (not agree)


def test_rounds_may_overlap_and_what_all_have_sent_is_forgotten() -> None:
    """Worker 0 is a bucket ahead in one place and behind in another; lengths differ from place to place."""
    agreement = MessageAgreement(2)
    places = [OperationPlace(0, bucket, number) for bucket in range(2) for number in range(2)]
    for size, place in enumerate(places):
        agreement.require(place, 0, message(size))
    for size, place in reversed(list(enumerate(places))):
        agreement.require(place, 1, message(size))

    assert not agreement._begun
