"""Gradients from files."""

from __future__ import annotations

import json
import os
import struct
import tracemalloc
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
import torch
from safetensors.numpy import save_file
from safetensors.torch import save_file as save_torch_file

from netfold.errors import DataError
from netfold.sim.workload.fusion import BySize, NoFusion
from netfold.sim.workload.gradient_files import FileSpec, file_spec

WORKERS, ELEMENTS = 3, 10
GRADIENTS = np.arange(WORKERS * ELEMENTS, dtype=np.float32).reshape(WORKERS, ELEMENTS) / 4 - 3
STEPS = np.stack([GRADIENTS, -GRADIENTS])
FIRST, SECOND = GRADIENTS[:, :4].reshape(WORKERS, 2, 2), GRADIENTS[:, 4:]


def spec(path: Path, workers: int = WORKERS, **options: Any) -> FileSpec:
    return file_spec(path, path.name, workers, **options)


def gradients(path: Path, step: int = 0, workers: int = WORKERS, **options: Any) -> Any:
    """All workers' flat gradients, and the buckets' sizes."""
    workload = spec(path, workers, **options).workload(workers)
    found = [np.concatenate(buckets) for buckets in workload.gradients(step)]
    assert all(
        bucket.dtype == np.float32 and bucket.flags.c_contiguous for bucket in workload.gradients(step)[0]
    )
    return np.stack(found), [bucket.elements for bucket in workload.buckets]


def told_by(path: Path, workers: int = WORKERS, at_once: bool = True) -> str:
    """What is said of a file that cannot be used: at once, or when its gradients are asked for."""
    checked = None if at_once else spec(path, workers)
    with pytest.raises(DataError) as caught:
        _ = list(map(checked.workload(workers).gradients, range(2))) if checked else spec(path, workers)
    return str(caught.value)


NAMED = {"first": FIRST.copy(), "second": SECOND.copy()}
TORCH = {name: torch.tensor(one) for name, one in NAMED.items()}
SAVED: dict[str, Callable[[Path], object]] = {  # by kinds of files that hold the gradients
    "npy": lambda path: np.save(path, GRADIENTS),
    "npy fortran": lambda path: np.save(path, np.asfortranarray(GRADIENTS)),
    "npy half": lambda path: np.save(path, GRADIENTS.astype(np.float16)),
    "npy big-endian": lambda path: np.save(path, GRADIENTS.astype(">f4")),
    "npz": lambda path: np.savez_compressed(path, anything=GRADIENTS),
    "npz fortran": lambda path: np.savez_compressed(path, anything=np.asfortranarray(GRADIENTS)),
    "npz named": lambda path: np.savez(path, **NAMED),
    "safetensors": lambda path: save_file(NAMED, path),
    "safetensors bfloat16": lambda path: save_torch_file(
        {n: one.bfloat16() for n, one in TORCH.items()}, path
    ),
    "pt": lambda path: torch.save(torch.from_numpy(GRADIENTS), path),
    "pt named": lambda path: torch.save(TORCH, path),
}


def saved(folder: Path, kind: str) -> Path:
    """The gradients in a file of a kind."""
    path = folder / f"g.{kind.partition(' ')[0]}"
    SAVED[kind](path)
    return path


@pytest.mark.parametrize("kind", SAVED)
def test_every_kind_of_file_gives_the_same_gradients(tmp_path: Path, kind: str) -> None:
    """Quarters up to 4.25 are exact in 8 bits of precision."""
    found, buckets = gradients(saved(tmp_path, kind))

    np.testing.assert_array_equal(found, GRADIENTS)
    assert buckets == [10]


