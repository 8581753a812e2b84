"""SASG beside a plain version: the rule of who uploads, what a server keeps, what an upload holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from netfold.homomorphic.codec import Codec, DecodeError, EncodeError, Encoder, Request, Server
from netfold.homomorphic.codecs.sasg import Sasg, SasgEncoder, SparseEntries, StepGrid, count_of
from netfold.homomorphic.codecs.sasg_summed import SasgSummed
from netfold.homomorphic.fold import AllReduceResult, fold
from netfold.homomorphic.merge import WORD_MAX, Merge, Merged, Words
from netfold.homomorphic.message import Gradient, Message, Round, Step, Tensor
from netfold.testing import check_codec
from tests.homomorphic.gradients import folded as aggregated
from tests.reference.systems.sasg import Array, Settings, Tensors, train

SHAPES = (4, 12), (4,)
TENSORS = Tensor("weight", SHAPES[0], "all"), Tensor("bias", SHAPES[1], "all", 48)
ELEMENTS = 52


@dataclass(frozen=True)
class Tiny:
    """Four noisy clusters; a batch depends on seed, step and worker alone."""

    seed: int = 1
    batch: int = 4
    noise: float = 1.0

    @property
    def start(self) -> Tensors:
        return [np.zeros(shape, np.float32) for shape in SHAPES]

    def gradient(self, weights: Tensors, step: int, worker: int) -> Tensors:
        """Of the mean cross entropy, in the type of the weights."""
        random = np.random.default_rng([self.seed, step, worker])
        labels = random.integers(4, size=self.batch)
        images = self.noise * random.standard_normal((self.batch, 12))
        images[np.arange(self.batch), labels] += 3
        logits = images.astype(weights[0].dtype) @ weights[0].T + weights[1]
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        odds /= odds.sum(axis=1, keepdims=True)
        odds[np.arange(self.batch), labels] -= 1
        odds /= self.batch
        return [odds.T @ images.astype(weights[0].dtype), odds.sum(axis=0)]


def flat(tensors: Sequence[Array]) -> Gradient:
    return np.concatenate([one.reshape(-1) for one in tensors]).astype(np.float32)


def cut(flat: Gradient) -> Tensors:
    return [flat[tensor.place].reshape(tensor.shape) for tensor in TENSORS]


@dataclass
class Trained:
    """What a training did."""

    weights: list[Gradient] = field(default_factory=list)  # after each step
    rounds: list[AllReduceResult] = field(default_factory=list)

    @property
    def uploads(self) -> list[list[bool]]:
        """By step and worker: whether it sent any words."""
        return [
            [any(op[rank][0].words.size > 0 for op in one.messages) for rank in range(len(one.results))]
            for one in self.rounds
        ]

    @property
    def upload_share(self) -> float:
        return float(np.mean(self.uploads))


@dataclass
class Training:
    """Trains with a codec; `buckets` cut the weights, of whole tensors."""

    codec: Codec
    model: Tiny
    workers: int
    learning_rate: float

    def __post_init__(self) -> None:
        self.encoders: list[Encoder] = [
            self.codec.worker(rank, self.workers, 1) for rank in range(self.workers)
        ]
        self.server = self.codec.server(self.workers, 1)
        self.weights = flat(self.model.start)
        self.kept: dict[int, Gradient] = {}
        self.passes = 0  # at kept weights
        self.update_norm: float | None = None
        self.done = Trained()

    def run(self, steps: int) -> Trained:
        for _ in range(steps):
            self.step()
        return self.done

    def gradients(self, step: int) -> list[Gradient]:
        weights = cut(self.weights)
        return [flat(self.model.gradient(weights, step, rank)) for rank in range(self.workers)]

    def step(self) -> None:
        number = len(self.done.weights)
        gradients = self.gradients(number)
        for rank, encoder in enumerate(self.encoders):
            kept = partial(self._kept_gradients, number, rank)
            keep = partial(self._keep, rank)
            encoder.begin(Step(number, self.learning_rate, self.update_norm, (gradients[rank],), kept, keep))
        round = Round(number, 0, self.workers, 1, tensors=TENSORS)
        folded = fold(self.encoders, gradients, round, server=self.server)
        total = folded.decoded[0]
        if not folded.results[0].is_update:
            total = np.float32(self.learning_rate / self.workers) * total
        self.weights = self.weights - total
        self.update_norm = float(np.sqrt(np.square(total, dtype=np.float64).sum()))
        self.done.weights.append(self.weights)
        self.done.rounds.append(replace(folded))

    def _keep(self, rank: int) -> None:
        self.kept[rank] = self.weights

    def _kept_gradients(self, step: int, rank: int) -> list[Gradient]:
        self.passes += 1
        return [flat(self.model.gradient(cut(self.kept[rank]), step, rank))]


RATE, WORKERS = 0.5, 10
NEVER = 1e300  # alpha: only staleness makes a worker upload


@pytest.mark.parametrize(
    ("codec", "rate", "workers"),
    [
        (Sasg(share=0.1), RATE, WORKERS),
        (Sasg(share=0.1), 0.1, 1),
        (Sasg(share=0.3, alpha=3.0), RATE, 4),
        (Sasg(share=0.1, staleness=3, alpha=200.0), RATE, 4),
        (Sasg(share=0.1, staleness=1), 2.0, 3),
        (Sasg(share=1.0), RATE, WORKERS),  # whole uploads: LASG
    ],
)
def test_workers_decide_and_train_as_published(codec: Sasg, rate: float, workers: int) -> None:
    """The same uploads, and the same weights bit for bit, as the notebook's loop in float32."""
    run = Training(codec, Tiny(), workers, rate).run(60)
    alpha = workers / rate if codec.alpha is None else codec.alpha
    settings = Settings(rate / workers, alpha, codec.staleness, codec.share, workers)
    twin = train(Tiny().gradient, Tiny().start, settings, len(run.weights))

    assert run.upload_share < 1 or codec.staleness == 1
    assert run.uploads == twin.uploads
    assert [own.tobytes() for own in run.weights] == [flat(own).tobytes() for own in twin.weights]
    for folded, sent in zip(run.rounds, twin.sent, strict=True):
        for contribution, tensors in zip(folded.contributions, sent, strict=True):
            assert contribution.tobytes() == flat(tensors).tobytes()


