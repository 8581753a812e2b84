"""The figure of training shows the records: totals by hand, lines against the tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from netfold.sim.report import style
from netfold.sim.report.learning import curves, learning
from netfold.sim.results.reader import Run, load
from netfold.sim.results.writer import write_run
from tests.sim.results.builders import LOSSLESS, RING, Fake, run_data

# A step of RING takes 168 us. Of each of two buckets a worker sends 4000 + 100 bytes and receives 4000 + 200;
# of each of LOSSLESS's, which take 88 us, it sends 900 and receives 1000.
RING_BYTES, LOSSLESS_BYTES = 2 * (4100 + 4200), 2 * (900 + 1000)
TRAINED = replace(RING, steps=4, losses=(2.0, 1.5, 1.2, 1.1), accuracies=(None, 0.5, None, 0.75))
SPARSE = replace(LOSSLESS, steps=4, losses=(2.0, 1.6, 1.4, 1.3), accuracies=(None, 0.25, None, 0.5))


@pytest.fixture(autouse=True)
def house_style() -> Iterator[None]:
    with style.house_style():
        yield


def run_of(tmp_path: Path, *fakes: Fake) -> Run:
    return load(write_run(tmp_path, run_data(*fakes)))


def drawn(run: Run) -> Figure:
    figure = learning(run)
    assert figure is not None
    return figure


def panels(figure: Figure, columns: int = 3) -> list[list[Axes]]:
    """Axes by row."""
    axes = figure.get_axes()
    return [axes[first : first + columns] for first in range(0, len(axes), columns)]


def points(axes: Axes) -> list[tuple[list[float], list[float]]]:
    return [
        (np.asarray(line.get_xdata()).tolist(), np.asarray(line.get_ydata()).tolist()) for line in axes.lines
    ]


def test_totals_by_hand(tmp_path: Path) -> None:
    rows = curves(run_of(tmp_path, TRAINED, replace(LOSSLESS, name="untrained"))).to_dict(as_series=False)

    assert rows == {
        "variant": ["ring"] * 4,
        "step": [0, 1, 2, 3],
        "loss": [2.0, 1.5, 1.2, 1.1],
        "test_metric": [None, "accuracy", None, "accuracy"],
        "test_score": [None, 0.5, None, 0.75],
        "steps": [1, 2, 3, 4],
        "bytes": [RING_BYTES * steps for steps in (1, 2, 3, 4)],
        "bytes_before": [RING_BYTES * steps for steps in (0, 1, 2, 3)],
        "time_us": [168.0, 336.0, 504.0, 672.0],
        "time_before_us": [0.0, 168.0, 336.0, 504.0],
    }


def test_losses_lie_before_their_step_and_tests_after_it(tmp_path: Path) -> None:
    losses, tests = panels(drawn(run_of(tmp_path, TRAINED, SPARSE)))
    per_step = ((1, 1), (RING_BYTES, LOSSLESS_BYTES), (168.0, 88.0))

    for axes, sizes in zip(losses, per_step, strict=True):
        for (across, up), size, fake in zip(points(axes), sizes, (TRAINED, SPARSE), strict=True):
            assert across == [size * steps for steps in (0, 1, 2, 3)]
            assert up == list(fake.losses)
    for axes, sizes in zip(tests, per_step, strict=True):
        for (across, up), size, fake in zip(points(axes), sizes, (TRAINED, SPARSE), strict=True):
            assert across == [2 * size, 4 * size]
            assert up == [score for score in fake.accuracies if score is not None]


def test_every_line_is_in_view_and_in_the_legend(tmp_path: Path) -> None:
    names = [f"variant-{number}" for number in range(10)]
    figure = drawn(run_of(tmp_path, *(replace(TRAINED, name=name) for name in names)))

    assert [text.get_text() for text in figure.legends[0].get_texts()] == names
    looks = {
        (line.get_color(), line.get_marker(), str(line.get_linestyle()))
        for line in figure.legends[0].get_lines()
    }
    assert len(looks) == len(names)
    for row in panels(figure):
        for axes in row:
            (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
            assert len(axes.lines) == 10
            for across, up in points(axes):
                assert all(left <= value <= right for value in across)
                assert all(low <= value <= high for value in up)


def test_perplexities_are_plain_numbers_and_targets_dotted_lines(tmp_path: Path) -> None:
    """Values far apart on a logarithmic axis, near ones not; the target is in view."""
    worse = replace(TRAINED, metric="perplexity", target=90.0, accuracies=(None, 600.0, None, 100.0))
    near = replace(worse, accuracies=(None, 120.0, None, 100.0))
    for fake, scale in ((worse, "log"), (near, "linear")):
        (_, tests) = panels(drawn(run_of(tmp_path / scale, fake)))
        assert tests[0].get_title("left") == "perplexity on held-out data"
        for axes in tests:
            assert axes.get_yscale() == scale
            low, high = axes.get_ylim()
            assert low < 90 < max(score for score in fake.accuracies if score is not None) < high
            assert [points(axes)[1][1]] == [[90.0, 90.0]]
    shares = panels(drawn(run_of(tmp_path / "shares", replace(TRAINED, target=0.9))))[1]
    assert all(axes.get_ylim()[1] > 0.9 for axes in shares)
    assert shares[0].yaxis.get_major_formatter()(0.5) == "50 %"  # type: ignore[operator]


def test_what_ends_far_apart_has_a_logarithmic_axis(tmp_path: Path) -> None:
    small = replace(SPARSE, messages=(("values", 1, 8),))
    near = panels(drawn(run_of(tmp_path / "near", TRAINED, TRAINED_TOO)))
    far = panels(drawn(run_of(tmp_path / "far", TRAINED, small)))

    assert [axes.get_xscale() for axes in near[0]] == ["linear"] * 3
    assert [axes.get_xscale() for axes in far[0]] == ["linear", "log", "linear"]
    assert [axes.get_xscale() for axes in far[1]] == ["linear", "log", "linear"]
    assert far[0][1].get_xlim() == far[1][1].get_xlim()


TRAINED_TOO = replace(TRAINED, name="too")


def test_a_loss_that_explodes_leaves_the_others_in_view(tmp_path: Path) -> None:
    wild = replace(TRAINED, name="wild", losses=(2.0, 40.0, 1e9, float("nan")))
    losses, _ = panels(drawn(run_of(tmp_path, TRAINED, wild)))

    assert losses[0].get_ylim()[1] < 3
    assert losses[0].get_yscale() == "linear"
    assert losses[0].get_ylim()[0] < 1.1


def test_tasks_are_named_as_the_scenario_names_them(tmp_path: Path) -> None:
    data = run_data(TRAINED, SPARSE)
    for entry, model in zip(data.summary["variants"], ("mlp", "ncf"), strict=True):
        workload: dict[str, Any] = {"kind": "training", "model": model}
        entry["setup"] = {"workload": workload | ({"data": "digits"} if model == "mlp" else {})}
    rows = panels(drawn(load(write_run(tmp_path, data))))

    assert [row[0].get_title(loc="left").partition(":")[0] for row in rows] == [
        *["mlp on digits"] * 2,
        *["ncf"] * 2,
    ]
    assert [len(row[0].lines) for row in rows] == [1, 1, 1, 1]


def test_without_two_trained_steps_there_is_no_figure(tmp_path: Path) -> None:
    assert learning(run_of(tmp_path / "untrained", RING)) is None
    assert learning(run_of(tmp_path / "one", replace(RING, steps=1, losses=(2.0,)))) is None