def test_a_step_has_its_own_gradients_and_after_the_last_comes_the_first(tmp_path: Path) -> None:
    np.save(tmp_path / "g.npy", STEPS)

    assert spec(tmp_path / "g.npy").steps == 2
    for step, wanted in ((0, GRADIENTS), (1, -GRADIENTS), (2, GRADIENTS)):
        np.testing.assert_array_equal(gradients(tmp_path / "g.npy", step)[0], wanted)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_steps_of_an_archive_are_read_forwards_and_backwards(tmp_path: Path, save: Any, order: Any) -> None:
    save(tmp_path / "g.npz", np.asarray(STEPS, order=order))
    workload = spec(tmp_path / "g.npz", per_step=True).workload(WORKERS)

    for step in (0, 1, 1, 0, 3, 2):
        found = np.stack([own[0] for own in workload.gradients(step)])
        np.testing.assert_array_equal(found, STEPS[step % 2])


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_an_archive_is_not_loaded_whole(tmp_path: Path, save: Any) -> None:
    """Of 32 workers' rows, 1 MiB each, two are used; its headers alone say what it holds."""
    save(tmp_path / "g.npz", np.ones((32, 1 << 18), np.float32))
    tracemalloc.start()
    found = spec(tmp_path / "g.npz", workers=2)
    of_spec = tracemalloc.get_traced_memory()[1]
    workload = found.workload(2)
    gradients = workload.gradients(0)
    of_all = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert [float(own[0].sum()) for own in gradients] == [2.0**18] * 2
    assert of_spec < 1 << 20
    assert of_all < 6 << 20


def test_a_member_that_is_damaged_is_reported_when_it_is_read(tmp_path: Path) -> None:
    """A flipped bit in the last number of an uncompressed member: only its checksum shows it."""
    path = saved(tmp_path, "npz named")
    content = bytearray(path.read_bytes())
    content[content.index(SECOND.tobytes()[-8:]) + 4] ^= 1
    path.write_bytes(content)

    assert "g.npz: damaged, of Python objects, or not written by numpy.save" in told_by(path)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("npy", "nan at [1, 7], worker 1"),
        ("npy steps", "-inf at [1, 2, 3], worker 2"),
        ("npz named", "inf at [2, 1, 0], worker 2"),
    ],
)
def test_a_number_that_is_not_finite_is_reported_with_its_place(
    tmp_path: Path, kind: str, message: str
) -> None:
    single, steps, first = GRADIENTS.copy(), STEPS.copy(), FIRST.copy()
    single[1, 7], steps[1, 2, 3], first[2, 1, 0] = np.nan, -np.inf, np.inf
    path, name = tmp_path / f"g.{kind[:3]}", "first: " if kind == "npz named" else ""
    if name:
        np.savez(path, first=first, second=SECOND)
    else:
        np.save(path, single if kind == "npy" else steps)

    assert told_by(path, at_once=False) == (
        f"{path}: {name}holds numbers that are not finite: {message}\n"
        "  a gradient must be finite; look for an error in the training step that computed it"
    )


def test_a_file_that_holds_something_else_by_now_is_reported(tmp_path: Path) -> None:
    path = saved(tmp_path, "npy")
    found = spec(path)
    np.save(path, GRADIENTS[:, :7])

    with pytest.raises(DataError, match=r"g\.npy: changed since the run began"):
        found.workload(WORKERS)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda one: one.to_sparse(), "holds a tensor of the layout sparse_coo, must be a dense one"),
        (lambda one: one.to_sparse_csr(), "holds a tensor of the layout sparse_csr, must be a dense one"),
        (lambda one: one.to("meta"), "holds a shape without values (a tensor of the device meta)"),
        (lambda one: one.double(), "holds float64 values\n  "),
    ],
)
@pytest.mark.parametrize("name", ["", "w"])
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
def test_tensors_that_cannot_be_used_are_reported(tmp_path: Path, make: Any, message: str, name: str) -> None:
    tensor = make(torch.from_numpy(GRADIENTS))
    torch.save({name: tensor} if name else tensor, tmp_path / "g.pt")
    told = told_by(tmp_path / "g.pt")

    assert f"g.pt: {name}{': ' if name else ''}{message}" in told
    assert told.endswith("; convert it with tensor.float()") == ("float64" in message)


def test_fewer_workers_take_the_first_gradients_and_named_tensors_stay_whole(tmp_path: Path) -> None:
    only, named = saved(tmp_path, "npy"), saved(tmp_path, "npz named")

    np.testing.assert_array_equal(gradients(only, workers=2)[0], GRADIENTS[:2])
    assert gradients(only, fusion=BySize(16))[1] == [4, 4, 2]
    assert gradients(named, fusion=BySize(16))[1] == [4, 6]
    assert gradients(named, fusion=BySize(20))[1] == [10]


