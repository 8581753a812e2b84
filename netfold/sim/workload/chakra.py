"""Chakra execution traces of MLCommons: compute times and all-reduces of a training, without values.

Schema: github.com/mlcommons/chakra, schema/protobuf/et_def.proto; Sridharan et al., Chakra: Advancing
Performance Benchmarking and Co-design using Standardized Execution Traces, 2023 (arXiv 2305.14516).

`wire` reads protobuf's encoding, `read` the nodes of a file of either form, `schedule` puts them in time, and
`spec` makes a workload of them.
"""

from __future__ import annotations

import gzip
import heapq
import io
import json
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from netfold.errors import DataError, shown
from netfold.homomorphic.message import Tensor
from netfold.sim.files import UnreadableError, read_bytes
from netfold.sim.workload.fusion import Fusion
from netfold.sim.workload.layers import ELEMENTS_MAX, LAYERS_MAX, place_tensors
from netfold.sim.workload.recording import AsRecorded, PassTimes, RecordedTimes
from netfold.sim.workload.synthetic import RandomValues, SyntheticSpec

# Protobuf's wire format, as far as execution traces need it (protobuf.dev/programming-guides/encoding).


Value = int | bytes
"""A varint or a fixed number, or the bytes of what has a length."""
VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5  # types on the wire
_VARINT_BITS = 64


def varint(data: bytes, at: int) -> tuple[int, int]:
    """A number and the place after it.

    Raises
    ------
    ValueError
        The data ends inside it, or it has more than 64 bits.
    """
    number, shift = 0, 0
    while shift < _VARINT_BITS:
        if at >= len(data):
            raise ValueError("it ends inside a number")
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number & (2**_VARINT_BITS - 1), at
        shift += 7
    raise ValueError("a number has more than 64 bits")


def fields(data: bytes) -> Iterator[tuple[int, int, Value]]:
    """The fields of a message, in order: number, type on the wire, and value.

    Raises
    ------
    ValueError
        The data is no message.
    """
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        number, kind = key >> 3, key & 7
        if number == 0:
            raise ValueError("a field has the number 0")
        if kind == VARINT:
            value: Value
            value, at = varint(data, at)
        elif kind == LENGTH:
            size, at = varint(data, at)
            value, at = _take(data, at, size), at + size
        elif kind in (FIXED64, FIXED32):
            size = 8 if kind == FIXED64 else 4
            value, at = int.from_bytes(_take(data, at, size), "little"), at + size
        else:
            raise ValueError(f"a field has the type {kind}")
        yield number, kind, value


def numbers(kind: int, value: Value) -> list[int]:
    # A repeated field has one number, or all of them packed.
    if isinstance(value, int):
        return [value]
    unpacked, at = [], 0
    while at < len(value):
        number, at = varint(value, at)
        unpacked.append(number)
    return unpacked


def signed(value: int) -> int:
    # A varint has the bits of an int64 in two's complement.
    return value - 2**64 if value >= 2**63 else value


def _take(data: bytes, at: int, size: int) -> bytes:
    if at + size > len(data):
        raise ValueError("it ends inside a field")
    return data[at : at + size]


# The nodes of an execution trace: of a protobuf file, or one of the two forms of JSON.
#
# A protobuf file (`.et`, also gzipped) has messages with their lengths before them: GlobalMetadata, then a
# Node each. As JSON, `chakra_jsonizer` writes the same messages one after the other, and Chakra's feeder
# reads `{"workload_graph": [{"Id": 0, "Name": …, "NodeType": 4, …}, …]}`.


FILE_BYTES_MAX = 256 << 20  # unpacked
NODES_MAX = 2_000_000
SUFFIXES = (".et", ".et.gz", ".json")
COMPUTE, SEND, RECEIVE, COLLECTIVE = 4, 5, 6, 7  # types of nodes
ALL_REDUCE = 0  # a type of collective
_TYPES = {
    "INVALID_NODE": 0,
    "METADATA_NODE": 1,
    "MEM_LOAD_NODE": 2,
    "MEM_STORE_NODE": 3,
    "COMP_NODE": COMPUTE,
    "COMM_SEND_NODE": SEND,
    "COMM_RECV_NODE": RECEIVE,
    "COMM_COLL_NODE": COLLECTIVE,
    "STORAGE_NODE": 8,
    "BATCH_NODE": 9,
    "CHECKPOINT_NODE": 10,
}
_HINT = "give a file that Chakra's converters or generators wrote: .et, .et.gz or .json"
_DURATION_US_MAX = 10**12  # 11 days


