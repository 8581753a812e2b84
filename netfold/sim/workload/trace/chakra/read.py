"""The nodes of an execution trace: of a protobuf file, or one of the two forms of JSON.

A protobuf file (`.et`, also gzipped) has messages with their lengths before them: GlobalMetadata, then a Node
each. As JSON, `chakra_jsonizer` writes the same messages one after the other, and Chakra's feeder reads
`{"workload_graph": [{"Id": 0, "Name": …, "NodeType": 4, …}, …]}`.
"""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from netfold.errors import DataError, shown
from netfold.sim.files.foreign import UnreadableError, read_bytes
from netfold.sim.workload.trace.chakra.wire import WireError, fields, numbers, signed, varint

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


class Node(NamedTuple):
    """A node of a trace."""

    number: int
    name: str
    kind: int
    after: tuple[int, ...]  # nodes that it depends on
    duration_us: int = 0
    is_cpu: bool = True
    comm_type: int | None = None
    comm_bytes: int | None = None
    group: str = ""


def read_nodes(path: Path) -> list[Node]:
    """All nodes of a trace, in the file's order.

    Raises
    ------
    DataError
        It cannot be read, is no execution trace, is damaged, or is beyond the limits.
    """
    if not path.name.endswith(SUFFIXES):
        raise DataError(f"{path}: must be a {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]} file", _HINT)
    try:
        content = _unpacked(path, read_bytes(path, FILE_BYTES_MAX))
    except UnreadableError as error:
        raise DataError(f"{path}: cannot be read: {error.message}", "give the path of a file") from None
    found = _json_nodes(path, content) if path.name.endswith(".json") else _wire_nodes(path, content)
    nodes: list[Node] = []
    seen: set[int] = set()
    for node in found:
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


def _unpacked(path: Path, content: bytes) -> bytes:
    if content[:2] != b"\x1f\x8b":  # gzip
        return content
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
            found = file.read(FILE_BYTES_MAX + 1)
    except (OSError, EOFError, zlib.error):
        raise DataError(f"{path}: is a damaged gzip file", _HINT) from None
    if len(found) > FILE_BYTES_MAX:
        raise DataError(
            f"{path}: has more than {FILE_BYTES_MAX} bytes unpacked", "cut the trace to fewer steps"
        )
    return found


def _wire_nodes(path: Path, content: bytes) -> Iterator[Node]:
    at, index = 0, 0
    try:
        while at < len(content):
            size, at = varint(content, at)
            if at + size > len(content):
                raise WireError("it ends inside a message")
            message, at = content[at : at + size], at + size
            if index == 0:
                _require_metadata(message)
            else:
                yield _wire_node(message)
            index += 1
    except (WireError, UnicodeDecodeError, TypeError) as error:
        raise DataError(f"{path}: message {index} is no part of an execution trace: {error}", _HINT) from None


def _require_metadata(message: bytes) -> None:
    """GlobalMetadata: a version, field 1, and attributes, field 2."""
    for number, kind, _ in fields(message):
        if number not in (1, 2) or kind != 2:
            raise WireError("it does not begin with GlobalMetadata")


def _wire_node(message: bytes) -> Node:
    number, name, node_kind, duration_us = 0, "", 0, 0
    after: list[int] = []
    attributes: dict[str, Any] = {}
    for key, kind, value in fields(message):
        if key in (1, 3, 7) and not isinstance(value, int):
            raise WireError(f"field {key} of a node is no number")
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
        raise WireError("an attribute is a number")
    name, found = "", None
    for key, _, value in fields(message):
        if key == 1:
            name = _text(value)
        elif key in _SIGNED and isinstance(value, int):
            found = signed(value)
        elif key in _ZIGZAG and isinstance(value, int):
            found = (value >> 1) ^ -(value & 1)
        elif key in _PLAIN and isinstance(value, int):
            found = value
        elif key == 29:
            return name, _text(value)
    return name, found


def _text(value: int | bytes) -> str:
    if not isinstance(value, bytes):
        raise WireError("a text is a number")
    return value.decode()


def _node(
    number: int, name: str, kind: int, after: list[int], duration_us: int, attributes: Mapping[str, Any]
) -> Node:
    """A node with the attributes that count."""

    def whole(key: str) -> int | None:
        found = attributes.get(key)
        if found is None or (isinstance(found, int) and found >= 0):
            return None if found is None else int(found)
        raise WireError(f"{key} of node {number} must be a whole number, found {shown(found)}")

    is_cpu = attributes.get("is_cpu_op")
    return Node(
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


def _json_nodes(path: Path, content: bytes) -> Iterator[Node]:
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
    except (WireError, KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise DataError(f"{path}: a node cannot be read: {error!r:.100}", _HINT) from None


def _objects(path: Path, content: bytes) -> Iterator[dict[str, Any]]:
    """The JSON objects of a file, one after the other."""
    try:
        text = content.decode("utf-8-sig").strip()
        decoder, at = json.JSONDecoder(), 0
        while at < len(text):
            found, at = decoder.raw_decode(text, at)
            if not isinstance(found, dict):
                raise ValueError
            yield found
            while at < len(text) and text[at].isspace():
                at += 1
    except (ValueError, RecursionError):
        raise DataError(f"{path}: is not JSON of an execution trace", _HINT) from None
    if not text:
        raise DataError(f"{path}: is empty", _HINT)


def _message_node(found: dict[str, Any]) -> Node:
    """A Node as protobuf's JSON mapping has it: numbers of 64 bits are texts, zeros are left out."""
    kind = found.get("type", 0)
    attributes = {}
    for one in found.get("attr", ()):
        value = next((own for key, own in one.items() if key.endswith(("Val", "_val"))), None)
        is_number = isinstance(value, str) and not any(key in one for key in ("stringVal", "string_val"))
        attributes[one["name"]] = int(value) if is_number and value is not None else value
    after = [
        int(one) for key in ("ctrlDeps", "ctrl_deps", "dataDeps", "data_deps") for one in found.get(key, ())
    ]
    return _node(
        int(found.get("id", 0)),
        str(found.get("name", "")),
        _TYPES[kind] if isinstance(kind, str) else int(kind),
        after,
        int(found.get("durationMicros", found.get("duration_micros", 0))),
        attributes,
    )


def _feeder_node(found: dict[str, Any]) -> Node:
    """A node of Chakra's feeder."""
    after = [int(one) for key in ("data_deps", "ctrl_deps") for one in found.get(key, ())]
    return _node(
        int(found["Id"]),
        str(found.get("Name", "")),
        int(found["NodeType"]),
        after,
        int(found.get("runtime", 0)),
        found,
    )