WANTED = "a gradient file holds float32: (workers, elements), or (steps, workers, elements)"
TURNED = "did you mean the transpose? numpy.save('gradients.npy', array.swapaxes(-1, -2))"


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (
            GRADIENTS.astype(np.float64),
            f"holds float64 values\n  {WANTED}; convert it with array.astype(numpy.float32)",
        ),
        (GRADIENTS > 0, f"holds bool values\n  {WANTED}"),
        (GRADIENTS[0], f"holds an array of shape (10,)\n  {WANTED}"),
        (STEPS[None], f"holds an array of shape (1, 2, 3, 10)\n  {WANTED}"),
        (GRADIENTS[:, :0], f"holds an array of shape (3, 0)\n  {WANTED}"),
        (GRADIENTS[:2], "holds the gradients of 2 workers, 3 are needed\n  use 2 workers at most"),
        (GRADIENTS.T, f"shape (10, 3) is that of 10 workers with 3 elements each\n  {TURNED}"),
        (
            np.zeros((5000, 8), np.float32),
            f"shape (5000, 8) is that of 5000 workers with 8 elements each\n  {TURNED}",
        ),
    ],
)
def test_a_wrong_array_is_reported(tmp_path: Path, array: Any, message: str) -> None:
    path = tmp_path / "g.npy"
    np.save(path, array)
    assert told_by(path) == f"g.npy: {message}"
    np.save(path, np.ones((10, 3), np.float32))  # as many workers as there are: nothing is turned
    assert [spec(path, workers=count).elements for count in (10, 2)] == [3, 3]


DAMAGED = "damaged, of Python objects, or not written by"
NO_ARRAYS: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing.npy": (lambda path: None, "cannot be read: there is no such file"),
    "folder.npy": (lambda path: path.mkdir(), "cannot be read: it is a directory"),
    "pipe.npy": (os.mkfifo, "cannot be read: it is a pipe"),
    **{f"text.{kind}": (lambda path: path.write_text("no array"), DAMAGED) for kind in ("npy", "npz", "pt")},
    "text.safetensors": (lambda path: path.write_text("hello, this is no array at all"), DAMAGED),
    "objects.npy": (lambda path: np.save(path, np.array([{}], object), allow_pickle=True), DAMAGED),
    "objects.pt": (lambda path: torch.save({"a": Path("/")}, path), ""),
    "list.pt": (
        lambda path: torch.save([torch.ones(3, 10)], path),
        "holds list, not a tensor or tensors by name\n  torch.save(gradients, 'gradients.pt') with a tensor",
    ),
    "lies.npy": (  # a header that says more than a million times what follows
        lambda path: path.write_bytes(
            b"\x93NUMPY\x01\x00\x4c\x00"
            + b"{'descr': '<f4', 'fortran_order': False, 'shape': (3, 1000000000000)}".ljust(75)
            + b"\n"
            + bytes(120)
        ),
        "its header says float32 values of shape (3, 1000000000000), 12000000000000 bytes; 120 bytes follow",
    ),
    "g.txt": (lambda path: None, "must be a .npy, .npz, .safetensors, .pt or .pth file, found .txt"),
    "old.pt": (
        lambda path: torch.save(torch.ones(3, 10), path, _use_new_zipfile_serialization=False),
        "has PyTorch's old format, which cannot be read in parts\n"
        "  save it again: torch.save(torch.load('old.pt', weights_only=True), 'new.pt')",
    ),
}


@pytest.mark.parametrize("name", NO_ARRAYS)
def test_a_file_of_something_else_is_reported(tmp_path: Path, name: str) -> None:
    """Python objects are never loaded."""
    make, message = NO_ARRAYS[name]
    make(tmp_path / name)

    assert message in told_by(tmp_path / name)


def test_the_file_says_shapes_and_its_names_say_layers(tmp_path: Path) -> None:
    names = {"fc1.weight": (3, 2), "fc2.weight": (1, 3), "fc1.bias": (3,), "scale": (2,)}
    arrays = {
        name: np.full((WORKERS, *shape), index, np.float32)
        for index, (name, shape) in enumerate(names.items())
    }
    np.savez(tmp_path / "g.npz", **arrays)
    workload = spec(tmp_path / "g.npz", fusion=NoFusion()).workload(WORKERS)

    assert [[(one.name, one.shape, one.layer) for one in bucket.tensors] for bucket in workload.buckets] == [
        [("fc2.weight", (1, 3), "fc2")],
        [("fc1.weight", (3, 2), "fc1"), ("fc1.bias", (3,), "fc1")],
        [("scale", (2,), "scale")],
    ]
    assert [part.tolist() for part in workload.gradients(0)[1]] == [[1] * 3, [0] * 6 + [2] * 3, [3] * 2]
    assert [bucket.ready_share for bucket in workload.buckets] == [9 / 14, 12 / 14, 1.0]


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