class TraceNode(NamedTuple):
    number: int
    name: str
    kind: int
    after: tuple[int, ...]  # nodes that it depends on
    duration_us: int = 0
    is_cpu: bool = True
    comm_type: int | None = None
    comm_bytes: int | None = None
    group: str = ""


def read_nodes(path: Path) -> list[TraceNode]:
    """All nodes of a trace, in the file's order.

    Raises
    ------
    DataError
        It cannot be read, is no execution trace, is damaged, or is beyond the limits.
    """
    if not path.name.endswith(SUFFIXES):
        raise DataError(f"{path}: must be a {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]} file", _HINT)
    try:
        content = _unpack(path, read_bytes(path, FILE_BYTES_MAX))
    except UnreadableError as error:
        raise DataError(f"{path}: cannot be read: {error.message}", "give the path of a file") from None
    parsed = _json_nodes(path, content) if path.name.endswith(".json") else _wire_nodes(path, content)
    nodes: list[TraceNode] = []
    seen: set[int] = set()
    for node in parsed:
        if node.number in seen:
            raise DataError(f"{path}: two nodes have the id {node.number}", _HINT)
        if len(nodes) == NODES_MAX:
            raise DataError(f"{path}: has more than {NODES_MAX:,} nodes", "cut the trace to fewer steps")
        if not 0 <= node.duration_us <= _DURATION_US_MAX:
            raise DataError(f"{path}: node {node.number} lasts {node.duration_us} µs", _HINT)
        seen.add(node.number)
        nodes.append(node)
    if not nodes:
        raise DataError(f"{path}: has no nodes", _HINT)
    return nodes


def _unpack(path: Path, content: bytes) -> bytes:
    if content[:2] != b"\x1f\x8b":  # gzip
        return content
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
            unpacked = file.read(FILE_BYTES_MAX + 1)
    except (OSError, EOFError, zlib.error):
        raise DataError(f"{path}: is a damaged gzip file", _HINT) from None
    if len(unpacked) > FILE_BYTES_MAX:
        raise DataError(
            f"{path}: has more than {FILE_BYTES_MAX} bytes unpacked", "cut the trace to fewer steps"
        )
    return unpacked


def _wire_nodes(path: Path, content: bytes) -> Iterator[TraceNode]:
    at, index = 0, 0
    try:
        while at < len(content):
            size, at = varint(content, at)
            if at + size > len(content):
                raise ValueError("it ends inside a message")
            message, at = content[at : at + size], at + size
            if index == 0:
                _require_metadata(message)
            else:
                yield _wire_node(message)
            index += 1
    except (ValueError, TypeError) as error:
        raise DataError(f"{path}: message {index} is no part of an execution trace: {error}", _HINT) from None


def _require_metadata(message: bytes) -> None:
    """GlobalMetadata: a version, field 1, and attributes, field 2."""
    for number, kind, _ in fields(message):
        if number not in (1, 2) or kind != 2:
            raise ValueError("it does not begin with GlobalMetadata")


def _wire_node(message: bytes) -> TraceNode:
    number, name, node_kind, duration_us = 0, "", 0, 0
    after: list[int] = []
    attributes: dict[str, Any] = {}
    for key, kind, value in fields(message):
        if key in (1, 3, 7) and not isinstance(value, int):
            raise ValueError(f"field {key} of a node is no number")
        if key == 1:
            number = int(value)
        elif key == 2:
            name = _text(value)
        elif key == 3:
            node_kind = int(value)
        elif key in (4, 5):
            after += numbers(kind, value)
        elif key == 7:
            duration_us = int(value)
        elif key == 10:
            attributes.update([_attribute(value)])
    return _node(number, name, node_kind, after, duration_us, attributes)


_SIGNED, _ZIGZAG, _PLAIN = (7, 9), (15, 17), (11, 13, 19, 21, 27)  # fields of AttributeProto


def _attribute(message: int | bytes) -> tuple[str, Any]:
    """The name of an attribute, and its value if that is a number or text."""
    if not isinstance(message, bytes):
        raise ValueError("an attribute is a number")
    name, number = "", None
    for key, _, value in fields(message):
        if key == 1:
            name = _text(value)
        elif key in _SIGNED and isinstance(value, int):
            number = signed(value)
        elif key in _ZIGZAG and isinstance(value, int):
            number = (value >> 1) ^ -(value & 1)
        elif key in _PLAIN and isinstance(value, int):
            number = value
        elif key == 29:
            return name, _text(value)
    return name, number


def _text(value: int | bytes) -> str:
    if not isinstance(value, bytes):
        raise ValueError("a text is a number")
    return value.decode()


