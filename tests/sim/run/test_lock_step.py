"""All workers of a job must send agreement, in every round, which damaged words can keep them from."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from netfold.homomorphic.codec import DecodeError
from netfold.homomorphic.message import Merge, Message
from netfold.sim.collectives.collective import OperationPlace
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
        rf"worker (\d) sends .* {place} where worker (\d) sends .* {place}: "
        "they read different words from the operations before, so some were damaged on the way",
        detail,
    )
    assert found is not None
    assert "0" in (found[1], found[4])  # whose words were damaged
    assert "'redo'" in detail
    assert "nothing more" in detail
    assert summary.checks("damaged")["decodes"] == "fail"


PLACE = OperationPlace(2, 1, 3)
DAMAGED = "they read different words from the operations before, so some were damaged on the way"


@pytest.mark.parametrize("is_ended_first", [False, True])
def test_a_worker_that_goes_on_where_another_has_ended(is_ended_first: bool) -> None:
    """Whichever comes first; the third worker still lacks."""
    agreement = MessageAgreement(3)
    acts = [lambda: agreement.end(PLACE, 1), lambda: agreement.require(PLACE, 0, message(5))]
    first, second = acts if is_ended_first else acts[::-1]
    first()

    with pytest.raises(DecodeError) as caught:
        second()

    more, less = "5 words of 'values' (step 2, bucket 1)", "nothing more (step 2, bucket 1)"
    texts = (
        f"worker 0 sends {more} where worker 1 sends {less}",
        f"worker 1 sends {less} where worker 0 sends {more}",
    )
    assert str(caught.value) == f"{texts[not is_ended_first]}: {DAMAGED}"


def test_other_rounds_and_other_operations_do_not_matter() -> None:
    agreement = MessageAgreement(2)
    agreement.end(PLACE, 1)
    agreement.require(PLACE._replace(bucket=0), 0, message(6))
    agreement.require(PLACE._replace(step=1), 0, message(7))
    agreement.require(PLACE._replace(operation=2), 0, message(8))
    agreement.end(PLACE, 0)

    assert not agreement._ended


@pytest.mark.parametrize(
    "other", [message(6), message(5, "redo"), message(5, merge=Merge.OR), (), (*message(5), *message(5))]
)
def test_what_differs(other: tuple[Message, ...]) -> None:
    agreement = MessageAgreement(2)
    agreement.require(PLACE, 1, message(5))

    with pytest.raises(DecodeError, match=r"^worker 0 sends .* where worker 1 sends 5 words of 'values' "):
        agreement.require(PLACE, 0, other)


def test_a_worker_may_be_ahead_and_what_all_have_sent_is_forgotten() -> None:
    agreement = MessageAgreement(2)
    places = [OperationPlace(0, bucket, operation) for bucket in (1, 0) for operation in range(3)]
    for worker in (0, 1):
        for number, place in enumerate(places):
            agreement.require(place, worker, message(number))
        for bucket in (0, 1):
            agreement.end(OperationPlace(0, bucket, 3), worker)

    assert not agreement._begun
    assert not agreement._ended
