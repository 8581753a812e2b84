"""Codec `marsit`: one bit per element, merged into one bit; what a step gets wrong is made up for later.

Wu, He, Guo, Qu, Wang, Zhuang and Zhang, "Sign bit is enough: a learning synchronization framework for
multi-hop all-reduce with ultimate compression", DAC 2022 (arXiv 2204.06787). The merge is `Merge.SIGN`: a
merged bit is that of a uniformly random worker, so on average it is the mean of the signs. Published, as the
abstract and a reading note tell it: the merge, the compensation against the global update, a round in full
precision every K steps. Reconstructed: the signs of the formulas, and that full precision includes what
workers hold back. Ours: the default step per sign, and weights of partial aggregates that are not equal.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.codec import (
    BitsPerElement,
    Carrier,
    Codec,
    Decoded,
    EncodeError,
    Encoder,
    Exchange,
    Origin,
    Promise,
    State,
    Variance,
    part_of,
    prefixed,
)
from netfold.homomorphic.codecs.dense import Dense, DenseValues
from netfold.homomorphic.codecs.majority import Majority
from netfold.homomorphic.codecs.sign_bits import keep_rest, pack_owed, pack_signs, unpack_signs, words_of
from netfold.homomorphic.error_bounds import Doubles, ErrorBound, Sums
from netfold.homomorphic.merge import WORD_BITS, Merge, Work
from netfold.homomorphic.message import Gradient, Message, Round, Step, StepFact
from netfold.kinds import register

STATE_BYTES = 4  # per element: what a worker holds back
_MANTISSA_BITS = 24
"""Bits of float32's mantissa."""
_STEP_MAX = 1e30  # far below the largest float32
_MEANS = 2
"""Mean magnitudes in a default step; ours, see docs/systems/marsit.md."""


@register
@dataclass(frozen=True)
class Marsit(Codec):
    """One bit per element, merged into one bit, and a round in full precision every K steps.

    every: K, from one step in full precision to the next, the first is step 0; 100 is Marsit-100. With 1 all
        are, with 0 none is, but for a first one that finds eta_s if that is left out.
    eta_s: how far a sign moves a weight; left out, twice the mean magnitude of learning rate · gradient, over
        all elements and workers in the bucket's last round in full precision.
    compensation: whether a worker adds to its next gradient by how much the last update was wrong for it.
    values: how values become words in full precision, as in dense: float32, block_exponent, exact, factor.
    block_elements: as in dense.
    factor: as in dense.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid", "strict": True}
    kind: ClassVar[str] = "marsit"
    origin: ClassVar[Origin] = Origin("reconstructed", "Marsit: Wu et al., DAC 2022, arXiv 2204.06787")
    instead: ClassVar[str] = Majority.kind
    needs: ClassVar[frozenset[StepFact]] = frozenset({StepFact.LEARNING_RATE})

    every: int = 100
    eta_s: float | None = None
    compensation: bool = True
    values: DenseValues = "float32"
    block_elements: int | None = None
    factor: float | None = None

    def __post_init__(self) -> None:
        if self.every < 0:
            raise ValueError(f"every is {self.every}: must be 0 or more steps, 0 for never")
        if self.eta_s is not None and not 0 < self.eta_s <= _STEP_MAX:
            raise ValueError(
                f"eta_s is {self.eta_s}: must be more than 0 and at most {_STEP_MAX:g}, for example 0.001; "
                "leave it out for twice the mean magnitude of a step"
            )
        if self.eta_s is not None and self.every == 1:
            raise ValueError("every is 1: no round sends signs, and eta_s has no use; remove it")
        _ = self.dense  # rejects values out of range

    @property
    def dense(self) -> Dense:
        """The codec of rounds in full precision."""
        return Dense(self.values, self.block_elements, self.factor)

    @property
    def merges(self) -> frozenset[Merge]:
        """Signs, and the merges of full precision."""
        signs = frozenset() if self.every == 1 else frozenset({Merge.SIGN})
        return signs if self._is_never_full else signs | self.dense.merges

    @property
    def _is_never_full(self) -> bool:
        return self.every == 0 and self.eta_s is not None

    @property
    def promise(self) -> Promise:
        """Signs are right on average; of full precision, its own."""
        return self.dense.promise if self.every == 1 else Promise.UNBIASED

    def judged_by(self, is_update: bool) -> Codec:
        """Updates come from signs; sums are those of full precision."""
        return self if is_update else self.dense

    def worker(self, rank: int, workers: int, seed: int) -> Encoder:
        return MarsitEncoder(self)

    def carried_by(self, carrier: Carrier) -> Marsit:
        """Fill in the block of exponents as dense does."""
        return replace(self, block_elements=self.dense.carried_by(carrier).block_elements)

    def error_bound(self, contributions: Sequence[Gradient]) -> ErrorBound:
        """The bound of a round of signs: one of two updates, or the only one where all agree."""
        return SignBound()

    def variance(self, contributions: Sequence[Gradient]) -> Variance:
        """The variance of a random worker's sign."""
        return SignVariance()

    def bits_per_element(self, workers: int) -> BitsPerElement | None:
        """(K − 1 + 32) / K; 1 without full precision; exact values need a number that depends on them."""
        if self.every == 0:
            return BitsPerElement(1, 1)
        if self.values == "exact":
            return None
        bits = (self.every - 1 + WORD_BITS) / self.every
        return BitsPerElement(bits, bits)

    @property
    def state_bytes(self) -> int:
        """What a worker holds back."""
        return STATE_BYTES if self.compensation and self.every != 1 else 0