def _node(
    number: int, name: str, kind: int, after: list[int], duration_us: int, attributes: Mapping[str, Any]
) -> TraceNode:
    def whole(key: str) -> int | None:
        attribute = attributes.get(key)
        if attribute is None or (isinstance(attribute, int) and attribute >= 0):
            return None if attribute is None else int(attribute)
        raise ValueError(f"{key} of node {number} must be a whole number, found {shown(attribute)}")

    is_cpu = attributes.get("is_cpu_op")
    return TraceNode(
        number,
        name,
        kind,
        tuple(dict.fromkeys(after)),
        duration_us,
        True if is_cpu is None else bool(is_cpu),
        whole("comm_type"),
        whole("comm_size"),
        str(attributes.get("pg_name") or ""),
    )


def _json_nodes(path: Path, content: bytes) -> Iterator[TraceNode]:
    objects = list(_objects(path, content))
    first = objects[0]
    try:
        if isinstance(first.get("workload_graph"), list):
            yield from map(_feeder_node, first["workload_graph"])
        elif "nodes" in first:
            raise DataError(
                f"{path}: is PyTorch's own trace, which has no sizes of collectives",
                "convert it: chakra_trace_link, then chakra_converter PyTorch, which writes a .et file",
            )
        else:
            yield from map(_message_node, objects[1:])
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise DataError(f"{path}: a node cannot be read: {error!r:.100}", _HINT) from None


def _objects(path: Path, content: bytes) -> Iterator[dict[str, Any]]:
    """The JSON objects of a file, one after the other."""
    try:
        text = content.decode("utf-8-sig").strip()
        decoder, at = json.JSONDecoder(), 0
        while at < len(text):
            parsed, at = decoder.raw_decode(text, at)
            if not isinstance(parsed, dict):
                raise ValueError
            yield parsed
            while at < len(text) and text[at].isspace():
                at += 1
    except (ValueError, RecursionError):
        raise DataError(f"{path}: is not JSON of an execution trace", _HINT) from None
    if not text:
        raise DataError(f"{path}: is empty", _HINT)


def _message_node(fields: dict[str, Any]) -> TraceNode:
    """A Node as protobuf's JSON mapping has it: numbers of 64 bits are texts, zeros are left out."""
    kind = fields.get("type", 0)
    attributes = {}
    for attribute in fields.get("attr", ()):
        value = next((field for key, field in attribute.items() if key.endswith(("Val", "_val"))), None)
        is_number = isinstance(value, str) and not any(
            key in attribute for key in ("stringVal", "string_val")
        )
        attributes[attribute["name"]] = int(value) if is_number and value is not None else value
    after = [
        int(dependency)
        for key in ("ctrlDeps", "ctrl_deps", "dataDeps", "data_deps")
        for dependency in fields.get(key, ())
    ]
    return _node(
        int(fields.get("id", 0)),
        str(fields.get("name", "")),
        _TYPES[kind] if isinstance(kind, str) else int(kind),
        after,
        int(fields.get("durationMicros", fields.get("duration_micros", 0))),
        attributes,
    )


def _feeder_node(fields: dict[str, Any]) -> TraceNode:
    """A node of Chakra's feeder."""
    after = [int(dependency) for key in ("data_deps", "ctrl_deps") for dependency in fields.get(key, ())]
    return _node(
        int(fields["Id"]),
        str(fields.get("Name", "")),
        int(fields["NodeType"]),
        after,
        int(fields.get("runtime", 0)),
        fields,
    )


# The nodes of an execution trace in time: when each all-reduce could begin, if communication took no time.
#
# A step ends with its all-reduces: a computation that needs the result of one belongs to the next step. In a
# step there is one processor and one accelerator. Each does one computation after the other, in the order in
# which they can begin, then by their ids; nodes for the processor (`is_cpu_op`) and for the accelerator
# overlap. This is how ASTRA-sim issues nodes. Durations are those of the trace; its start times are not read,
# because they contain the communication of the machine that was traced.


_COMMUNICATION = (SEND, RECEIVE, COLLECTIVE)


class Reduction(NamedTuple):
    """An all-reduce of a step."""

    node: TraceNode
    ready_us: int
    """Microseconds from the begin of the step."""


class TracedStep(NamedTuple):
    reductions: tuple[Reduction, ...]
    """All-reduces, by the time at which they can begin."""
    forward_us: int
    """Time up to the computation just before the first all-reduce."""
    end_us: int
    """Time at which the last computation ends."""


