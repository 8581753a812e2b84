"""All workers of a job must send agreement, in every round, which damaged words can keep them from."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from netfold.homomorphic.codec import DecodeError
from netfold.homomorphic.message import Merge, Message
from netfold.sim.run.lock_step import MessageAgreement
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


@pytest.mark.parametrize("seed", [1, 4])
@pytest.mark.parametrize("codec", ["{kind: lossless}", "{kind: auto}"])
def test_a_worker_that_redoes_alone_is_reported(tmp_path: Path, seed: int, codec: str) -> None:
    file = tmp_path / "flip.yaml"
    file.write_text(f"seed: {seed}\n{SCENARIO}", encoding="utf-8")

    summary = run_netfold(tmp_path, file, f"codec={codec}")

    assert summary.exit_code == 1
    assert {name: one["verdict"] for name, one in summary.variants.items()} == {
        **{"sound": "pass", "damaged": "fail", "sound-too": "pass"},
    }
    detail = summary.detail("damaged", "finishes")
    place = r"\(step (\d), bucket (\d+)\)"
    found = re.fullmatch(
        rf"worker (\d) sends \d+ words of .* {place} where worker (\d) sends \d+ words of .* {place}: "
        "they read different words from the operations before, so some were damaged on the way",
        detail,
    )
    assert found is not None
    assert "0" in (found[1], found[4])  # whose words were damaged
    assert "'redo'" in detail
    assert summary.checks("damaged")["decodes"] == "fail"


def test_an_operation_of_another_round_is_another() -> None:
    """Though their words are as many and merge agreement: they would be added up."""
    agreement = MessageAgreement(3)
    agreement.require(0, 0, (0, 0, 0), message(5))
    agreement.require(0, 1, (0, 0, 0), message(5))

    with pytest.raises(DecodeError) as caught:
        agreement.require(0, 2, (0, 1, 0), message(5))

    assert str(caught.value) == (
        "worker 2 sends 5 words of 'values' (step 0, bucket 1) where worker 0 sends 5 words of 'values' "
        "(step 0, bucket 0): they read different words from the operations before, so some were damaged on "
        "the way"
    )


@pytest.mark.parametrize(
    "other", [message(6), message(5, "redo"), message(5, merge=Merge.OR), (), (*message(5), *message(5))]
)
def test_what_differs(other: tuple[Message, ...]) -> None:
    agreement = MessageAgreement(2)
    agreement.require(3, 1, (0, 0, 3), message(5))

    with pytest.raises(DecodeError, match=r"^worker 0 sends .* where worker 1 sends 5 words of 'values' "):
        agreement.require(3, 0, (0, 0, 3), other)


def test_a_worker_may_be_ahead_and_what_all_have_sent_is_forgotten() -> None:
    agreement = MessageAgreement(2)
    for number in range(3):
        agreement.require(number, 0, (0, 0, number), message(number))
    for number in range(3):
        agreement.require(number, 1, (0, 0, number), message(number))

    assert not agreement._begun