def test_without_changes_that_count_uploads_are_as_rare_as_staleness_allows() -> None:
    """10 of the warm start, and then one in 11 steps: 145 in 1,500, 9.67 %."""
    run = Training(Sasg(share=0.1, alpha=NEVER), Tiny(), 2, RATE).run(60)

    steps = [step for step in range(1500) if step < 10 or (step - 9) % 11 == 0]
    own = [step for step in steps if step < 60]
    assert [np.flatnonzero(one).tolist() for one in np.array(run.uploads).T] == [own, own]
    assert len(steps) == 145


def test_gradients_are_compared_only_where_it_matters() -> None:
    """Neither in the warm start, nor where an upload is due; never with alpha 0."""
    training = Training(Sasg(share=0.1, alpha=NEVER), Tiny(), 2, RATE)
    training.run(32)
    assert training.passes == 2 * (32 - 10 - 2)

    training = Training(Sasg(share=0.1, alpha=0.0), Tiny(), 2, RATE)
    assert training.run(20).upload_share == 1
    assert (training.passes, training.kept) == (0, {})


def test_the_distance_is_that_of_all_buckets_together() -> None:
    """The threshold is 18; the first bucket alone is 9 away, both are 18 or 18.01 away."""

    def uploads(second: float) -> bool:
        encoder = Sasg(alpha=72.0, staleness=2).worker(0, 2, 0)
        now = np.array([3, 0], np.float32), np.array([second], np.float32)
        for number, norm in enumerate((None, 9.0, 1.0)):  # D − 1 = 1: the last counts alone

            def then() -> list[Any]:
                return [np.zeros(2, np.float32), np.zeros(1, np.float32)]

            encoder.begin(Step(number, 0.1, norm, now, then))
        assert isinstance(encoder, SasgEncoder)
        return encoder.rule.uploads

    assert not uploads(3.0)
    assert uploads(float(np.sqrt(9.01)))


