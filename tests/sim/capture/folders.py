"""Recordings made by hand, from the description of the format and without its writer."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

TENSORS = [
    {"name": "fc.weight", "shape": [2, 3], "dtype": "float32", "layout": "dense"},
    {"name": "fc.bias", "shape": [2], "dtype": "float16", "layout": "dense"},
    {"name": "table", "shape": [4, 2], "dtype": "float32", "layout": "rows"},
]
READY = [40, 30, 60]  # ns of rank 0; those of rank 1 are 5 later


def safetensors_bytes(arrays: dict[str, Any]) -> bytes:
    """A safetensors file: the length of the header, the header, the data."""
    names = {"float32": "F32", "float16": "F16", "int64": "I64"}
    header, data = {}, b""
    for name, array in arrays.items():
        raw = np.ascontiguousarray(array).tobytes()
        header[name] = {
            "dtype": names[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [len(data), len(data) + len(raw)],
        }
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + data


def arrays_of(step: int, rank: int) -> dict[str, Any]:
    """The gradients of a rank and step: whole numbers that differ."""
    base = 100 * step + 10 * rank
    return {
        "fc.weight": np.arange(base, base + 6, dtype=np.float32).reshape(2, 3),
        "fc.bias": np.array([base + 0.5, -base], np.float16),
        "table": np.array([[base, 1], [2, 3]], np.float32),
        "table@rows": np.array([rank % 3, 3], np.int64),
    }


def dense_of(step: int, rank: int) -> Any:
    """The same as one vector, in the order of the tensors."""
    arrays = arrays_of(step, rank)
    table = np.zeros((4, 2), np.float32)
    table[arrays["table@rows"]] = arrays["table"]
    return np.concatenate(
        [arrays["fc.weight"].reshape(-1), arrays["fc.bias"].astype(np.float32), table.reshape(-1)]
    )


def rank_step(step: int, rank: int, content: bytes) -> dict[str, Any]:
    """An entry of trace.json."""
    ready = [time + 5 * rank for time in READY]
    return {
        "file": f"s{step}r{rank}.safetensors",
        "bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
        "before_ns": 7,
        "forward_end_ns": 18,
        "backward_start_ns": 20,
        "backward_end_ns": 70,
        "synced_ns": 90,
        "ready_ns": ready,
        "bucket_ready_ns": [max(ready[:2]), ready[2]],
    }


def write_recording(folder: Path, steps: int = 2, ranks: int = 2) -> dict[str, Any]:
    """A whole recording; returns what its trace.json says."""
    folder.mkdir(parents=True)
    listed = []
    for step in range(steps):
        own = []
        for rank in range(ranks):
            content = safetensors_bytes(arrays_of(step, rank))
            one = rank_step(step, rank, content)
            (folder / one["file"]).write_bytes(content)
            own.append(one)
        listed.append({"step": step + 1, "ranks": own})
    trace = {
        "format": "netfold trace 1",
        "model": "Tiny",
        "world_size": ranks,
        "tensors": TENSORS,
        "buckets": [[0, 1], [2]],
        "steps": listed,
        "later": "keys that are not known are not read",
    }
    (folder / "trace.json").write_text(json.dumps(trace))
    return trace
