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

from netfold.sim.errors import DataError
from netfold.sim.files import durable as files
from netfold.sim.files.foreign import UnreadableError, read_bytes
from netfold.sim.files.process import require_threads
from netfold.sim.report import words
from netfold.sim.results.reader import TABLE_BYTES_MAX, TEXT_BYTES_MAX
from netfold.sim.results.verdicts import GOOD, kind
from netfold.sim.results.writer import to_json
from netfold.sim.sweep.figures import HEADLINES, Grid, metric_title, sweep_figures, value_text

if TYPE_CHECKING:
    from rich.table import Table

FORMAT = 1
NAME, TABLE = "sweep.json", "points.parquet"
ROWS_MAX = 100  # of a table of the report
_TIMES = ("iteration_time_us", "aggregation_time_us")
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
    """Fill a sweep's folder: the files, `sweep.json` with the digest of its table, figures and report."""
    for name, one in contents.items():
        files.write_file(folder / name, one)
    tables = {TABLE: hashlib.sha256(contents[TABLE]).hexdigest()}
    files.write_file(folder / NAME, to_json({"format": FORMAT, **content, "tables": tables}))
    write_report(load_sweep(folder))


def write_report(sweep: Sweep) -> Path:
    """Write `figures/*.svg` and `report.html` of a sweep's folder from its table; returns the report."""
    drawn = sweep_figures(sweep.grid)
    (sweep.path / "figures").mkdir(exist_ok=True)
    for name, svg in drawn.items():
        files.write_file(sweep.path / "figures" / name, svg)
    files.sync_folder(sweep.path / "figures")
    report = sweep.path / "report.html"
    files.write_file(report, _render(sweep, drawn).encode())
    return report


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
        fastest_by=metric_title(_time_metric(grid)),
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


def _time_metric(grid: Grid) -> str:
    """The time that variants are compared by: of a whole step, or of its aggregation where that is all."""
    whole, aggregation = _TIMES
    return aggregation if grid.done[whole].null_count() == grid.done.height else whole


def fastest(grid: Grid) -> Iterator[dict[str, Any]]:
    """For every point, over its seeds: the fastest variant whose checks hold, and its lead over the first."""
    columns = [column for _, column in grid.keys]
    names = grid.values("variant")
    if len(names) < 2 or not columns:
        return
    metric = _time_metric(grid)
    good = grid.done.filter(pl.col("verdict").str.split(":").list.first().is_in(GOOD))
    means = (
        good.filter(pl.col(metric).is_not_null())
        .group_by(*columns, "variant", maintain_order=True)
        .agg(pl.col(metric).mean())
    )
    for group in means.partition_by(columns, maintain_order=True):
        best = group.sort(metric, maintain_order=True).row(0, named=True)
        first = group.filter(pl.col("variant") == names[0])
        base = first[metric][0] if first.height else None
        yield {
            "key": [value_text(column, best[column]) for column in columns],
            "variant": best["variant"],
            "time": words.time(best[metric]),
            "times": words.times(words.ratio(base, best[metric])),
        }


def sweep_table(sweep: Sweep) -> Table:
    """The fastest variant of every point, or of the first points of many."""
    from rich.table import Table
    from rich.text import Text

    first = sweep.content["variants"][0]
    keys = [path for path, _ in sweep.grid.keys]
    table = Table(*keys, "fastest", metric_title(_time_metric(sweep.grid)), f"× {first}")
    for row in itertools.islice(fastest(sweep.grid), ROWS_MAX):
        cells = (*row["key"], row["variant"], row["time"], row["times"])
        table.add_row(*map(Text, cells))  # Text: brackets in a name are not markup
    return table