ONES = np.ones(ELEMENTS, np.float32)


def begun(codec: Codec, workers: int = 1) -> tuple[Any, Message]:
    """The exchange of a worker's gradient of ones, and its first message."""
    encoder = codec.worker(0, workers, 0)
    encoder.begin(Step(0, 0.1, None, (ONES,)))
    exchange = encoder.exchange(ONES, Round(0, 0, workers, 0))
    (message,) = next(exchange)
    return exchange, message


def test_a_step_that_was_not_begun_is_refused() -> None:
    encoder = Sasg(share=0.5).worker(0, 1, 0)
    with pytest.raises(RuntimeError, match="step 3 was not begun: call `begin` before"):
        next(encoder.exchange(ONES, Round(3, 0, 1, 0)))
    encoder.begin(Step(3, 0.1, None, (ONES,)))
    next(encoder.exchange(ONES, Round(3, 0, 1, 0)))


SERVER_WORKERS = 5
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
    return Training(codec, Tiny(), SERVER_WORKERS, RATE).run(steps)


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

    assert [sum(own) for own in run.uploads] == [SERVER_WORKERS] * 4 + [0, 0]
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
    exchange, _ = begun(Sasg(share=0.1, down=down))
    with pytest.raises(DecodeError, match=message):
        exchange.send((Merged(np.array(answer, np.uint32), 1),))


def test_a_driver_without_server_parts_is_refused() -> None:
    encoder = Sasg(share=0.1).worker(0, 1, 0)
    encoder.begin(Step(0, 0.1, None, (ONES,)))
    with pytest.raises(DecodeError, match="sasg needs a driver that runs its server part"):
        fold([encoder], [ONES], Round(0, 0, 1, 0))


# SASG summed on the way: who is absent, which elements are sent, and what damage does.

INDEX_WORDS = 2  # of 52 elements


def test_only_who_uploads_and_only_elements_that_change_are_sent() -> None:
    """A bit for each element, then a word for each whose last upload changes at some worker."""
    run = trained(SasgSummed(**OPTIONS))

    before, counts = np.zeros((SERVER_WORKERS, ELEMENTS)), set()
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
    assert counts & set(range(1, SERVER_WORKERS))


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
    exchange, message = begun(SasgSummed(share=0.1), workers=2)
    with pytest.raises(
        DecodeError, match="the merged index lacks elements this worker sent, first in word 0"
    ):
        exchange.send((Merged(np.zeros_like(message.words), 2),))


FC = [(512, 784), (512,), (10, 512), (10,)]
SELDOM = {"staleness": 2, "alpha": 1e30}  # so that all skip in the third of the law's rounds
VARIANTS = [
    Sasg(share=0.3, down="union", **SELDOM),
    Sasg(share=1.0, **SELDOM),
    Sasg(share=0.3, aggregation="incremental", **SELDOM),
    Sasg(share=0.3, aggregation="incremental", down="union", staleness=1, alpha=0.0),
    SasgSummed(staleness=2, alpha=1e30),
    SasgSummed(share=0.3, index="none", staleness=2, alpha=1e30),
]


def test_published_counts_of_an_upload() -> None:
    assert sum(count_of(0.01, Tensor("", shape, "").elements) for shape in FC) == 4_071


def test_counts_are_rounded_down_to_at_least_one() -> None:
    assert [count_of(0.01, elements) for elements in (0, 1, 99, 100, 199, 200)] == [0, 1, 1, 1, 1, 2]
    assert count_of(1.0, 7) == 7


@pytest.mark.parametrize(("aggregation", "dtype"), [("last", np.float32), ("incremental", np.int32)])
def test_an_answer_without_elements_is_a_sum_of_zeros(aggregation: Any, dtype: Any) -> None:
    exchange, _ = begun(Sasg(share=0.3, aggregation=aggregation, down="union"))
    answer = SparseEntries(np.empty(0, np.uint32), np.empty(0, dtype)).words

    with pytest.raises(StopIteration) as ended:
        exchange.send((Merged(answer, 1),))
    assert ended.value.value.total.tolist() == [0.0] * ONES.size