@dataclass(frozen=True)
class SignBound:
    """Bound of a round of signs, whose contributions are all ±u/n.

    The total is ±u, which is Σ|x|, and Σx lies between. n · (u/n) is exact (see `step_of`), so where all
    workers agree there is no error.
    """

    def of(self, sums: Sums) -> Doubles:
        """Σ|x| + |Σx|; 0 where all agree."""
        size = np.abs(sums.total)
        return np.where(size < sums.magnitude, sums.magnitude + size, 0.0)


class SignVariance(Variance):
    """Variance of a random worker's sign: 4 p (1 − p) u², for a share p of ones. Elements are independent."""

    def of(self, sums: Sums) -> Doubles:
        """(Σ|x|)² − (Σx)²."""
        return np.asarray((sums.magnitude - sums.total) * (sums.magnitude + sums.total))


def step_of(size: float, workers: int) -> tuple[np.float32, np.float32]:
    """The step u nearest to a size that n workers can divide, and u / n: n · (u / n) is exact in float32.

    For a power of two that is the size itself; else u / n has as many bits less as n, without its factors
    of 2, has.
    """
    odd = workers // (workers & -workers)
    bits = _MANTISSA_BITS - (odd.bit_length() if odd > 1 else 0)
    mantissa, exponent = math.frexp(float(np.float32(size)) / workers)
    share = np.float32(math.ldexp(round(math.ldexp(mantissa, bits)), exponent - bits))
    return np.float32(workers * float(share)), share


