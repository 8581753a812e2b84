"""The gradients of one rank and step, in a safetensors file: dense tensors, and tables by their rows.

A tensor is there by its name, in its own number type. Of a table (`layout` rows) the tensor has only the rows
with gradients, and `<name>@rows` says which, int64, rising. A tensor without a gradient is not there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from netfold.errors import DataError, shown
from netfold.sim.capture.layout import HINT, RankStep, TensorRow
from netfold.sim.files.foreign import UnreadableError, open_regular

if TYPE_CHECKING:
    from numpy.typing import NDArray

ROWS = "@rows"
_BLOCK_BYTES = 1 << 22
_NAMES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64"}


def file_name(step: int, rank: int) -> str:
    """The name of the file of a step and rank."""
    return f"step-{step:06d}-rank-{rank:04d}.safetensors"


def most_bytes(tensors: Sequence[TensorRow]) -> int:
    """The most that the file of a rank and step takes, its header aside."""
    sizes = {"float32": 4, "float16": 2, "bfloat16": 2}
    return sum(
        one.elements * sizes[one.dtype] + (8 * one.shape[0] if one.layout == "rows" else 0) for one in tensors
    )


def write_values(path: Path, gradients: Mapping[str, Any]) -> tuple[int, str]:
    """Write gradients, PyTorch tensors on the CPU by name; returns the file's bytes and SHA-256.

    Sparse tensors must be coalesced, with one sparse dimension.
    """
    from safetensors.torch import save_file

    found: dict[str, Any] = {}
    for name, gradient in gradients.items():
        if gradient.is_sparse:
            found[name] = gradient.values().contiguous()
            found[name + ROWS] = gradient.indices()[0].contiguous()
        else:
            found[name] = gradient.contiguous()
    save_file(found, str(path))
    with path.open("rb") as file:
        return path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest()


def require_digest(path: Path, sha256: str) -> None:
    """Require that a file is the one that was recorded.

    Raises
    ------
    DataError
        It cannot be read, or is another one.
    """
    try:
        with open_regular(path) as file:
            digest = hashlib.sha256()
            while block := file.read(_BLOCK_BYTES):
                digest.update(block)
    except (UnreadableError, OSError) as error:
        raise DataError(f"{path}: cannot be read: {getattr(error, 'message', error)}", HINT) from None
    if digest.hexdigest() != sha256:
        raise DataError(f"{path}: is damaged: its SHA-256 is not that of trace.json", "copy the folder again")


def read_values(path: Path, tensors: Sequence[TensorRow], step: RankStep) -> NDArray[np.float32]:
    """A rank's gradient of a step, `(elements,)` float32: the tensors one after another, zeros where none is.

    Raises
    ------
    DataError
        The file is not of these tensors.
    """
    from safetensors import SafetensorError, safe_open

    flat = np.zeros(sum(one.elements for one in tensors), np.float32)
    start = 0
    opener: Any = safe_open
    try:
        with opener(str(path), framework="pt") as opened:
            names = set(opened.keys())
            for tensor, ready_ns in zip(tensors, step.ready_ns, strict=True):
                part = flat[start : start + tensor.elements].reshape(tensor.shape)
                start += tensor.elements
                if ready_ns is not None:
                    _fill(path, part, opened, tensor, names)
    except (SafetensorError, OSError, ValueError) as error:
        raise DataError(f"{path}: damaged, or not written by safetensors: {error}", HINT) from None
    if names:
        raise DataError(f"{path}: holds {shown(min(names))}, which is no tensor of trace.json", HINT)
    return flat


def _fill(path: Path, part: NDArray[np.float32], opened: Any, tensor: TensorRow, names: set[str]) -> None:
    """Copy a tensor of the file to its part of the gradient."""
    shape = list(tensor.shape)
    if tensor.layout == "dense":
        _require(path, opened, names, tensor.name, tensor.dtype, shape)
        part[...] = opened.get_tensor(tensor.name).float().numpy()
        return
    count = _require(path, opened, names, tensor.name + ROWS, "int64", [None])
    _require(path, opened, names, tensor.name, tensor.dtype, [count, *shape[1:]])
    rows = opened.get_tensor(tensor.name + ROWS).numpy()
    if rows.size and not (rows[0] >= 0 and rows[-1] < shape[0] and (np.diff(rows) > 0).all()):
        raise DataError(f"{path}: the rows of {tensor.name} must rise from 0 to {shape[0] - 1} at most", HINT)
    part[rows] = opened.get_tensor(tensor.name).float().numpy()


def _require(
    path: Path, opened: Any, names: set[str], name: str, dtype: str, shape: Sequence[int | None]
) -> int:
    """Require a tensor of this type and shape, and cross it off; returns its first dimension."""
    if name not in names:
        raise DataError(f"{path}: has no tensor {shown(name)}, trace.json has it", HINT)
    names.remove(name)
    part = opened.get_slice(name)
    found, there = _NAMES.get(part.get_dtype(), str(part.get_dtype())), list(part.get_shape())
    fits = len(there) == len(shape) and all(
        want in (None, is_) for want, is_ in zip(shape, there, strict=True)
    )
    if found != dtype or not fits:
        wanted = tuple("any" if one is None else one for one in shape)
        raise DataError(
            f"{path}: {name} holds {found} {tuple(there)}, trace.json says {dtype} {wanted}", HINT
        )
    return int(there[0])