def is_all_reduce(node: TraceNode) -> bool:
    return node.kind == COLLECTIVE and node.comm_type == ALL_REDUCE and bool(node.comm_bytes)


def steps_of(nodes: Sequence[TraceNode]) -> list[TracedStep]:
    """The steps, in order; the last has no all-reduces if computations follow those of the last step.

    Raises
    ------
    ValueError
        A node depends on one that is not there, or on itself.
    """
    nodes_by_number = {node.number: node for node in nodes}
    order = _in_order(nodes, nodes_by_number)
    step_of: dict[int, int] = {}
    members: dict[int, list[TraceNode]] = defaultdict(list)
    for node in order:
        step = 0
        for number in node.after:
            is_next = is_all_reduce(nodes_by_number[number]) and node.kind not in _COMMUNICATION
            step = max(step, step_of[number] + is_next)
        step_of[node.number] = step
        members[step].append(node)
    return [_time_step(members[step]) for step in sorted(members)]


def _in_order(nodes: Sequence[TraceNode], known: Mapping[int, TraceNode]) -> list[TraceNode]:
    """The nodes, each after those that it depends on."""
    waiting = {}
    followers: dict[int, list[int]] = defaultdict(list)
    for node in nodes:
        for number in node.after:
            if number not in known:
                raise ValueError(f"node {node.number} depends on node {number}, which is not there")
            followers[number].append(node.number)
        waiting[node.number] = len(node.after)
    ready = [number for number, count in waiting.items() if not count]
    order = []
    for number in ready:  # it grows
        order.append(known[number])
        for follower in followers[number]:
            waiting[follower] -= 1
            if not waiting[follower]:
                ready.append(follower)
    if len(order) < len(nodes):
        stuck = min(number for number, count in waiting.items() if count)
        raise ValueError(f"node {stuck} depends, by way of others, on itself")
    return order


def _time_step(members: Sequence[TraceNode]) -> TracedStep:
    """Times of one step, whose nodes wait for nothing of the steps before it."""
    nodes = {node.number: node for node in members}
    waiting = {node.number: sum(number in nodes for number in node.after) for node in members}
    followers: dict[int, list[int]] = defaultdict(list)
    for node in members:
        for number in node.after:
            followers[number].append(node.number)
    queue = [(0, number) for number, count in waiting.items() if not count]
    heapq.heapify(queue)
    begin_us: dict[int, int] = dict.fromkeys(nodes, 0)
    free_us = {True: 0, False: 0}  # the processor, the accelerator
    reductions, spans = [], []
    while queue:
        ready_us, number = heapq.heappop(queue)
        node, end_us = nodes[number], ready_us
        if is_all_reduce(node):
            reductions.append(Reduction(node, ready_us))
        elif node.kind not in _COMMUNICATION and node.duration_us:
            start_us = max(ready_us, free_us[node.is_cpu])
            end_us = free_us[node.is_cpu] = start_us + node.duration_us
            spans.append((end_us, start_us))
        for follower in followers[number]:
            begin_us[follower] = max(begin_us[follower], end_us)
            waiting[follower] -= 1
            if not waiting[follower]:
                heapq.heappush(queue, (begin_us[follower], follower))
    reductions.sort(key=lambda reduction: (reduction.ready_us, reduction.node.number))
    end_us = max((end for end, _ in spans), default=0)
    first_us = reductions[0].ready_us if reductions else end_us
    forward_us = max((start for end, start in spans if end == first_us), default=first_us)
    return TracedStep(tuple(reductions), min(forward_us, first_us), end_us)


# A workload of an execution trace: random gradients of its all-reduces' sizes, at their times.


_PS_PER_US = 10**6
_SHOWN = 6


def chakra_spec(
    path: Path,
    given: str,
    values: RandomValues,
    *,
    group: str | None = None,
    element_bytes: int = 4,
    fusion: Fusion | None = None,
    with_times: bool = True,
) -> SyntheticSpec:
    """Sizes and times of a trace, with the density and the values of `values`.

    Raises
    ------
    DataError
        The file is no execution trace, its steps sum different gradients, or nothing in it sums gradients.
    """
    nodes = read_nodes(path)
    chosen = _of_group(given, nodes, group)
    try:
        steps = steps_of(chosen)
    except ValueError as error:
        raise DataError(f"{given}: {error}", "the trace is damaged: convert it again") from None
    held_steps = [step for step in steps if step.reductions]
    if not held_steps:
        raise DataError(
            f"{given}: has no all-reduce, so there are no gradients to sum",
            "use the trace of a data-parallel training: nodes COMM_COLL_NODE with comm_type 0 and comm_size",
        )
    _require_alike(given, held_steps)
    tensors = _tensors(given, held_steps[0], element_bytes)
    names = tuple(tensor.name for tensor in tensors)
    times = RecordedTimes(names, tuple((_pass_times(step),) for step in held_steps))
    return values.of(
        elements=sum(tensor.elements for tensor in tensors),
        shapes=tensors,
        ready_shares=times.ready_shares(),
        fusion=fusion or AsRecorded(tuple((index,) for index in range(len(tensors)))),
        times=times if with_times else None,
        given=given,
        held_steps=len(held_steps),
        notes=_notes(given, chosen, steps[-1], times),
    )