@dataclass
class MarsitEncoder(Encoder):
    """One worker's side.

    It remembers for every bucket what it holds back, in units of the gradient (`_residuals`), and the mean
    magnitude that the last round in full precision found (`_means`). What it holds back is measured against
    the update of all workers: contribution + residual is no sum of its own, and `residual` is None.
    """

    remembers: ClassVar[str] = "what the update of all workers got wrong"

    codec: Marsit
    _residuals: dict[int, Gradient] = field(default_factory=dict)
    _means: dict[int, float] = field(default_factory=dict)
    _rate: float | None = None  # the learning rate that gives residuals their unit

    def begin(self, step: Step) -> None:
        """Take the learning rate; another one than before gives residuals another unit."""
        rate = step.learning_rate
        if self._rate is not None and rate is not None and rate != self._rate:
            for residual in self._residuals.values():
                np.multiply(residual, np.float32(self._rate / rate), out=residual)
        self._rate = rate

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        """Exchange signs, or the gradient and what was held back in full precision.

        Raises
        ------
        EncodeError
            An element is not finite, or a step is too long to be made up for.
        ValueError
            The bucket had another length before.
        """
        if not gradient.size:
            return Decoded(gradient.copy(), gradient)
        residual = self._residuals.get(round.bucket)
        if residual is not None and residual.size != gradient.size:
            raise ValueError(
                f"bucket {round.bucket} has {gradient.size} elements, {residual.size} are held back for it: "
                "a bucket keeps its length"
            )
        is_finite = np.isfinite(gradient)
        if not is_finite.all():
            element = int(np.argmin(is_finite))
            raise EncodeError(
                f"gradient[{element}] is {gradient[element]}: it cannot be made up for; "
                "lower the learning rate"
            )
        if self._is_full(round):
            return (yield from self._exchange_values(gradient, residual, round))
        return (yield from self._exchange_signs(gradient, residual, round))

    def _is_full(self, round: Round) -> bool:
        """Whether a round is in full precision; all workers know the same."""
        codec = self.codec
        is_due = codec.every > 0 and round.step % codec.every == 0
        return is_due or (codec.eta_s is None and not self._means.get(round.bucket))

    def _exchange_values(self, gradient: Gradient, held: Gradient | None, round: Round) -> Exchange:
        """Exchange all that is owed, and the mean magnitude of gradients as one more element."""
        codec = self.codec
        owed = gradient if held is None else gradient + held
        has_mean = codec.eta_s is None and codec.every != 1
        if has_mean:
            owed = np.append(owed, np.float32(np.abs(gradient).mean(dtype=np.float64)))
        decoded = yield from codec.dense.encoder.exchange(owed, round)
        self._residuals.pop(round.bucket, None)
        if not has_mean:
            return decoded
        self._means[round.bucket] = float(decoded.total[-1]) / round.workers
        return Decoded(decoded.total[:-1], owed[:-1])

    def _exchange_signs(self, gradient: Gradient, held: Gradient | None, round: Round) -> Exchange:
        """Exchange signs; hold back what the update of all workers got wrong."""
        step, share = self._step(round)
        in_gradients = self._in_gradients(step)
        words = np.empty(words_of(gradient.size), np.uint32)
        if held is None:
            pack_signs(gradient, words)
        else:
            pack_owed(np.ascontiguousarray(gradient), held, words)
        # The gradient and what is held back are read twice: for the signs, and for what they got wrong.
        state_bytes = gradient.nbytes if self.codec.compensation else 0
        work = Work(gradient.nbytes + state_bytes, words.nbytes, flops=state_bytes // 4)
        decode_work = Work(
            words.nbytes + 2 * state_bytes, gradient.nbytes + state_bytes, flops=state_bytes // 2
        )
        (merged,) = yield (Message(words, Merge.SIGN, "signs", work, decode_work=decode_work),)
        total, contribution = np.empty((2, gradient.size), np.float32)
        unpack_signs(merged.words, step, total)
        unpack_signs(words, share, contribution)
        if self.codec.compensation:
            if held is None:
                held = self._residuals[round.bucket] = np.zeros(gradient.size, np.float32)
            keep_rest(merged.words, in_gradients, gradient, held)
        return Decoded(total, contribution, is_update=True)

    @property
    def _learning_rate(self) -> float:
        if not self._rate:
            raise ValueError("codec marsit needs the learning rate: call `begin` with a step that has it")
        return self._rate

    def _in_gradients(self, step: np.float32) -> np.float32:
        """A step in units of the gradient."""
        size = float(step) / self._learning_rate
        if not size <= _STEP_MAX:
            raise EncodeError(
                f"a step of {step:g} per sign is {size:g} in units of the gradient: at most {_STEP_MAX:g} "
                "can be made up for; raise the learning rate, or set a smaller eta_s"
            )
        return np.float32(size)

    def _step(self, round: Round) -> tuple[np.float32, np.float32]:
        """How far a sign moves a weight in this round, and a worker's part of that."""
        size = self.codec.eta_s
        if size is None:
            size = _MEANS * self._learning_rate * self._means[round.bucket]
        return step_of(min(size, _STEP_MAX), round.workers)

    def state(self) -> State:
        """What is held back and the mean magnitudes, by bucket, and the learning rate."""
        means = {str(bucket): np.array(mean) for bucket, mean in self._means.items()}
        residuals = {str(bucket): held.copy() for bucket, held in self._residuals.items()}
        rate = {} if self._rate is None else {"rate": np.array(self._rate)}
        return prefixed("residual", residuals) | prefixed("mean", means) | rate

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        residuals, means = part_of(state, "residual"), part_of(state, "mean")
        self._residuals = {int(bucket): np.array(held, np.float32) for bucket, held in residuals.items()}
        self._means = {int(bucket): float(mean) for bucket, mean in means.items()}
        self._rate = float(state["rate"]) if "rate" in state else None
