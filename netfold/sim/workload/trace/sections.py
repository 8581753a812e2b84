"""The keys of recordings in a scenario."""

from __future__ import annotations

from typing import Literal

from netfold.sim.keys.fields import Count, Share
from netfold.sim.keys.section import Section
from netfold.sim.workload.fusion_weighing import AnyFusion, ShortFusion


class Trace(Section):
    """Gradients and times recorded from a real training by `netfold capture`; nothing is trained."""

    kind: Literal["trace"]
    path: str
    """The recorded folder, relative to the scenario file. There must be as many workers as ranks."""
    steps: Count | None = None
    """Optimizer steps; by default those of the recording. Further steps start again at its first."""
    times: Literal["recorded", "device"] = "recorded"
    """recorded: forward and backward take the recorded times, of each rank and step, whatever the device;
    what a rank did between two steps, such as the optimizer, counts to forward. device: the device's times;
    gradients are ready after the recorded shares of backward."""
    fusion: AnyFusion | None = None
    """Which layers are sent together, as one bucket; by default the recorded buckets."""
    bucket: ShortFusion = None
    """Short for fusion by this size: {kind: size, bytes: …}."""


class ChakraTrace(Section):
    """Compute times and all-reduces of a Chakra execution trace (MLCommons), with random gradients."""

    kind: Literal["chakra"]
    path: str
    """The trace of one rank, relative to the scenario file: .et, .et.gz, or .json as chakra_jsonizer or the
    feeder writes it. All workers compute as this rank does."""
    steps: Count | None = None
    """Optimizer steps; by default those of the trace. Further steps start again at its first."""
    times: Literal["recorded", "device"] = "recorded"
    """recorded: computations take their durations in the trace, whatever the device; device: the device's
    times; gradients are ready after the trace's shares of backward."""
    element_bytes: Literal[1, 2, 4, 8] = 4
    """Bytes of an element of the traced all-reduces; the gradients here are float32."""
    group: str | None = None
    """Only all-reduces of this process group (pg_name); needed where the trace has those of several."""
    density: Share = 1.0
    """Share of non-zero elements at each worker."""
    pattern: Literal["iid", "rows", "columns", "blocks"] = "iid"
    """Which elements are zero together: iid: each on its own; rows, columns: whole rows or columns; blocks:
    runs as long as a row."""
    row_elements: Count = 64
    """Elements of a row."""
    overlap: Share = 0.0
    """Share of a worker's non-zero positions that all workers have in common."""
    distribution: Literal["normal", "lognormal", "loguniform", "integer"] = "normal"
    """Distribution of the non-zero elements."""
    fusion: AnyFusion | None = None
    """Which all-reduces are sent together, as one bucket; by default each is a bucket."""
    bucket: ShortFusion = None
    """Short for fusion by this size: {kind: size, bytes: …}."""
