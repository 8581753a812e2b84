"""Words between workers, by collectives of torch.distributed over a process group of their own.

Words have 32 bits and travel as int32 whatever their type, because not all backends carry unsigned words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from netfold.errors import DataError, RunError
from netfold.homomorphic.codec import Carrier, Codec, refusal_of
from netfold.homomorphic.merge import Merge, Words
from netfold.homomorphic.message import StepFact
from netfold.sim.scenario.load import sets_of
from netfold.sim.studies.codec_study_inputs import read_codec
from netfold.sim.workload.workload import refusal_of_needs

_OPERATIONS = {Merge.ADD: dist.ReduceOp.SUM, Merge.MAX: dist.ReduceOp.MAX, Merge.OR: dist.ReduceOp.BOR}
BACKENDS = {
    "gloo": ("cpu", frozenset[Merge]()),
    "nccl": ("cuda", frozenset({Merge.OR})),  # NCCL has no bitwise operations
}
"""Backends that carry messages: the device that they take tensors from, and merges that they lack."""


class Wire:
    """One worker's end of the collectives of a group; all its workers call the same methods in turn.

    Parameters
    ----------
    group
        Used by nothing else, of one of `BACKENDS`.

    Attributes
    ----------
    rank, workers
        Of the group.
    reduces
        Merges that its all-reduce has.
    carried_bytes
        What this worker has given to collectives so far. How often a backend sends them is its matter.
    """

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.rank, self.workers, self.carried_bytes = group.rank(), group.size(), 0
        kind, lacks = BACKENDS[dist.get_backend(group)]
        self._group = group
        index = torch.cuda.current_device() if kind == "cuda" else 0  # other threads have another
        self._device = torch.device(kind, index)
        self._ranks = dist.get_process_group_ranks(group)
        self.reduces = frozenset(_OPERATIONS) - lacks

    def all_reduce(self, words: NDArray[Any], merge: Merge) -> NDArray[Any]:
        """Integers merged over all workers by one of `reduces`; sums wrap. int32 or int8, `(words,)`."""
        sent = self._tensor(words.copy())
        with _failures():
            dist.all_reduce(sent, op=_OPERATIONS[merge], group=self._group)
        return _array(sent)

    def gather_rows(self, row: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows of all workers, `(workers, columns)`; they have the same number of columns."""
        sent = self._tensor(row)
        rows = [torch.empty_like(sent) for _ in range(self.workers)]
        with _failures():
            dist.all_gather(rows, sent, group=self._group)
        return np.stack([_array(tensor) for tensor in rows])

    def gather(self, words: Words, sizes: Sequence[int]) -> list[Words]:
        """The words of all workers, in rank order, of lengths that all know."""
        sent = self._tensor(_as_int32(words))
        parts = [sent if rank == self.rank else sent.new_empty(size) for rank, size in enumerate(sizes)]
        with _failures():
            if len(set(sizes)) == 1 and sizes[0]:
                parts = [torch.empty_like(sent) for _ in sizes]
                dist.all_gather(parts, sent, group=self._group)
            else:
                for rank, part in enumerate(parts):
                    if part.numel():
                        dist.broadcast(part, self._ranks[rank], group=self._group)
        return [_array(part).view(words.dtype) for part in parts]

    def scatter_shares(self, words: Words, ends: Sequence[int], is_present: Sequence[bool]) -> list[Words]:
        """Each worker's words from `ends[r]` to `ends[r + 1]`, at rank r, in rank order.

        Those that are not present send nothing, and are left out.
        """
        share_length = ends[self.rank + 1] - ends[self.rank]
        sent_counts = np.diff(ends).tolist() if is_present[self.rank] else [0] * self.workers
        lengths = [share_length if is_there else 0 for is_there in is_present]
        sent = self._tensor(_as_int32(words))
        received = sent.new_empty(sum(lengths))
        with _failures():
            dist.all_to_all_single(received, sent, lengths, sent_counts, group=self._group)
        parts = _array(received).view(words.dtype).reshape(-1, share_length) if share_length else None
        return [words[:0] if parts is None else parts[number] for number in range(sum(is_present))]

    def _tensor(self, array: NDArray[Any]) -> torch.Tensor:
        self.carried_bytes += array.nbytes
        return torch.from_numpy(array).to(self._device)