@pytest.mark.parametrize("codec", VARIANTS, ids=repr)
def test_the_law(codec: Codec) -> None:
    """With rounds in which workers skip, for all kinds of values; large ones are refused on a grid."""
    check_codec(codec, cases=5)


def test_bits_per_element_are_those_sent() -> None:
    for share, up in ((0.01, 0.64), (1.0, 32.0)):
        found = Sasg(share=share, alpha=0.0).bits_per_element(8)
        assert found is not None
        assert (found.up, found.down) == (up, 32)
    assert Sasg().bits_per_element(8) is None
    assert Sasg(alpha=0.0, down="union").bits_per_element(8) is None
    assert SasgSummed(alpha=0.0, index="none").bits_per_element(8) == (32, 32)
    assert SasgSummed(index="none").bits_per_element(8) is None


def test_work_is_what_a_worker_does() -> None:
    """All in units of the gradient's bytes; an upload of 5 elements and the numbers of these, twice."""
    training = Training(Sasg(share=0.1, alpha=1e300), Tiny(), 1, 0.5)
    run = training.run(22)
    upload, skip, due = (run.rounds[step].messages[0][0][0].work for step in (0, 10, 20))
    size = 4 * ELEMENTS

    assert (upload.read_bytes, upload.written_bytes, upload.launches) == (4 * size, size + 2 * 40, 1)
    assert (skip.read_bytes, skip.written_bytes, skip.flops) == (2 * size, 0, 3 * ELEMENTS)
    assert due == upload
    compared = Training(Sasg(share=0.1, alpha=1e-300), Tiny(), 1, 0.5).run(11)
    both = compared.rounds[10].messages[0][0][0].work
    assert (both.read_bytes, both.flops, both.launches) == (6 * size, 5 * ELEMENTS, 2)


@pytest.mark.parametrize("codec", [Sasg(share=0.5), SasgSummed(share=0.5)], ids=repr)
def test_values_that_are_not_finite_are_refused(codec: Codec) -> None:
    training = Training(codec, Tiny(), 2, 0.5)
    gradient = np.ones(ELEMENTS, np.float32)
    gradient[3] = np.nan
    training.gradients = lambda step: [gradient] * 2  # type: ignore[method-assign]
    with pytest.raises(EncodeError, match=r"gradient\[3\] is nan"):
        training.step()
    assert aggregated(codec, [gradient[:0]] * 2).messages == []  # nothing is refused and nothing sent


def test_values_too_large_for_the_grid_are_refused() -> None:
    """With 2 workers and 24 bits the limit is (2**31 − 1) // 4 steps of 2**−24."""
    grid = StepGrid(24, 2)
    largest = np.float32(2**29 - 32) / np.float32(2**24)
    assert grid.integers(np.array([largest, -largest], np.float32)).tolist() == [2**29 - 32, 32 - 2**29]
    with pytest.raises(
        EncodeError, match=r"an element of an upload is 32: with 2 workers and fraction_bits 24"
    ):
        grid.integers(np.array([32], np.float32))


@given(
    bits=st.integers(0, 60),
    workers=st.integers(1, 64),
    values=st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=20),
)
def test_a_grid_loses_nothing(bits: int, workers: int, values: list[float]) -> None:
    """Rounded values and what is left of them are float32 numbers, and sums of all workers stay in int32."""
    grid, given = StepGrid(bits, workers), np.array(values, np.float32)
    if float(np.abs(given).max()) * 2.0**bits > grid.limit - 1:
        given *= np.float32((grid.limit - 1) / 2.0**bits / 1e6 / 2)
    integers = grid.integers(given)
    rounded = grid.values(integers)

    assert (np.abs(integers.astype(np.int64)) <= grid.limit).all()
    assert 2 * workers * grid.limit <= WORD_MAX
    assert (rounded.astype(np.float64) == integers / 2.0**bits).all()
    left: NDArray[Any] = given - rounded
    assert (left.astype(np.float64) == given.astype(np.float64) - rounded).all()
    assert (np.abs(left.astype(np.float64)) <= 0.5 / 2.0**bits).all()
