"""Headers of gradient files that no program writes: words, whatever the numbers in them; and long ones."""

from __future__ import annotations

import json
import struct
import warnings
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors

from netfold.sim.errors import DataError
from netfold.sim.workload import file_workload
from netfold.sim.workload.files.workload import file_spec

WORKERS = 2
SHAPES = {  # as NumPy's header has them; 71 axes, where NumPy allows 64
    "bools": "(True, True)",
    "none of many": f"(0, {2**62})",
    "many of none": f"({2**62}, 0)",
    "none of too many": f"(0, {2**70})",
    "none of fewer than none": f"(0, {-(2**70)})",
    "too many": f"({2**64},)",
    "a product that is too large": f"({2**31}, {2**31}, {2**31})",
    "71 axes": f"({'1, ' * 71})",
    "65 axes without elements": f"({'0, ' * 65})",
    "a fraction": "(2.0, 2)",
    "text": "('2', 2)",
    "fewer than none": "(-1, 4)",
}


def npy(shape: str, dtype: Any = "<f4", is_fortran: bool = False) -> bytes:
    """A file in NumPy's format, version 1.0, with 32 bytes of values."""
    text = f"{{'descr': {dtype!r}, 'fortran_order': {is_fortran}, 'shape': {shape}}}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + bytes(32)


def written(folder: Path, kind: str, content: bytes) -> Path:
    path = folder / f"g.{kind}"
    if kind == "npz":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("w.npy", content)
    else:
        path.write_bytes(content)
    return path


def told_by(path: Path, workers: int = WORKERS) -> str:
    with pytest.raises(DataError) as caught:
        file_workload(file_spec(path, str(path), workers), workers).gradients(0)
    return str(caught.value)


@pytest.mark.parametrize("is_fortran", [False, True])
@pytest.mark.parametrize("kind", ["npy", "npz"])
@pytest.mark.parametrize("name", SHAPES)
def test_shapes_that_no_array_has(tmp_path: Path, name: str, kind: str, is_fortran: bool) -> None:
    told = told_by(written(tmp_path, kind, npy(SHAPES[name], is_fortran=is_fortran)))

    assert f"g.{kind}: damaged" in told


@pytest.mark.parametrize("dtype", ["|V0", "|S0", ("<f4", (2,)), "|O"])
def test_types_that_no_gradient_has(tmp_path: Path, dtype: Any) -> None:
    assert "g.npy: damaged" in told_by(written(tmp_path, "npy", npy("(2, 2)", dtype)))


@pytest.mark.parametrize("second", ["w", "w.npy"])
def test_two_arrays_of_an_archive_with_the_same_name(tmp_path: Path, second: str) -> None:
    """One of them would be lost without a word."""
    path = written(tmp_path, "npz", npy("(2, 4)"))
    with warnings.catch_warnings(), zipfile.ZipFile(path, "a") as archive:
        warnings.simplefilter("ignore")  # of the same name twice
        archive.writestr(second, npy("(2, 4)"))

    assert told_by(path) == (f"{path}: holds two arrays of the name 'w'\n  give each array a name of its own")


def tensors_file(path: Path, header: str, values: bytes) -> Path:
    text = header.encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + values)
    return path


def test_a_name_that_a_safetensors_header_has_twice(tmp_path: Path) -> None:
    one = '"w": {"dtype": "F32", "shape": [2, 1], "data_offsets": [0, 8]}'
    path = tensors_file(tmp_path / "g.safetensors", f"{{{one}, {one}}}", bytes(8))

    assert "holds two arrays of the name 'w'" in told_by(path)


@pytest.mark.parametrize(("kind", "dtype"), [("F32", "<f4"), ("F16", "<f2"), ("BF16", "")])
def test_values_of_safetensors_wherever_they_lie(tmp_path: Path, kind: str, dtype: str) -> None:
    """Behind a header of any length; (steps, workers, …) of two tensors, the later one first."""
    numbers = np.arange(2 * 3 * 4 * 2, dtype=np.float32).reshape(2, 2, 3, 4) / 8
    if dtype:
        data = numbers.astype(dtype).tobytes()
    else:  # the upper half of each float32; these numbers need no more
        data = (numbers.view(np.uint32) >> 16).astype("<u2").tobytes()
    half = len(data) // 2
    described = {
        "b": {"dtype": kind, "shape": [2, 3, 4], "data_offsets": [half, 2 * half]},
        "a": {"dtype": kind, "shape": [2, 3, 4], "data_offsets": [0, half]},
    }
    path = tensors_file(tmp_path / "g.safetensors", json.dumps(described) + " " * 3, data)
    spec = file_spec(path, "g", 3, per_step=True)
    workload = file_workload(spec, 3)
    names = [tensor.name for tensor in spec.tensors]

    assert sorted(names) == ["a", "b"]
    for step in range(2):
        for worker, (flat,) in enumerate(workload.gradients(step)):
            expected = [numbers["ab".index(name), step, worker] for name in names]
            np.testing.assert_array_equal(flat, np.concatenate(expected))


def test_the_work_for_a_tensor_does_not_grow_with_their_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library looks at all tensors whenever it is asked for one: 20,000 of them took 86 s."""
    calls: Counter[str] = Counter()

    class Spy:
        def __init__(self, opened: Any) -> None:
            self._opened = opened

        def __getattr__(self, name: str) -> Any:
            calls[name] += 1
            return getattr(self._opened, name)

    opener = safetensors.safe_open
    monkeypatch.setattr(safetensors, "safe_open", lambda *args, **named: Spy(opener(*args, **named)))
    counts = []
    for number in (10, 300):
        rows = (
            f'"w{n}": {{"dtype": "F32", "shape": [2, 1], "data_offsets": [{8 * n}, {8 * n + 8}]}}'
            for n in range(number)
        )
        path = tensors_file(tmp_path / f"{number}.safetensors", f"{{{', '.join(rows)}}}", bytes(8 * number))
        calls.clear()
        workload = file_workload(file_spec(path, "g", WORKERS), WORKERS)
        assert sum(bucket.elements for bucket in workload.buckets) == number
        workload.gradients(0)
        counts.append(sum(calls.values()))

    assert counts[0] == counts[1] > 0
