"""Where uploads meet: last uploads, running sums, answers, and damaged lists."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from netfold.homomorphic.codec import DecodeError, Request, Server
from netfold.homomorphic.codecs.sasg.lists import Sasg
from netfold.homomorphic.codecs.sasg.summed import SasgSummed
from netfold.homomorphic.fold import fold
from netfold.homomorphic.message import Merge, Merged, Words
from netfold.homomorphic.round import Round, Step
from tests.homomorphic.codecs.sasg.tiny import ELEMENTS, Tiny, Trained, Training

RATE, WORKERS = 0.5, 5
OPTIONS: dict[str, Any] = {"share": 0.1, "staleness": 4}
REQUEST = Request(0, 0, 0, "upload")


def words_of(elements: list[int], values: list[float], dtype: type[Any] = np.float32) -> Words:
    bits: Words = np.array(values, dtype).view(np.uint32)
    return np.concatenate([np.array(elements, np.uint32), bits])


def server_of(**options: Any) -> Server:
    found = Sasg(**options).server(3, 0)
    assert found is not None
    return found


NOTHING = np.empty(0, np.uint32)


def trained(codec: Any, steps: int = 40) -> Trained:
    return Training(codec, Tiny(), WORKERS, RATE).run(steps)


def test_a_worker_that_skips_counts_with_its_last_upload() -> None:
    server = server_of(share=0.1)
    first = server.merge([words_of([0, 2], [1, 2]), NOTHING, words_of([2, 3], [4, 8])], REQUEST)
    second = server.merge([NOTHING, words_of([1, 2], [16, 32]), NOTHING], REQUEST)
    third = server.merge([words_of([0, 1], [64, 128]), NOTHING, NOTHING], REQUEST)
    fourth = server.merge([NOTHING] * 3, REQUEST)

    assert first.view(np.float32).tolist() == [1, 0, 6, 8]
    assert second.view(np.float32).tolist() == [1, 16, 38, 8]
    assert third.view(np.float32).tolist() == [64, 144, 36, 8]
    assert fourth.tobytes() == third.tobytes()


@pytest.mark.parametrize("options", [{"share": 0.1}, {"share": 1.0}])
def test_what_is_kept_is_not_in_the_memory_of_the_sender(options: dict[str, Any]) -> None:
    server, words = server_of(**options), words_of([0, 1], [1, 2])
    first = server.merge([words], REQUEST).copy()
    words[:] = 7
    answer = server.merge([NOTHING], REQUEST)
    assert answer.tobytes() == first.tobytes()

    answer[:] = 7
    assert server.merge([NOTHING], REQUEST).tobytes() == first.tobytes()


def test_buckets_are_apart() -> None:
    server = server_of(share=0.1)
    server.merge([words_of([0], [1])], REQUEST)

    other = server.merge([words_of([1], [2])], REQUEST._replace(bucket=1))
    assert other.view(np.float32).tolist() == [0, 2]


@pytest.mark.parametrize("aggregation", ["last", "incremental"])
def test_a_union_has_the_elements_of_some_last_upload(aggregation: str) -> None:
    dtype = np.float32 if aggregation == "last" else np.int32
    server = server_of(share=0.1, aggregation=aggregation, down="union")
    answer = server.merge([words_of([1, 9], [1, 2], dtype), words_of([4], [3], dtype)], REQUEST)

    assert answer.tolist() == words_of([1, 4, 9], [1, 3, 2], dtype).tolist()
    assert server.merge([NOTHING] * 2, REQUEST).tobytes() == answer.tobytes()


@pytest.mark.parametrize("index", ["flat", "none"])
@pytest.mark.parametrize("down", ["dense", "union"])
def test_a_running_sum_is_the_sum_of_last_uploads_in_integers(index: Any, down: Any) -> None:
    """At a server and at every worker, with nothing rounded: the same weights bit for bit in 40 steps."""
    bits = 20
    at_server = trained(Sasg(aggregation="incremental", down=down, fraction_bits=bits, **OPTIONS))
    at_workers = trained(SasgSummed(index=index, fraction_bits=bits, **OPTIONS))

    assert 0 < at_server.upload_share < 1
    assert at_server.uploads == at_workers.uploads
    assert [own.tobytes() for own in at_server.weights] == [own.tobytes() for own in at_workers.weights]
    for folded in at_server.rounds:
        multiples = np.array(folded.contributions, np.float64) * 2.0**bits
        assert (multiples == np.rint(multiples)).all()
        total = (multiples.sum(axis=0) / 2.0**bits).astype(np.float32)
        assert folded.decoded[0].tobytes() == total.tobytes()


@pytest.mark.parametrize(
    "codec",
    [
        Sasg(alpha=1e300, **OPTIONS),
        Sasg(alpha=1e300, down="union", **OPTIONS),
        Sasg(alpha=1e300, aggregation="incremental", **OPTIONS),
        SasgSummed(alpha=1e300, **OPTIONS),
        SasgSummed(alpha=1e300, index="none", **OPTIONS),
    ],
    ids=repr,
)
def test_a_round_completes_if_all_skip(codec: Any) -> None:
    run = trained(codec, 6)

    assert [sum(own) for own in run.uploads] == [WORKERS] * 4 + [0, 0]
    assert run.rounds[4].decoded[0].tobytes() == run.rounds[3].decoded[0].tobytes() != b""
    assert np.any(run.rounds[4].decoded[0])
    assert run.rounds[5].announced_bytes(0) == 0


def test_a_server_does_what_it_charges_for() -> None:
    """It reads all last uploads, 2 · 16 bytes, and writes the sum, 4 · 4 bytes, and the answer."""
    parts = [words_of([0, 3], [1, 2]), words_of([1, 2], [4, 8])]
    for down, answer_bytes in (("dense", 16), ("union", 32)):
        server = server_of(share=0.1, down=down)
        server.merge(parts, REQUEST)
        answer = server.merge([parts[0], NOTHING], REQUEST)
        work = server.work([parts[0], NOTHING], answer)
        assert answer.nbytes == answer_bytes
        assert (work.read_bytes, work.written_bytes) == (32, 16 + answer_bytes)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([1, 2, 3], "worker 1 sends 3 words: elements and values need an even number"),
        ([2, 2, 0, 0], "worker 1 sends elements that are not in ascending order"),
    ],
)
@pytest.mark.parametrize("aggregation", ["last", "incremental"])
def test_words_that_are_no_upload_are_refused(aggregation: str, words: list[int], message: str) -> None:
    server = server_of(share=0.1, aggregation=aggregation)
    with pytest.raises(DecodeError, match=message):
        server.merge([NOTHING, np.array(words, np.uint32)], REQUEST)


@pytest.mark.parametrize(
    ("down", "answer", "message"),
    [
        ("union", [1], "the server sends 1 words: elements and values need an even number"),
        ("union", [ELEMENTS, 0], "the server's sum has element 52 of a bucket of 52"),
        ("dense", [0] * (ELEMENTS + 1), "the server's sum has element 52 of a bucket of 52"),
    ],
)
def test_answers_that_do_not_fit_are_refused(down: Any, answer: list[int], message: str) -> None:
    encoder = Sasg(share=0.1, down=down).worker(0, 1, 0)
    gradient = np.ones(ELEMENTS, np.float32)
    encoder.begin(Step(0, 0.1, None, (gradient,)))
    exchange = encoder.exchange(gradient, Round(0, 0, 1, 0))
    next(exchange)
    with pytest.raises(DecodeError, match=message):
        exchange.send((Merged(np.array(answer, np.uint32), 1),))


def test_a_driver_without_server_parts_is_refused() -> None:
    codec, gradient = Sasg(share=0.1), np.ones(ELEMENTS, np.float32)
    encoders = [codec.worker(rank, 2, 0) for rank in range(2)]
    for encoder in encoders:
        encoder.begin(Step(0, 0.1, None, (gradient,)))
    with pytest.raises(DecodeError, match="sasg needs a driver that runs its server part"):
        fold(encoders, [gradient] * 2, Round(0, 0, 2, 0))


# SASG summed on the way: who is absent, which elements are sent, and what damage does.

INDEX_WORDS = 2  # of 52 elements


def test_only_who_uploads_and_only_elements_that_change_are_sent() -> None:
    """A bit for each element, then a word for each whose last upload changes at some worker."""
    run = trained(SasgSummed(**OPTIONS))

    before, counts = np.zeros((WORKERS, ELEMENTS)), set()
    for folded, uploads in zip(run.rounds, run.uploads, strict=True):
        counts.add(sum(uploads))
        now = np.array(folded.contributions, np.float64)
        changed = (now != before).any(axis=0)
        sizes = [operation[0][0].size for operation in folded.messages]
        assert sizes == [INDEX_WORDS, int(changed.sum())][: 1 + changed.any()]
        assert [operation[0][0].merge for operation in folded.messages] == [Merge.OR, Merge.ADD][: len(sizes)]
        for operation in folded.messages:
            for (message,), has_uploaded in zip(operation, uploads, strict=True):
                assert message.is_absent == (not has_uploaded)
                assert message.size_bytes == (4 * message.size if has_uploaded else 0)
        before = now
    assert 0 in counts
    assert counts & set(range(1, WORKERS))


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
