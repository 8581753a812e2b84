"""Memory footprint of a codec, measured on a small sample of the same gradients and scaled.

The sizes of a codec's messages, tables and temporaries are proportional to the number of elements. So its
peak on few elements, traced by Python, gives the footprint for many: `a + b · workers` bytes per element. It
is measured only if a run could come near the available memory (`UPPER_BYTES`).
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from netfold.homomorphic.codec import Codec, Decoded, DecodeError, EncodeError, Request, Server, advance
from netfold.homomorphic.contract import CodecRefusedError, make_encoders
from netfold.homomorphic.fold import answered
from netfold.homomorphic.merge import gathered, merged_message
from netfold.homomorphic.message import EXPONENT_MIN, Gradient, Merge, Merged, Message
from netfold.homomorphic.numbers.formats import stage
from netfold.homomorphic.round import Round, Step
from netfold.sim.memory.available import Footprint
from netfold.sim.workload import SyntheticSpec, synthetic_workload
from netfold.sim.workload.fusion import ONE_BUCKET

_SAMPLE_ELEMENTS = 1 << 19  # with fewer, the tables of a tile dominate
_FEW, _MORE = 2, 5  # workers of the two samples


def sample_of(spec: SyntheticSpec) -> list[Gradient]:
    """Small gradients of some workers, of the kind that a spec describes."""
    small = replace(
        spec, elements=min(spec.elements, _SAMPLE_ELEMENTS), shapes=(), ready_shares=(), fusion=ONE_BUCKET
    )
    return [buckets[0] for buckets in synthetic_workload(small, _MORE, 0).gradients(0)]


def codec_footprint(codec: Codec, sample: Sequence[Gradient], is_scaled_on_way: bool = False) -> Footprint:
    """Memory of a codec's round besides the gradients, measured with few workers.

    Parameters
    ----------
    codec
        As its jobs use it.
    sample
        Gradients of at least 5 workers, 1-D float32, of the kind that the codec will encode.
    is_scaled_on_way
        The network agrees on exponents, so that no worker holds its words as integers.
    """
    few, more = (
        _peak_bytes(codec, sample[:workers], is_scaled_on_way) / sample[0].size for workers in (_FEW, _MORE)
    )
    each = max(0.0, (more - few) / (_MORE - _FEW))
    return Footprint(max(0.0, few - _FEW * each), each)


def _peak_bytes(codec: Codec, gradients: Sequence[Gradient], is_scaled_on_way: bool) -> int:
    """Peak memory of a round, on top of its gradients."""
    _play(codec, gradients, is_scaled_on_way)  # compilation, imports and caches on first use do not count
    was_tracing = tracemalloc.is_tracing()
    if not was_tracing:
        tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        _play(codec, gradients, is_scaled_on_way)
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        if not was_tracing:
            tracemalloc.stop()


def _play(codec: Codec, gradients: Sequence[Gradient], is_scaled_on_way: bool) -> None:
    """Run one round and hold what a run holds: all messages to its end, merged words and sums once."""
    workers = len(gradients)
    try:
        encoders = make_encoders(codec, workers, 0)
    except CodecRefusedError:
        return  # more workers than it has room for, and than a run will have
    for encoder, gradient in zip(encoders, gradients, strict=True):
        encoder.begin(Step(0, 0.01, None, [gradient], partial(_again, gradient)))
    exchanges = [
        stage(
            encoder.exchange(gradient, Round(0, 0, workers, 0)),
            lambda message: is_scaled_on_way and message.scaling is not None,
        )
        for encoder, gradient in zip(encoders, gradients, strict=True)
    ]
    server = codec.server(workers, 0)
    kept: list[object] = []
    answers: tuple[Merged, ...] | None = None
    try:
        while True:
            sent: list[tuple[Message, ...]] = []
            for exchange in exchanges:
                sent += _messages(advance(exchange, answers))
            if not sent:
                return
            answers = tuple(_merged(server, [one[part] for one in sent]) for part in range(len(sent[0])))
            kept += [sent, answers]
    except (EncodeError, DecodeError):  # the run will report it
        return


def _again(gradient: Gradient) -> list[Gradient]:
    """Stands for the gradients at kept weights."""
    return [gradient.copy()]


def _messages(found: tuple[Message, ...] | Decoded) -> list[tuple[Message, ...]]:
    """What a worker sends; its decoded sum is the same as the others', or is let go."""
    return [found] if isinstance(found, tuple) else []


def _merged(server: Server | None, messages: Sequence[Message]) -> Merged:
    """A merged message; of scaled words and of floats, only the memory."""
    first = messages[0]
    if server is not None and first.merge is Merge.GATHER:
        return answered(server, [one.words for one in messages], Request(0, 0, 0, first.label))
    if first.scaling is not None:
        present = [one.scaling for one in messages if one.scaling is not None and not one.is_absent]
        blocks = -(-first.size // first.scaling.block_elements)
        exponents = present[0].exponents if present else np.full(blocks, EXPONENT_MIN, np.int8)
        return Merged(np.zeros(first.size, np.int32), len(present), exponents)
    if first.merge is Merge.GATHER:
        return gathered([one.words for one in messages])
    found = merged_message(messages)
    return replace(found, is_float=None if first.floats is None else np.zeros(found.words.size, np.bool_))