def _of_group(given: str, nodes: Sequence[TraceNode], group: str | None) -> list[TraceNode]:
    """The nodes, where all-reduces of other process groups sum nothing."""
    groups = sorted({node.group for node in nodes if is_all_reduce(node)})
    if group is None:
        if len(groups) > 1:
            raise DataError(
                f"{given}: has all-reduces of {len(groups)} process groups",
                f"choose with group: {', '.join(groups)}",
            )
        return list(nodes)
    if group not in groups:
        raise DataError(
            f"{given}: has no all-reduce of the group {group!r}", f"it has: {', '.join(groups) or 'none'}"
        )
    return [
        node._replace(comm_type=None) if is_all_reduce(node) and node.group != group else node
        for node in nodes
    ]


def _require_alike(given: str, steps: Sequence[TracedStep]) -> None:
    """Require that all steps sum gradients of the same sizes."""
    first = [reduction.node.comm_bytes for reduction in steps[0].reductions]
    for index, step in enumerate(steps):
        sizes = [reduction.node.comm_bytes for reduction in step.reductions]
        if sizes != first:
            raise DataError(
                f"{given}: step {index} sums {_list_sizes(sizes)} bytes, step 0 {_list_sizes(first)}: "
                "computations that need an all-reduce begin a new step",
                "only traces of data-parallel training can be replayed: every step sums all gradients once",
            )


def _list_sizes(sizes: Sequence[int | None]) -> str:
    more = f", … ({len(sizes)} all-reduces)" if len(sizes) > _SHOWN else ""
    return ", ".join(map(str, sizes[:_SHOWN])) + more


def _tensors(given: str, step: TracedStep, element_bytes: int) -> tuple[Tensor, ...]:
    """A tensor for each all-reduce, with a name of its own."""
    if len(step.reductions) > LAYERS_MAX:
        raise DataError(
            f"{given}: a step has {len(step.reductions)} all-reduces", f"use {LAYERS_MAX} at most"
        )
    counts = Counter(reduction.node.name for reduction in step.reductions)
    tensors = []
    for index, (node, _) in enumerate(step.reductions):
        elements, remainder = divmod(node.comm_bytes or 0, element_bytes)
        if remainder:
            raise DataError(
                f"{given}: node {node.number} sums {node.comm_bytes} bytes, which are no whole elements of "
                f"{element_bytes} bytes",
                "give their size with element_bytes",
            )
        name = node.name if node.name and counts[node.name] == 1 else f"{node.name or 'all-reduce'}#{index}"
        tensors.append(Tensor(name, (elements,), name))
    if sum(tensor.elements for tensor in tensors) > ELEMENTS_MAX:
        raise DataError(f"{given}: its all-reduces have too many elements", f"use {ELEMENTS_MAX:,} at most")
    return place_tensors(tensors)


def _pass_times(step: TracedStep) -> PassTimes:
    start_us = step.forward_us
    end_us = max(step.end_us, step.reductions[-1].ready_us)
    return PassTimes(
        start_us * _PS_PER_US,
        (end_us - start_us) * _PS_PER_US,
        tuple((reduction.ready_us - start_us) * _PS_PER_US for reduction in step.reductions),
    )


def _notes(given: str, nodes: Sequence[TraceNode], last: TracedStep, times: RecordedTimes) -> tuple[str, ...]:
    """What of a trace is not replayed."""
    notes = []
    kinds = (SEND, RECEIVE, COLLECTIVE)
    if others := sum(node.kind in kinds and not is_all_reduce(node) for node in nodes):
        notes.append(f"{given}: {others} communications are no all-reduces of gradients: they take no time")
    if not last.reductions and last.end_us:
        notes.append(f"{given}: {last.end_us} µs of computations after the last all-reduce are left out")
    if not times.longest_ps:
        notes.append(f"{given}: has no compute times (duration_micros): all gradients are ready at once")
    return tuple(notes)