def _as_int32(words: Words) -> NDArray[np.int32]:
    """The same bits; a copy where PyTorch could not send them as they lie."""
    lanes: NDArray[np.int32] = np.require(words, requirements=["C", "W"]).view(np.int32)
    return lanes


def _array(tensor: torch.Tensor) -> NDArray[Any]:
    return tensor.cpu().numpy()


@contextmanager
def _failures() -> Iterator[None]:
    """Say what failed where a collective does."""
    try:
        yield
    except RuntimeError as error:
        raise RunError(
            f"netfold's messages did not get through: {str(error).strip().splitlines()[0]}",
            "see whether another worker has ended before: its own error says why",
        ) from error


# Which codecs a state can drive, and with what.


WITH_RATE = frozenset({StepFact.LEARNING_RATE})  # what is known of a step if the user gives the rate
_TRAVELS = {
    Merge.ADD: "all-reduce",
    Merge.OR: "all-reduce, on NCCL shares",
    Merge.MAX: "all-reduce",
    Merge.FLOAT_ADD: "shares, by rank",
    Merge.SIGN: "gathered, by rank",
    Merge.TABLE_ADD: "shares",
    Merge.GATHER: "gathered",
    Merge.HOST: "gathered, by rank",
}


class Support(NamedTuple):
    """What a hook can do with a codec."""

    works: str  # "yes", "with learning_rate" or "no"
    why: str  # what it lacks; empty if it works
    travels: str  # how its messages do


def make_codec(codec: Codec | str, options: Mapping[str, Any]) -> Codec:
    """A codec from its kind and options, as a scenario gives them.

    What defaults to the network's values has those of packets of 256 elements, as in a scenario.

    Raises
    ------
    ScenarioError
        The kind, an option or a value is unknown: the text of a scenario file.
    """
    if isinstance(codec, Codec):
        if options:
            names = ", ".join(options)
            raise DataError(
                f"{names}: the codec is given with its options", f"leave out {names}, or give a kind"
            )
        return codec.carried_by(Carrier())
    text = ",".join(sets_of(options))
    joint = "," if ":" in codec else ":"
    return read_codec(f"{codec}{joint}{text}" if text else codec).codec.carried_by(Carrier())


def check_codec(codec: Codec, workers: int, has_rate: bool) -> None:
    """Refuse a codec that needs what a hook does not know, or has no room for the workers.

    Raises
    ------
    DataError
        What it needs or lacks, and what would help.
    """
    known = WITH_RATE if has_rate else frozenset()
    if refusal := refusal_of_needs(codec, known, "a communication hook"):
        hint = "use another codec, or a simulated run: a scenario whose workload has the kind training"
        if codec.needs == WITH_RATE:
            hint = "give State a learning_rate, and train with torch.optim.SGD(…, lr=1.0)"
        raise DataError(refusal.message, hint)
    if refused := refusal_of(codec, workers):
        raise DataError(refused.reason, f"use {refused.remedy}")


def support_of(codec: Codec) -> Support:
    """What a hook can do with a codec."""
    travels = "; ".join(sorted(f"{merge.value}: {_travels(merge, codec)}" for merge in codec.merges))
    refusal = refusal_of_needs(codec, frozenset(), "a communication hook")
    if refusal is None:
        return Support("yes", "", travels)
    return Support("with learning_rate" if codec.needs == WITH_RATE else "no", refusal.message, travels)


def _travels(merge: Merge, codec: Codec) -> str:
    # No backend adds 16-bit integers.
    return _TRAVELS[Merge.TABLE_ADD if merge is Merge.ADD and codec.lane_bits == 16 else merge]
