"""Writing figures and a report into the folder that they are of, and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from netfold.errors import DataError, UnwrittenError
from netfold.sim.files import durable as files


def write_pages(folder: Path, drawn: Mapping[str, bytes], report: str) -> Path:
    """Write `figures/*.svg` and `report.html`; returns the path of the report.

    Raises
    ------
    DataError
        Something else has one of these names: a link, which may lead out of the folder, a file or a folder.
    UnwrittenError
        The folder cannot be written.
    """
    figures, page = folder / "figures", folder / "report.html"
    if figures.is_symlink() or (figures.exists() and not figures.is_dir()):
        raise _other(figures, "a link" if figures.is_symlink() else "a file", "a folder")
    for path in (page, *(figures / name for name in drawn)):
        if path.is_dir() and not path.is_symlink():
            raise _other(path, "a folder", "a file")
    try:
        figures.mkdir(exist_ok=True)
        for name, svg in drawn.items():
            files.write_file(figures / name, svg)
        files.sync_folder(figures)
        files.write_file(page, report.encode())
    except OSError as error:
        raise UnwrittenError(f"cannot write {folder}: {error.strerror or error}", "free space") from error
    return page


def _other(path: Path, found: str, wanted: str) -> DataError:
    return DataError(
        f"{path}: is {found}, {wanted} is to be written there", "remove it, and repeat the command"
    )
