"""Memory: how much is available, and how much a run takes."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from netfold.homomorphic.codec import (
    Codec,
    CodecRefusedError,
    ContractError,
    DecodeError,
    EncodeError,
    Request,
    Server,
    make_encoders,
)
from netfold.homomorphic.codec_driver import drive
from netfold.homomorphic.fold import answer_of_server
from netfold.homomorphic.merge import Merge, Merged, gather
from netfold.homomorphic.message import (
    EXPONENT_MIN,
    Decodings,
    Gradient,
    Message,
    Round,
    Step,
    merged_message,
)
from netfold.sim.workload.fusion import ONE_BUCKET
from netfold.sim.workload.synthetic import SyntheticSpec

# Memory available for a run, by the system and by its control groups.


_MEMINFO, _CGROUP = Path("/proc/meminfo"), Path("/proc/self/cgroup")
_CGROUP_ROOT = Path("/sys/fs/cgroup")
_GIB, _MIB = 1 << 30, 1 << 20


BASE_BYTES = 250 << 20
"""Bytes of Python with a run's imports and compiled code."""
UPPER_BYTES = 24  # per element, and per element of each worker: more than any codec takes


class Footprint(NamedTuple):
    """Bytes per element: shared by all workers, of each worker, and of one with another worker's gradient."""

    shared: float
    each: float
    again: float | None = None  # None: as of each

    def bytes(self, elements: int, workers: int, distinct: int | None = None) -> float:
        # For a whole gradient; `distinct`: how many different ones the workers have.
        count = workers if distinct is None else distinct
        again = self.each if self.again is None else self.again
        return elements * (self.shared + self.each * count + again * (workers - count))


def available_bytes() -> int:
    # The least of the system's available memory (`MemAvailable`: free memory, and caches that it can drop)
    # and the rest of the limit of each control group of the process; the machine's whole memory if the system
    # reports neither.
    limits = [_system_bytes(), *_group_bytes()]
    return max(0, min(limits))


def _system_bytes() -> int:
    try:
        for line in _MEMINFO.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _group_bytes() -> list[int]:
    """The rest of the limit of each control group, from the process's group up to the root."""
    free_bytes = []
    for folder, limit, used in _groups():
        try:
            text = (folder / limit).read_text().strip()
            if text != "max":
                reclaimable = _inactive_file_bytes(folder / "memory.stat")
                free_bytes.append(int(text) - int((folder / used).read_text()) + reclaimable)
        except (OSError, ValueError):
            continue
    return free_bytes


def _groups() -> list[tuple[Path, str, str]]:
    """Folders of the control groups, with the names of their files for the limit and the usage."""
    try:
        lines = [line.split(":", 2) for line in _CGROUP.read_text().splitlines()]
    except OSError:
        return []
    groups = []
    for number, controllers, path in (line for line in lines if len(line) == 3):
        if number == "0":
            root, names = _CGROUP_ROOT, ("memory.max", "memory.current")
        elif "memory" in controllers.split(","):
            root, names = _CGROUP_ROOT / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes")
        else:
            continue
        group = root / path.lstrip("/")
        groups += [
            (folder, *names) for folder in (group, *group.parents) if folder == root or root in folder.parents
        ]
    return groups


def _inactive_file_bytes(statistics: Path) -> int:
    """Bytes of file pages that the system drops first when a group is at its limit."""
    try:
        for line in statistics.read_text().splitlines():
            if line.startswith(("inactive_file ", "total_inactive_file ")):
                return int(line.split()[1])
    except (OSError, ValueError):
        pass
    return 0


def size_text(size_bytes: float) -> str:
    # "5.5 GiB", "120 MiB".
    return f"{size_bytes / _GIB:.1f} GiB" if size_bytes >= _GIB else f"{max(1, round(size_bytes / _MIB))} MiB"


# Memory footprint of a codec, measured on a small sample of the same gradients and scaled.
#
# The sizes of a codec's messages, tables and temporaries are proportional to the number of elements. So its
# peak on few elements, traced by Python, gives the footprint for many: `a + b · workers` bytes per element.
# It is measured only if a run could come near the available memory (`UPPER_BYTES`).


_SAMPLE_ELEMENTS = 1 << 19
"""Elements of the sample; with fewer, the tables of a tile dominate."""
_FEW, _MORE = 2, 5  # workers of the two samples


def sample_of(spec: SyntheticSpec) -> list[Gradient]:
    """Small gradients of some workers, of the kind that a spec describes."""
    elements = min(spec.elements, _SAMPLE_ELEMENTS)
    small = replace(spec, elements=elements, shapes=(), ready_shares=(), fusion=ONE_BUCKET, payload="all")
    return [buckets[0] for buckets in small.workload(_MORE, 0).gradients(0)]


def codec_footprint(codec: Codec, sample: Sequence[Gradient], is_scaled_on_way: bool = False) -> Footprint:
    # `sample`: gradients of at least 5 workers, 1-D float32, of the kind that the codec will encode.
    # `is_scaled_on_way`: the network agrees on exponents, so that no worker holds its words as integers.
    few, more = (
        _peak_bytes(codec, sample[:workers], is_scaled_on_way) / sample[0].size for workers in (_FEW, _MORE)
    )
    per_element = max(0.0, (more - few) / (_MORE - _FEW))
    return Footprint(max(0.0, few - _FEW * per_element), per_element)


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
    # Workers with the same gradient share what is made of it.
    made = Decodings() if gradients[0] is gradients[1] else None
    exchanges = [
        drive(
            encoder,
            gradient,
            Round(0, 0, workers, 0, decodings=made),
            pipelines=lambda message: is_scaled_on_way and message.scaling is not None,
        )
        for encoder, gradient in zip(encoders, gradients, strict=True)
    ]
    server = codec.server(workers, 0)
    held_objects: list[object] = []
    answers: tuple[Merged, ...] | None = None
    try:
        while True:
            # Decoded sums are not held: a worker's is the same as the others', or is let go.
            sent: list[tuple[Message, ...]] = []
            for exchange in exchanges:
                messages = exchange.send(answers)
                sent += [messages] if isinstance(messages, tuple) else []
                del messages
            if len(sent) < workers:
                return
            answers = tuple(_merge(server, [parts[part] for parts in sent]) for part in range(len(sent[0])))
            held_objects += [sent, answers]
    except (EncodeError, DecodeError, ContractError):  # the run will report it
        return


def _again(gradient: Gradient) -> list[Gradient]:
    # Stands for the gradients at kept weights.
    return [gradient.copy()]


def _merge(server: Server | None, messages: Sequence[Message]) -> Merged:
    """A merged message; of scaled words and of floats, only the memory."""
    first = messages[0]
    if server is not None and first.merge is Merge.GATHER:
        return answer_of_server(
            server, [message.words for message in messages], Request(0, 0, 0, first.label)
        )
    if first.scaling is not None:
        present = [
            message.scaling for message in messages if message.scaling is not None and not message.is_absent
        ]
        blocks = -(-first.size // first.scaling.block_elements)
        exponents = present[0].exponents if present else np.full(blocks, EXPONENT_MIN, np.int8)
        return Merged(np.zeros(first.size, np.int32), len(present), exponents)
    if first.merge is Merge.GATHER:
        return gather([message.words for message in messages])
    merged = merged_message(messages)
    return replace(merged, is_float=None if first.floats is None else np.zeros(merged.words.size, np.bool_))
