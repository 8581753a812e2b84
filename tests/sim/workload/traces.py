"""Execution traces written from the published schema (chakra, schema/protobuf/et_def.proto)."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any, NamedTuple

METADATA, COMP, SEND, COLLECTIVE = 1, 4, 5, 7
NAMES = {METADATA: "METADATA_NODE", COMP: "COMP_NODE", SEND: "COMM_SEND_NODE", COLLECTIVE: "COMM_COLL_NODE"}


class Given(NamedTuple):
    """A node to write; `attributes` are numbers (int64), booleans or texts."""

    number: int
    name: str
    kind: int
    data_deps: tuple[int, ...] = ()
    ctrl_deps: tuple[int, ...] = ()
    duration_us: int = 0
    attributes: tuple[tuple[str, Any], ...] = ()


def reduce(number: int, name: str, size: int, *after: int, group: str = "") -> Given:
    """An all-reduce of so many bytes."""
    named = (("pg_name", group),) if group else ()
    return Given(number, name, COLLECTIVE, after, (), 0, (("comm_type", 0), ("comm_size", size), *named))


def compute(number: int, duration_us: int, *after: int, on_cpu: bool | None = None) -> Given:
    """A computation."""
    attributes = () if on_cpu is None else (("is_cpu_op", on_cpu),)
    return Given(number, f"compute{number}", COMP, after, (), duration_us, attributes)


def number_bytes(value: int) -> bytes:
    """A varint; negative numbers as 64 bits."""
    value &= 2**64 - 1
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def field(number: int, value: int | bytes) -> bytes:
    """A field: a varint, or what has a length."""
    if isinstance(value, int):
        return number_bytes(number << 3) + number_bytes(value)
    return number_bytes(number << 3 | 2) + number_bytes(len(value)) + value


def attribute_bytes(name: str, value: Any) -> bytes:
    """AttributeProto: bool_val 27, int64_val 9, string_val 29."""
    number = {bool: 27, int: 9, str: 29}[type(value)]
    return field(1, name.encode()) + field(number, value.encode() if number == 29 else int(value))


def node_bytes(node: Given, packed: bool = True) -> bytes:
    """Node, with its dependencies packed, as proto3 writes them, or one by one."""
    found = field(1, node.number) + field(2, node.name.encode()) + field(3, node.kind)
    for key, deps in ((4, node.ctrl_deps), (5, node.data_deps)):
        if packed and deps:
            found += field(key, b"".join(map(number_bytes, deps)))
        elif not packed:
            found += b"".join(field(key, one) for one in deps)
    found += field(6, 123_456) + field(7, node.duration_us)  # start times are not to be read
    found += field(8, field(1, b"[]") + field(2, b"[]"))  # inputs
    return found + b"".join(field(10, attribute_bytes(*one)) for one in node.attributes)


def message(data: bytes) -> bytes:
    return number_bytes(len(data)) + data


def et_bytes(nodes: list[Given], packed: bool = True) -> bytes:
    """A whole file."""
    metadata = field(1, b"0.0.4") + field(2, attribute_bytes("schema", "1.0.2-chakra.1.0.0"))
    return message(metadata) + b"".join(message(node_bytes(node, packed)) for node in nodes)


def jsonizer_text(nodes: list[Given]) -> str:
    """As protobuf's MessageToJson writes messages, one after the other: 64 bits as texts, zeros left out."""
    objects: list[dict[str, Any]] = [{"version": "0.0.4"}]
    for node in nodes:
        numbers = {
            "id": node.number and str(node.number),
            "ctrlDeps": [str(dep) for dep in node.ctrl_deps],
            "dataDeps": [str(dep) for dep in node.data_deps],
            "durationMicros": node.duration_us and str(node.duration_us),
        }
        objects.append({"name": node.name, "type": NAMES[node.kind]})
        objects[-1] |= {key: value for key, value in numbers.items() if value}
        objects[-1]["attr"] = [_json_attribute(*attribute) for attribute in node.attributes]
    return "".join(json.dumps(each, indent=2) for each in objects)


def _json_attribute(name: str, value: Any) -> dict[str, Any]:
    key = {bool: "boolVal", int: "int64Val", str: "stringVal"}[type(value)]
    return {"name": name, key: str(value) if key == "int64Val" else value}


def feeder_text(nodes: list[Given]) -> str:
    """As Chakra's feeder reads JSON."""
    listed = [
        {
            "Id": node.number,
            "Name": node.name,
            "NodeType": node.kind,
            "runtime": node.duration_us,
            "data_deps": [*node.data_deps, *node.ctrl_deps],
            **dict(node.attributes),
        }
        for node in nodes
    ]
    return json.dumps({"workload_graph": listed})


def write_all(folder: Path, nodes: list[Given]) -> list[Path]:
    """The same trace in all forms."""
    contents = {
        "packed.et": et_bytes(nodes),
        "single.et": et_bytes(nodes, packed=False),
        "zipped.et.gz": gzip.compress(et_bytes(nodes), mtime=0),
        "messages.json": jsonizer_text(nodes).encode(),
        "feeder.json": feeder_text(nodes).encode(),
    }
    paths = []
    for name, content in contents.items():
        (folder / name).write_bytes(content)
        paths.append(folder / name)
    return paths


def data_parallel(
    passes: int, forward: list[int], weights: list[int], inputs: list[int], sizes: list[int]
) -> list[Given]:
    """What Chakra's text converter writes for data-parallel training.

    Backward goes from the last layer to the first: the gradient of the weights, its all-reduce, then the
    gradient of the input, which the next layer waits for. The forward pass of a layer waits for the
    all-reduce of the pass before.
    """
    nodes: list[Given] = []
    reduced: dict[int, int] = {}
    layers = range(len(forward))
    for _ in range(passes):
        before: int | None = None
        for layer in layers:
            after = [] if before is None else [before]
            after += [reduced[layer]] if layer in reduced else []
            before = len(nodes)
            nodes.append(compute(before, forward[layer], *after))
        for layer in reversed(layers):
            assert before is not None
            nodes.append(compute(len(nodes), weights[layer], before))
            weight = len(nodes) - 1
            reduced[layer] = len(nodes)
            nodes.append(reduce(len(nodes), f"layer{layer}", sizes[layer], weight))
            if layer:
                before = len(nodes)
                nodes.append(compute(before, inputs[layer], weight))
    return nodes