@pytest.mark.parametrize("is_fortran", [False, True])
@pytest.mark.parametrize("kind", ["npy", "npz"])
@pytest.mark.parametrize("name", SHAPES)
def test_shapes_that_no_array_has(tmp_path: Path, name: str, kind: str, is_fortran: bool) -> None:
    told = told_by(written(tmp_path, kind, npy(SHAPES[name], is_fortran=is_fortran)), 2)

    assert f"g.{kind}: damaged" in told


@pytest.mark.parametrize("dtype", ["|V0", "|S0", ("<f4", (2,)), "|O"])
def test_types_that_no_gradient_has(tmp_path: Path, dtype: Any) -> None:
    assert "g.npy: damaged" in told_by(written(tmp_path, "npy", npy("(2, 2)", dtype)), 2)


@pytest.mark.parametrize("second", ["w", "w.npy"])
def test_two_arrays_of_an_archive_with_the_same_name(tmp_path: Path, second: str) -> None:
    """One of them would be lost without a word."""
    path = written(tmp_path, "npz", npy("(2, 4)"))
    with warnings.catch_warnings(), zipfile.ZipFile(path, "a") as archive:
        warnings.simplefilter("ignore")  # of the same name twice
        archive.writestr(second, npy("(2, 4)"))

    told = f"{path}: holds two arrays of the name 'w'\n  give each array a name of its own"
    assert told_by(path, 2) == told


def tensors_file(path: Path, header: str, values: bytes) -> Path:
    text = header.encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + values)
    return path


def test_a_name_that_a_safetensors_header_has_twice(tmp_path: Path) -> None:
    described = '"%s": {"dtype": "F32", "shape": [2, 1], "data_offsets": [%d, %d]}'
    first, twice = described % ("v", 0, 8), described % ("w", 8, 16)
    path = tensors_file(tmp_path / "g.safetensors", f"{{{first}, {twice}, {twice}}}", bytes(16))

    assert "holds two arrays of the name 'w'" in told_by(path, 2)


@pytest.mark.parametrize(("kind", "dtype"), [("F32", "<f4"), ("F16", "<f2"), ("BF16", "")])
def test_values_of_safetensors_wherever_they_lie(tmp_path: Path, kind: str, dtype: str) -> None:
    """Behind a header of any length; (steps, workers, …) of two tensors, the later one first.

    Of BF16 the values are the upper half of each float32; these numbers need no more.
    """
    numbers = np.arange(2 * 3 * 4 * 2, dtype=np.float32).reshape(2, 2, 3, 4) / 8
    halves = numbers.astype(dtype) if dtype else (numbers.view(np.uint32) >> 16).astype("<u2")
    size = halves[0].nbytes
    described = {
        name: {"dtype": kind, "shape": [2, 3, 4], "data_offsets": [begin, begin + size]}
        for name, begin in (("b", size), ("a", 0))
    }
    path = tensors_file(tmp_path / "g.safetensors", json.dumps(described) + " " * 3, halves.tobytes())
    stepwise = spec(path, per_step=True)
    workload = stepwise.workload(WORKERS)
    names = [tensor.name for tensor in stepwise.tensors]

    assert sorted(names) == ["a", "b"]
    for step in range(2):
        for worker, (flat,) in enumerate(workload.gradients(step)):
            expected = [numbers["ab".index(name), step, worker] for name in names]
            np.testing.assert_array_equal(flat, np.concatenate(expected))


def test_the_work_for_a_tensor_does_not_grow_with_their_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library looks at all tensors whenever it is asked for one: 20,000 of them took 86 s."""
    calls: list[str] = []

    class Spy:
        def __init__(self, opened: Any) -> None:
            self._opened = opened

        def __getattr__(self, name: str) -> Any:
            calls.append(name)
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
        workload = spec(path, workers=2).workload(2)
        assert sum(bucket.elements for bucket in workload.buckets) == number
        workload.gradients(0)
        counts.append(len(calls))

    assert counts[0] == counts[1] > 0
