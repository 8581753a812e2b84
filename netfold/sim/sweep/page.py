"""The folder of a sweep: written whole, read back, and its report, which is made from the folder alone."""

from __future__ import annotations

import base64
import hashlib
import io
import itertools
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from os.path import isfile  # that of Path raises errors on a path that is too long or not permitted
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
import polars as pl

from netfold.errors import DataError
from netfold.sim.files import durable as files
from netfold.sim.files.foreign import UnreadableError, read_bytes
from netfold.sim.files.process import require_threads
from netfold.sim.report import words
from netfold.sim.report.html import write_pages
from netfold.sim.results.folder import TABLE_BYTES_MAX, TEXT_BYTES_MAX, to_json
from netfold.sim.results.summary import GOOD, kind
from netfold.sim.sweep.grid import HEADLINES, Grid, metric_title, value_text

if TYPE_CHECKING:
    from rich.table import Table

FORMAT = 2
NAME, TABLE = "sweep.json", "points.parquet"
ROWS_MAX = 100  # of a table of the report
HEADINGS = ("fastest", "time", "which time", "baseline", "× baseline")
_DAMAGED = "the folder is damaged or was changed: run the sweep again, its finished points are kept"


@dataclass(frozen=True)
class Sweep:
    """A finished sweep, read from its folder."""

    path: Path
    content: dict[str, Any]  # of sweep.json
    version: str  # of netfold that made it
    frame: pl.DataFrame

    @property
    def grid(self) -> Grid:
        """The table with its swept keys."""
        return Grid(self.frame, tuple((key["path"], key["column"]) for key in self.content["keys"]))


def is_sweep(path: Path) -> bool:
    """Whether a path is the folder of a sweep."""
    return isfile(path / NAME)


def load_sweep(path: Path) -> Sweep:
    """Read a sweep from its folder.

    Raises
    ------
    DataError
        It is no sweep's folder, or a file is missing, damaged or of another format.
    """
    require_threads()
    if not is_sweep(path):
        raise DataError(
            f"{path}: not a sweep's folder, it has no {NAME}", "give what `netfold sweep` printed"
        )
    try:
        content = json.loads(read_bytes(path / NAME, TEXT_BYTES_MAX))
        version = json.loads(read_bytes(path / "run.json", TEXT_BYTES_MAX))["version"]
        table = read_bytes(path / TABLE, TABLE_BYTES_MAX)
        found = content["format"]
        if found != FORMAT:
            hint = "run the sweep again, or use the version in run.json"
            raise DataError(f"{path}: has format {found}, this netfold reads {FORMAT}", hint)
        if hashlib.sha256(table).hexdigest() != content["tables"][TABLE]:
            raise DataError(f"{path / TABLE}: damaged: not the bytes that {NAME} names", _DAMAGED)
    except UnreadableError as error:
        raise DataError(f"{path}: a file cannot be read: {error.message}", _DAMAGED) from None
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: damaged: {type(error).__name__}: {error}", _DAMAGED) from None
    return Sweep(path, content, str(version), pl.read_parquet(io.BytesIO(table)))


def write_sweep(folder: Path, contents: Mapping[str, bytes], content: Mapping[str, Any]) -> None:
    """Fill a sweep's folder: the files, and `sweep.json` with the digest of its table."""
    for name, one in contents.items():
        files.write_file(folder / name, one)
    tables = {TABLE: hashlib.sha256(contents[TABLE]).hexdigest()}
    files.write_file(folder / NAME, to_json({"format": FORMAT, **content, "tables": tables}))


def write_report(sweep: Sweep) -> Path:
    """Write `figures/*.svg` and `report.html` of a sweep's folder from its table; returns the report."""
    from netfold.sim.sweep.figures import sweep_figures  # late: matplotlib is slow to import

    drawn = sweep_figures(sweep.grid)
    return write_pages(sweep.path, drawn, _render(sweep, drawn))


def _render(sweep: Sweep, drawn: Mapping[str, bytes]) -> str:
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    template = environment.from_string(Path(__file__).with_name("sweep.html").read_text("utf-8"))
    grid = sweep.grid
    shown = [
        {
            "name": name.removesuffix(".svg"),
            "alt": metric_title(name.removesuffix(".svg")),
            "address": _address(svg),
        }
        for name, svg in drawn.items()
    ]
    verdict = kind(sweep.content["verdict"])
    return template.render(
        sweep=sweep.content,
        version=sweep.version,
        style=_style(),
        kind=verdict,
        counts=counts(sweep.content),
        swept=[
            {"path": path, "values": [value_text(column, value) for value in grid.values(column)]}
            for path, column in grid.keys
        ],
        without=[point for point in sweep.content["points"] if point["status"] != "done"],
        fastest=list(fastest(grid)),
        headings=HEADINGS,
        headlines=[figure for figure in shown if figure["name"] in HEADLINES],
        others=[figure for figure in shown if figure["name"] not in HEADLINES],
        rows_max=ROWS_MAX,
    )


def _style() -> str:
    """The style of a run's report."""
    from netfold.sim.report import html

    text = Path(str(html.__file__)).with_name("template.html").read_text("utf-8")
    return text.partition("<style>")[2].partition("</style>")[0]


def _address(svg: bytes) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg).decode()


def counts(content: Mapping[str, Any]) -> str:
    """How many points ended how: "33 points done, 2 failed"."""
    found = Counter(point["status"] for point in content["points"])
    parts = [f"{words.counted(found['done'], 'point')} done"]
    parts += [f"{found[status]} {status}" for status in ("failed", "skipped") if found[status]]
    return ", ".join(parts)


def fastest(grid: Grid) -> Iterator[dict[str, Any]]:
    """For every point and group of equal workload, over the seeds: the best variants, and × baseline."""
    columns = [column for _, column in grid.keys]
    if len(grid.values("variant")) < 2 or not columns:
        return
    good = grid.done.filter(pl.col("verdict").str.split(":").list.first().is_in(GOOD))
    for group in good.partition_by([*columns, "group"], maintain_order=True):
        first = group.row(0, named=True)
        means = (
            group.group_by("variant")
            .agg(pl.col(first["by"]).mean())
            .drop_nulls()
            .sort(first["by"], "variant")
        )
        if means.is_empty():
            continue
        times = dict(means.rows())
        best, *others = [words.time(time) for time in times.values()]
        tied = list(times)[: 1 + others.count(best)]
        yield {
            "key": [value_text(column, first[column]) for column in columns],
            "group": first["group"],
            "variant": " and ".join(tied) + (", a tie" if len(tied) > 1 else ""),
            "time": best,
            "by": metric_title(first["by"]),
            "baseline": first["baseline"] or words.NOTHING,
            "times": words.times(words.ratio(times.get(first["baseline"]), times[tied[0]])),
        }


def sweep_table(sweep: Sweep) -> Table:
    """The fastest variant of every point, or of the first points of many."""
    from rich.table import Table
    from rich.text import Text

    rows = list(itertools.islice(fastest(sweep.grid), ROWS_MAX))
    shown = [name for name in ("group",) if any(row[name] for row in rows)]
    cells = [*shown, "variant", "time", "by", "baseline", "times"]
    table = Table(*(path for path, _ in sweep.grid.keys), *shown, *HEADINGS)
    for row in rows:
        table.add_row(
            *map(Text, (*row["key"], *(row[name] for name in cells)))
        )  # Text: brackets are no markup
    return table
