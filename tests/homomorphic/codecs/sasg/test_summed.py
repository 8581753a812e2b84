"""SASG summed on the way: who is absent, which elements are sent, and what damage does."""

from __future__ import annotations

import numpy as np
import pytest

from netfold.homomorphic.codec import DecodeError, Promise
from netfold.homomorphic.codecs.sasg.summed import SasgSummed
from netfold.homomorphic.message import Merge, Merged
from netfold.homomorphic.round import Round, Step
from tests.homomorphic.codecs.sasg.tiny import ELEMENTS, Tiny, Training

OPTIONS = {"share": 0.1, "staleness": 4}
INDEX_WORDS = 2  # of 52 elements


def test_workers_that_skip_are_absent_from_every_message() -> None:
    run = Training(SasgSummed(**OPTIONS), Tiny(), 5, 0.5).run(40)

    kinds = set()
    for folded, uploads in zip(run.rounds, run.uploads, strict=True):
        kinds.add(sum(uploads))
        for operation in folded.messages:
            for (message,), has_uploaded in zip(operation, uploads, strict=True):
                assert message.is_absent == (not has_uploaded)
                assert message.size_bytes == (4 * message.size if has_uploaded else 0)
    assert min(kinds) == 0
    assert any(0 < count < 5 for count in kinds)


def test_only_elements_that_change_are_sent() -> None:
    """A bit for each element, then a word for each whose last upload changes at some worker."""
    run = Training(SasgSummed(**OPTIONS), Tiny(), 5, 0.5).run(40)

    before = np.zeros((5, ELEMENTS))
    for folded in run.rounds:
        now = np.array(folded.contributions, np.float64)
        changed = (now != before).any(axis=0)
        sizes = [operation[0][0].size for operation in folded.messages]
        assert sizes == [INDEX_WORDS, int(changed.sum())][: 1 + changed.any()]
        assert [operation[0][0].merge for operation in folded.messages] == [Merge.OR, Merge.ADD][: len(sizes)]
        before = now


def test_without_an_index_every_element_is_sent() -> None:
    run = Training(SasgSummed(index="none", **OPTIONS), Tiny(), 2, 0.5).run(10)

    for folded in run.rounds:
        assert [(own[0][0].merge, own[0][0].size) for own in folded.messages] == [(Merge.ADD, ELEMENTS)]


def test_what_it_declares() -> None:
    assert SasgSummed().merges == {Merge.OR, Merge.ADD}
    assert SasgSummed(index="none").merges == {Merge.ADD}
    assert SasgSummed().promise is Promise.EXACT
    assert SasgSummed().may_be_absent
    assert not SasgSummed(alpha=0.0).may_be_absent
    assert (SasgSummed().state_bytes, SasgSummed(alpha=0.0).state_bytes) == (12, 8)
    assert not SasgSummed(index="none").is_linear


def test_sums_stay_in_int32_if_all_workers_turn_round() -> None:
    """From the largest values to their opposites, at all workers: the differences are twice as large."""
    workers, size = 4, 8
    codec = SasgSummed(share=1.0, alpha=0.0, fraction_bits=0, index="none")
    limit = float(2**31 // (2 * workers) - 64)
    encoders = [codec.worker(rank, workers, 0) for rank in range(workers)]
    for number, sign in enumerate((1, -1)):
        gradient = np.full(size, sign * limit, np.float32)
        sent = []
        for encoder in encoders:
            encoder.begin(Step(number, float(workers), None, (gradient,)))
            (message,) = next(exchange := encoder.exchange(gradient, Round(number, 0, workers, 0)))
            sent.append((exchange, message))
        total = sum(message.words.astype(np.int64) for _, message in sent)
        assert (np.abs(total) < 2**31).all()
        for exchange, _ in sent:
            with pytest.raises(StopIteration) as stop:
                exchange.send((Merged(total.astype(np.int32), workers),))
            assert (stop.value.value.total == workers * sign * limit).all()
    assert np.abs(total).max() > 2**30


def test_an_index_that_lacks_a_worker_s_elements_is_refused() -> None:
    encoder = SasgSummed(share=0.1).worker(0, 2, 0)
    gradient = np.ones(ELEMENTS, np.float32)
    encoder.begin(Step(0, 0.1, None, (gradient,)))
    exchange = encoder.exchange(gradient, Round(0, 0, 2, 0))
    (message,) = next(exchange)
    with pytest.raises(
        DecodeError, match="the merged index lacks elements this worker sent, first in word 0"
    ):
        exchange.send((Merged(np.zeros_like(message.words), 2),))
