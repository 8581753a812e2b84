"""Reports are written into their folders alone, one thread draws at a time, notebooks show results once."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import matplotlib
import pytest

from netfold.sim.errors import DataError
from netfold.sim.report import style, timeline
from netfold.sim.report.html import build_report
from netfold.sim.report.learning import TASKS_MAX, learning
from netfold.sim.report.shown import Shown
from netfold.sim.report.table import results_table
from netfold.sim.results import load, write_run
from tests.sim.results.builders import RING, Fake, reported, run_data, summary


@pytest.fixture
def write(tmp_path: Path, plain: None) -> Callable[..., Path]:
    def write(*fakes: Fake, **changes: Any) -> Path:
        return reported(tmp_path, *fakes, **changes)

    return write


def test_a_link_in_the_place_of_figures_is_refused(write: Callable[..., Path], tmp_path: Path) -> None:
    folder, outside = write(RING), tmp_path / "outside"
    outside.mkdir()
    for target in (outside, tmp_path / "missing"):
        place = folder / "figures"
        os.rename(place, folder / "old") if not place.is_symlink() else place.unlink()
        place.symlink_to(target)

        with pytest.raises(DataError) as caught:
            build_report(folder)

        assert str(caught.value) == (
            f"{place}: is a link, a folder is to be written there\n  remove it, and repeat the command"
        )
        (folder / "old").rename(folder / f"old-{target.name}") if (folder / "old").exists() else None
        assert list(outside.iterdir()) == []
        assert not (tmp_path / "missing").exists()


def test_what_has_the_place_of_a_figure_or_of_the_report_is_named(
    write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write(RING)
    page = folder / "report.html"
    page.unlink()
    page.mkdir()
    with pytest.raises(DataError, match=r"report\.html: is a folder, a file is to be written there"):
        build_report(folder)
    page.rmdir()
    monkeypatch.setattr("netfold.sim.report.html.figures", lambda run: {"bytes.svg": b"<svg/>"})
    figure = folder / "figures" / "bytes.svg"
    figure.mkdir()
    with pytest.raises(DataError, match=r"bytes\.svg: is a folder, a file is to be written there"):
        build_report(folder)
    figure.rmdir()
    os.rename(folder / "figures", folder / "old")
    (folder / "figures").write_text("a file")
    with pytest.raises(DataError, match="figures: is a file, a folder is to be written there"):
        build_report(folder)
    (folder / "figures").unlink()
    page.symlink_to(folder / "missing")

    assert build_report(folder).read_text().startswith("<!doctype html>")
    assert not page.is_symlink()


def test_threads_draw_one_after_the_other_and_leave_the_settings_as_they_were() -> None:
    inside, leave, order = threading.Event(), threading.Event(), list[str]()

    def first() -> None:
        with style.house_style():
            inside.set()
            leave.wait(10)
            order.append("first")

    def second() -> None:
        inside.wait(10)
        with style.house_style():
            order.append("second")

    with matplotlib.rc_context({"font.size": 23.0}):
        threads = [threading.Thread(target=one) for one in (first, second)]
        for thread in threads:
            thread.start()
        inside.wait(10)
        threads[1].join(0.2)
        leave.set()
        for thread in threads:
            thread.join(10)

        assert order == ["first", "second"]
        assert matplotlib.rcParams["font.size"] == 23.0


def test_a_notebook_shows_a_result_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a kernel, a console of rich displays what it prints, unless it is told not to."""
    shown: list[Any] = []
    module = ModuleType("IPython.display")
    module.display = lambda *things, **_: shown.append(things)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)

    class Result(Shown):
        def table(self) -> Any:
            return results_table({"scenario": "quick", "seed": 7, **summary(RING)})

    html = Result()._repr_html_()

    assert shown == []
    assert html.count("│ ring ") == 1
    assert "monospace" in html
    assert "│ ring " in str(Result())
    assert shown == []


def test_the_time_line_has_an_axis_for_the_first_sixty_of_many_jobs(tmp_path: Path) -> None:
    fakes = [replace(RING, name=f"shared/job-{number}", steps=1) for number in range(300)]
    run = load(write_run(tmp_path, run_data(*fakes)))
    with style.house_style():
        drawn = timeline.timeline(run, style.label_colours(["values"]))

    assert drawn is not None
    assert len(drawn.axes) == 60
    assert drawn.get_suptitle() == "What each worker did in step 0, in the first 60 of 300"


def test_the_training_of_many_jobs_is_drawn_of_the_first(tmp_path: Path) -> None:
    fakes = [replace(RING, name=f"shared/job-{number}", losses=(2.0, 1.0)) for number in range(30)]
    with style.house_style():
        drawn = learning(load(write_run(tmp_path, run_data(*fakes))))

    assert drawn is not None
    assert len(drawn.axes) == 3 * TASKS_MAX
    assert drawn.axes[0].get_title(loc="left").startswith("The first 10 of 30 jobs. job-0: training loss")
