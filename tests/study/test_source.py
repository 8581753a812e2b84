"""Gradients of a study: made up or from a file, and what is said of wrong ones."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sim.errors import DataError, ScenarioError
from sim.study.source import file_source, synthetic_source

OPTIONS = {
    "elements": "1e3",
    "density": "10%,0.5",
    "pattern": "iid,rows",
    "row_elements": "10",
    "overlap": "0",
    "distribution": "integer",
}
WANTED = "it needs a float32 array: (elements,), the gradient of every worker, or (workers, elements)"
GRADIENTS = np.array([[0, 1, 0, 2], [0, 0, 0, 3]], np.float32)


def test_a_cell_for_each_pattern_and_density() -> None:
    source = synthetic_source(OPTIONS, workers=3, seed=1)

    assert [(cell.pattern, cell.density) for cell in source.cells] == [
        ("iid", 0.1),
        ("iid", 0.5),
        ("rows", 0.1),
        ("rows", 0.5),
    ]
    assert (source.workers, source.elements) == (3, 1000)
    for cell in source.cells:
        seen = [[gradient.copy() for gradient in gradients] for gradients in cell.rounds(2)]
        assert [len(gradients) for gradients in seen] == [3, 3]
        assert all(np.count_nonzero(one) == 1000 * cell.density for gradients in seen for one in gradients)
        assert not np.array_equal(seen[0][0], seen[1][0])
        if cell.pattern == "rows":
            assert (np.count_nonzero(seen[0][0].reshape(100, 10), axis=1) % 10 == 0).all()


def test_the_same_share_twice_is_one_cell() -> None:
    assert len(synthetic_source({**OPTIONS, "density": "1%,0.01", "pattern": "iid"}, 2, 1).cells) == 1


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        ("elements", "0", "--elements: must be at least 1, found 0\n  --elements: Elements of the gradient."),
        (
            "elements",
            "many",
            "--elements: must be a whole number, found 'many'\n  --elements: Elements of the gradient.",
        ),
        (
            "density",
            "1%,2",
            "--density: 2 is not a fraction from 0 to 1\n"
            "  use a number from 0 to 1 or a percentage, for example 0.01 or '1%'",
        ),
        (
            "pattern",
            "iid,rwos",
            "--pattern: cannot use 'rwos'\n  did you mean 'rows'? allowed: iid, rows, columns, blocks",
        ),
        ("row_elements", "[2", "--row-elements: broken YAML: "),
    ],
)
def test_a_wrong_option_is_told(key: str, text: str, message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        synthetic_source({**OPTIONS, key: text}, 2, 1)

    assert str(caught.value).startswith(message)


def test_a_gradient_for_each_worker(tmp_path: Path) -> None:
    np.save(tmp_path / "g.npy", np.asfortranarray(GRADIENTS))
    np.savez_compressed(tmp_path / "g.npz", whatever=GRADIENTS)
    for path in (tmp_path / "g.npy", tmp_path / "g.npz"):
        source = file_source(path, None, default_workers=8)
        (cell,) = source.cells

        assert (source.workers, source.elements, source.notes) == (2, 4, ())
        assert (cell.pattern, cell.density) == ("input", 3 / 8)
        for gradients in cell.rounds(2):
            assert np.array_equal(np.stack(gradients), GRADIENTS)
            assert all(gradient.flags.c_contiguous for gradient in gradients)


def test_one_gradient_for_all_workers(tmp_path: Path) -> None:
    path = tmp_path / "g.npy"
    np.save(path, GRADIENTS[0])

    source = file_source(path, 3, default_workers=8)

    assert file_source(path, None, default_workers=8).workers == 8
    assert source.notes == (
        f"all 3 workers have the one gradient of {path}: their union is no larger than it",
    )
    assert all(np.array_equal(one, GRADIENTS[0]) for one in next(source.cells[0].rounds(1)))


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (
            GRADIENTS.astype(np.float64),
            f"holds float64 values\n  {WANTED}; convert it with array.astype(numpy.float32)",
        ),
        (GRADIENTS > 0, f"holds bool values\n  {WANTED}"),
        (GRADIENTS[np.newaxis], f"holds an array of shape (1, 2, 4)\n  {WANTED}"),
        (np.float32(1), f"holds an array of shape ()\n  {WANTED}"),
        (GRADIENTS[:0], f"holds an array of shape (0, 4)\n  {WANTED}"),
        (
            np.array([[0, 1], [2, np.nan]], np.float32),
            "holds numbers that are not finite: nan at [1, 1]\n"
            "  a gradient must be finite; look for what went wrong in the step that it comes from",
        ),
    ],
)
def test_a_wrong_array_is_told(tmp_path: Path, array: Any, message: str) -> None:
    path = tmp_path / "g.npy"
    np.save(path, array)

    with pytest.raises(DataError) as caught:
        file_source(path, None, 8)

    assert str(caught.value) == f"{path}: {message}"


@pytest.mark.parametrize(
    "name", ["text.npy", "text.npz", "empty.npy", "objects.npy", "objects.npz", "cut.npz"]
)
def test_a_file_of_something_else_is_told(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    objects = np.array([{}], object)
    if name == "objects.npy":
        np.save(path, objects, allow_pickle=True)
    elif name == "objects.npz":
        np.savez(path, objects)
    elif name == "cut.npz":
        np.savez_compressed(path, np.arange(9000, dtype=np.float32))
        content = bytearray(path.read_bytes())
        content[100:4000] = bytes(3900)
        path.write_bytes(content)
    else:
        path.write_text("" if name == "empty.npy" else "hello")

    with pytest.raises(DataError) as caught:
        file_source(path, None, 8)

    assert str(caught.value) == (
        f"{path}: damaged, of Python objects, or not written by numpy.save or savez\n  {WANTED}"
    )


def test_other_files_are_told(tmp_path: Path) -> None:
    np.savez(tmp_path / "two.npz", a=GRADIENTS, b=GRADIENTS)
    np.save(tmp_path / "g.npy", GRADIENTS)
    (tmp_path / "g.pt").touch()
    (tmp_path / "folder.npy").mkdir()
    tensor = "of a PyTorch tensor: numpy.save('gradient.npy', tensor.float().cpu().numpy())"
    for name, workers, message in (
        ("none.npy", None, "cannot be read: No such file or directory\n  give the path of a file"),
        ("folder.npy", None, "cannot be read: Is a directory\n  give the path of a file"),
        ("g.pt", None, f"reads .npy and .npz files, found .pt\n  {tensor}"),
        ("two.npz", None, "holds 2 arrays: a, b\n  save the one that is meant in a file of its own"),
        ("g.npy", 3, "holds the gradients of 2 workers, --workers says 3\n  leave out --workers"),
    ):
        with pytest.raises(DataError) as caught:
            file_source(tmp_path / name, workers, 8)

        assert str(caught.value) == f"{tmp_path / name}: {message}"
