"""What the report and the figures say, and that they say it safely."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast
from xml.etree import ElementTree

import matplotlib
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_hex

from netfold.errors import DataError
from netfold.sim.plan.plan import Reference
from netfold.sim.report import figures as timeline
from netfold.sim.report import style, words
from netfold.sim.report.compare import results_table
from netfold.sim.report.figures import Bar, _choose, _tracks, bytes_sent, time_spent
from netfold.sim.report.html_report import _unheld, build_report
from netfold.sim.report.result_display import Shown
from netfold.sim.report.style import PHASE_COLOURS, house_style, label_colours
from netfold.sim.report.training_curves import TASKS_MAX, learning
from netfold.sim.results.folder import RunData, RunFolder, load, write_run
from netfold.sim.results.records import CheckRecord
from tests.sim.results.builders import (
    LOSSLESS,
    RING,
    Fake,
    checks,
    reported,
    run_data,
    summary,
    svg_text,
    terminal,
)


@pytest.fixture
def report(tmp_path: Path, plain: None) -> Callable[..., str]:
    """The text of a report without figures."""

    def write(*fakes: Fake, **changes: Any) -> str:
        return (reported(tmp_path, *fakes, **changes) / "report.html").read_text("utf-8")

    return write


FIGURES = "throughput bound_times time_spent bytes_sent job_chart timeline utilisation learning"


@pytest.fixture
def drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """The folder of a run's report with some of its figures alone, by their functions: drawing takes long."""

    def draw(names: str, *fakes: Fake) -> Path:
        for name in {*FIGURES.split()} - {*names.split()}:
            monkeypatch.setattr(f"netfold.sim.report.figures.{name}", lambda run, labels=(): None)
        return reported(tmp_path, *fakes)

    return draw


class Balance(HTMLParser):
    """Checks that every element that is opened is closed."""

    VOID = frozenset({"meta", "img", "br"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.rows: list[int] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag not in self.VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append(0)
        if tag in ("td", "th"):
            self.rows[-1] += 1

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_every_variant_and_check_is_in_the_report(report: Callable[..., str]) -> None:
    text = report(RING, replace(LOSSLESS, verdict="fail"), sets=("workers=2", "seed=7"))

    for word in (*("ring", "lossless", "sum_is_right", "conservation"), "20 packets sent, 20 accounted for"):
        assert word in text
    assert "1 of 4 checks failed" in text
    assert (
        '<li class="detail"><b>lossless</b>, sum_is_right: round 3: element 17 is 5, should be 4</li>' in text
    )
    assert "<li>hosts forward nothing</li>" in text
    assert "<pre>netfold run scenario.yaml --seed 7 --set workers=2 --set seed=7</pre>" in text
    assert "h0-&gt;s0" in text


def test_steps_are_compared_where_rules_of_fusion_differ(report: Callable[..., str]) -> None:
    rules = [SETUP | {"workload": {"fusion": {"kind": kind}}} for kind in ("omgs", "mg_wfbp")]

    def text(*setups: dict[str, Any]) -> str:
        return report(RING, LOSSLESS, summary=summary_with(run_data(RING, LOSSLESS), *setups))

    for setups in (rules, (rules[0], rules[0])):
        assert "lossless has the shortest step: 88.0 µs, 1.91 × as fast as ring (168 µs)" in text(*setups)
    assert "omgs}" in text(*rules)


def test_markup_in_a_record_is_text(report: Callable[..., str]) -> None:
    evil = "<script>alert(1)</script>"
    text = report(RING, checks=[CheckRecord("ring", evil, "fail", evil)], approximations=(evil,))

    assert text.count("<script") == 1  # the page's own
    assert text.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 3


def test_markup_in_a_name_stays_text_in_figures(drawn: Callable[..., Path]) -> None:
    name = "<b>$x_1$ & co"
    folder = drawn("throughput", replace(RING, name=name))

    assert name in svg_text((folder / "figures" / "throughput.svg").read_bytes())
    assert "<b>$x" not in (folder / "report.html").read_text("utf-8")


def test_html_is_balanced_and_its_tables_are_rectangular(report: Callable[..., str]) -> None:
    balance = Balance()
    balance.feed(report(replace(RING, losses=(0.7, 0.6)), LOSSLESS))

    assert balance.open == []
    assert sorted(set(balance.rows)) == [3, 4, 6, 7, 8]


def test_the_report_needs_no_other_file(tmp_path: Path) -> None:
    text = (reported(tmp_path) / "report.html").read_text("utf-8")
    anchors = re.findall(r'href="#([^"]*)"|url\(#([^)]*)\)', text)

    assert "src=" not in text
    assert re.findall(r'href="[^#]', text) == []
    assert anchors
    assert {text.count(f' id="{anchor or other}"') for anchor, other in anchors} == {1}


def test_a_report_can_be_built_again_from_its_folder(drawn: Callable[..., Path]) -> None:
    folder = drawn("bytes_sent timeline")
    before = (folder / "report.html").read_bytes()
    (folder / "report.html").unlink()
    (folder / "figures" / "bytes.svg").unlink()

    assert build_report(folder) == folder / "report.html"
    assert (folder / "report.html").read_bytes() == before
    assert (folder / "figures" / "bytes.svg").exists()


def test_tests_are_in_the_report_where_there_were_some(report: Callable[..., str]) -> None:
    tested = replace(RING, losses=(0.7, 0.6), accuracies=(None, 0.9123))
    found = report(tested, LOSSLESS)

    assert '<td class="n" data-value="0.9123">accuracy 91.2 %</td>' in found
    assert "Held-out data: of the last test" in found
    assert "Held-out data" not in report(replace(tested, accuracies=()), LOSSLESS)


def test_figures_say_how_much(drawn: Callable[..., Path]) -> None:
    bound = Reference("wire bound", 25e6, "rate over 32 bits")
    folder = drawn("throughput bytes_sent timeline", replace(RING, references=(bound,)), LOSSLESS)
    throughput, sent, timeline = (
        svg_text((folder / "figures" / f"{name}.svg").read_bytes())
        for name in ("throughput", "bytes", "timeline")
    )

    assert {"15.6 M/s", "41.7 M/s · 2.67 ×", "wire bound", "M elements/s"} <= set(throughput)
    assert {"8.00 kB payload · compression 1.00 ×", "1.60 kB payload · compression 5.00 ×"} <= set(sent)
    assert {"ring · 168 µs", "lossless · 88.0 µs", "worker 1", "network: index"} <= set(timeline)


def test_a_step_much_shorter_than_the_others_is_magnified(drawn: Callable[..., Path]) -> None:
    """It takes 88 of 168 us or less; the inset begins a tenth of the axis behind it."""
    slow = replace(RING, messages=(("values", 4000, 4000),))
    texts = svg_text((drawn("timeline", slow, LOSSLESS) / "figures" / "timeline.svg").read_bytes())

    assert any(text.startswith("the same, magnified") for text in texts)


def test_a_run_in_which_nothing_took_time_has_no_time_line(tmp_path: Path) -> None:
    nothing = {"forward_us": 0, "backward_us": 0, "encode_us": 0, "decode_us": 0}
    folder = reported(tmp_path, Fake("zeros", (("values", 0, 0),), **nothing))

    assert sorted(path.name for path in (folder / "figures").iterdir()) == ["bytes.svg", "throughput.svg"]


def test_at_most_eight_workers_are_drawn_and_the_slowest_is_one() -> None:
    assert _choose(range(8), 5) == list(range(8))
    assert _choose(range(64), 63) == [0, 9, 18, 27, 36, 45, 54, 63]
    assert _choose(range(64), 20) == [0, 9, 20, 27, 36, 45, 54, 63]


def test_workers_that_do_the_same_share_a_lane(tmp_path: Path) -> None:
    """The last of five workers encodes 2 µs longer, more than a hundredth of the step."""
    run = load(write_run(tmp_path, run_data(RING)))
    first = run.phases.filter(worker=0)
    everyone = pl.concat([first.with_columns(pl.lit(at).alias("worker").cast(pl.Int64)) for at in range(5)])
    late = (pl.col("worker") == 4) & (pl.col("phase") == "encode")
    phases = everyone.with_columns(
        pl.when(late).then(pl.col("end_ps") + 2_000_000).otherwise("end_ps").alias("end_ps")
    )
    with house_style():
        drawn = timeline.timeline(replace(run, phases=phases), label_colours(["values"]))

    assert drawn is not None
    names = [text.get_text() for text in drawn.axes[0].texts]
    assert [name for name in names if "worker" in name] == ["workers 0–3", "worker 4"]


SETUP: dict[str, Any] = {
    "topology": {"kind": "star", "rate": "25Gbps", "hosts": 4},
    "workers": {"count": 4},
    "codec": {"kind": "none"},
    "collective": {"kind": "ring", "frame": {"words": 256, "overhead": "82B"}},
    "faults": [],
}
LOSS = {"kind": "loss", "rate": "1%", "links": ["h0->s0", "s0->*"]}


def summary_with(data: RunData, *setups: dict[str, Any]) -> dict[str, Any]:
    """A summary whose variants say what they ran, and whose scenario has a description."""
    variants = [entry | {"setup": one} for entry, one in zip(data.summary["variants"], setups, strict=True)]
    return {**data.summary, "variants": variants, "description": "A <b>question</b>."}


def test_what_was_run_is_reported_once_where_variants_share_it(report: Callable[..., str]) -> None:
    other = SETUP | {"codec": {"kind": "lossless", "load": 0.7}, "faults": [LOSS]}
    text = report(
        RING, LOSSLESS, summary=summary_with(run_data(RING, LOSSLESS), SETUP, other), sets=("seed=7",)
    )

    assert "<p>A &lt;b&gt;question&lt;/b&gt;.</p>" in text
    assert "<tr><td>topology</td><td>star: hosts 4, rate 25Gbps</td></tr>" in text
    assert "<tr><td>collective</td><td>ring: frame {overhead 82B, words 256}</td></tr>" in text
    assert "<tr><td>--set</td><td>seed=7</td></tr>" in text
    assert "<tr><th>variant</th><th>codec</th><th>faults</th></tr>" in text
    assert "<tr><td>ring</td><td>none</td><td>none</td></tr>" in text
    assert (
        "<tr><td>lossless</td><td>lossless: load 0.7</td>"
        "<td>loss: rate 1%, links [h0-&gt;s0, s0-&gt;*]</td></tr>"
    ) in text


def test_what_a_run_needs_besides_its_folder_is_reported_with_its_digest(report: Callable[..., str]) -> None:
    files = [
        {"path": "big.npz", "kept": False, "bytes": 20_000_000, "sha256": "ab" * 32},
        {"path": "small.npy", "kept": True, "bytes": 20, "sha256": "cd" * 32},
    ]
    text = report(RING, summary={**run_data(RING).summary, "inputs": files})
    again = text[text.index("Run it again") :]

    assert f'<tr><td>big.npz</td><td class="n">20000000</td><td>{"ab" * 32}</td></tr>' in again
    assert "which are not in this folder" in again
    assert "small.npy" not in text
    assert "not in this folder" not in report(RING)


def test_a_run_that_is_not_finished_says_so_and_promises_no_equal_bytes(report: Callable[..., str]) -> None:
    text = report(RING, summary={**run_data(RING).summary, "unfinished": ["b", "c"]})

    assert text.index("<b>Unfinished:</b> the run was stopped, and b, c did not run") < text.index(
        "Variants<"
    )
    assert "byte for byte" not in text
    assert "byte for byte" in report(RING)
    assert "Unfinished" not in report(RING)


@pytest.mark.parametrize("count", [9, 20, 60])
def test_no_two_labels_have_one_colour(count: int) -> None:
    labels = [f"table {number}" for number in range(count)]
    colours = label_colours([*labels, "values", "fallback"])

    assert list(colours) == [*labels, "values", "fallback"]
    assert len(set(colours.values())) == count + 2
    assert not set(colours.values()) & set(PHASE_COLOURS.values())
    assert all(re.fullmatch("#[0-9a-fA-F]{6}", colour) for colour in colours.values())


def test_variants_of_equal_loss_can_be_told_apart(drawn: Callable[..., Path]) -> None:
    same = [replace(RING, name=name, losses=(0.7, 0.6)) for name in ("one", "two", "three")]
    svg = (drawn("learning", *same) / "figures" / "training.svg").read_text("utf-8")

    assert len(set(re.findall(r"stroke-dasharray: ([^;\"]+)", svg))) >= 2


def bars_of(*spans: tuple[int, str, float, float]) -> list[Bar]:
    return [Bar(0, bucket, name, start_us, end_us) for bucket, name, start_us, end_us in spans]


def test_device_and_network_are_separate_tracks() -> None:
    """On a device that encodes: nothing overlaps there, and operations follow each other in the network."""
    device = bars_of((-1, "forward", 0, 2), (-1, "backward", 2, 5), (0, "encode", 5, 6))
    device += bars_of((-1, "backward", 6, 9), (1, "encode", 9, 10), (0, "decode", 10, 11))
    network = bars_of((0, "network: values", 6, 10), (1, "network: values", 10, 14))

    assert _tracks([*network, *reversed(device)]) == [device, network]


def test_encoding_beside_the_device_has_a_track_of_its_own() -> None:
    """Also where it does not overlap with a pass, as the decoding here."""
    passes = bars_of((-1, "forward", 0, 2), (-1, "backward", 2, 9))
    codec = bars_of((0, "encode", 3, 4), (0, "decode", 10, 11))
    network = bars_of((0, "network: values", 4, 10))

    assert _tracks([*network, *codec, *passes]) == [passes, codec, network]


def test_operations_under_way_at_once_have_tracks_of_their_own() -> None:
    spans = {0: (0, 10), 1: (2, 8), 2: (8, 12), 3: (9, 20), 4: (10, 11)}
    bars = {bucket: Bar(0, bucket, "network: values", *span) for bucket, span in spans.items()}

    expected = [[bars[0], bars[4]], [bars[1], bars[2]], [bars[3]]]
    assert _tracks(list(bars.values())) == expected


def test_a_variant_that_was_not_checked_is_said_so(report: Callable[..., str]) -> None:
    data = run_data(RING)
    unchecked = {**data.summary, "verdict": "fail"}

    assert "A variant was not checked at all." in report(RING, summary=unchecked, checks=checks(RING))


def test_a_legend_of_many_labels_leaves_room_for_the_bars(drawn: Callable[..., Path]) -> None:
    """Every row of the legend makes the figure higher, so that bars keep the height that they have."""
    many = replace(LOSSLESS, messages=tuple((f"a table of part {number}", 9, 90) for number in range(14)))

    def height_points(*fakes: Fake) -> float:
        svg = (drawn("time_spent", *fakes) / "figures" / "breakdown.svg").read_text("utf-8")
        found = re.search(r'height="([\d.]+)pt"', svg)
        assert found
        return float(found[1])

    rows_more = 6  # 17 names of up to 25 characters: 3 columns of 6 rows; one more at most than fits
    assert height_points(RING, many) - height_points(RING, LOSSLESS) >= 72 * 0.19 * (rows_more - 2)


@pytest.mark.usefixtures("plain")
def test_a_link_in_the_place_of_figures_is_refused(tmp_path: Path) -> None:
    folder, outside = reported(tmp_path, RING), tmp_path / "outside"
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
    plain: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = reported(tmp_path, RING)
    page = folder / "report.html"
    page.unlink()
    page.mkdir()
    with pytest.raises(DataError, match=r"report\.html: is a folder, a file is to be written there"):
        build_report(folder)
    page.rmdir()
    monkeypatch.setattr(
        "netfold.sim.report.html_report.figures",
        lambda run: {"bytes.svg": b'<svg width="9pt" height="9pt"/>'},
    )
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


@pytest.mark.parametrize(("nmse", "is_large"), [(0.099, False), (0.1, True)])
def test_a_large_error_is_shown_however_broad_the_table_is(nmse: float, is_large: bool) -> None:
    """Of too many columns this one is left out, but not where sums are far from the true ones."""
    long = replace(RING, name="r" * 55, steps=1, nmse=(nmse, nmse), bit_exact=False)
    lines = terminal(1000, summary(long), columns="", is_verbose=False)

    assert any("┃ nmse " in line for line in lines) == is_large
    assert any("the error of the sums of rrr" in line for line in lines) == is_large


def test_the_time_line_shows_the_first_sixty_of_many_jobs(tmp_path: Path) -> None:
    fakes = [replace(RING, name=f"shared/job-{number}", steps=1) for number in range(300)]
    run = load(write_run(tmp_path, run_data(*fakes)))
    with style.house_style():
        drawn = timeline.timeline(run, style.label_colours(["values"]))

    assert drawn is not None
    (axes,) = drawn.axes
    titles = [text.get_text() for text in axes.texts if text.get_text().startswith("shared/")]
    assert [title.partition(" · ")[0] for title in titles] == [f"shared/job-{number}" for number in range(60)]
    assert drawn.get_suptitle() == "What each worker did in step 0, in the first 60 of 300"


def test_the_training_of_many_jobs_is_drawn_of_the_first(tmp_path: Path) -> None:
    fakes = [replace(RING, name=f"shared/job-{number}", losses=(2.0, 1.0)) for number in range(30)]
    with style.house_style():
        drawn = learning(load(write_run(tmp_path, run_data(*fakes))))

    assert drawn is not None
    assert len(drawn.axes) == 3 * TASKS_MAX
    assert drawn.axes[0].get_title(loc="left").startswith("The first 10 of 30 jobs. job-0: training loss")


def legend(svg: bytes) -> dict[str, str]:
    """Fill of each entry of a figure's legend by its text."""
    (found,) = ElementTree.fromstring(svg).findall(".//*[@id='legend_1']")
    fills, entries = [], {}
    for element in found.iter():
        fill = re.search(r"fill: (#[0-9a-f]{6})", element.get("style", ""))
        if fill and element.tag.endswith("path"):
            fills.append(fill[1])
        if element.tag.endswith("text") and element.text:
            entries[element.text.removeprefix("network: ")] = fills[-1]
    return entries


def test_a_message_has_one_colour_in_all_figures_of_a_run(drawn: Callable[..., Path]) -> None:
    """Also where figures have different messages: those without payload are not in that of bytes."""
    names = [f"table {number}" for number in range(12)]
    many = replace(
        LOSSLESS, messages=tuple((name, 4, 40 * (number % 2)) for number, name in enumerate(names))
    )
    folder = drawn("bytes_sent time_spent timeline", RING, many)
    sent, spent, line = (
        legend((folder / "figures" / f"{name}.svg").read_bytes())
        for name in ("bytes", "breakdown", "timeline")
    )

    assert {*names} & sent.keys() == {*names[1::2]}
    assert label_colours(names[1::2]).items() - label_colours(names).items()  # alone they would be others
    assert {name: line[name] for name in names} == {name: spent[name] for name in names}
    assert {name: sent[name] for name in names[1::2]} == {name: spent[name] for name in names[1::2]}
    assert sent["values"] == spent["values"] == line["values"]


def test_each_bar_goes_through_a_round_in_its_own_order(tmp_path: Path) -> None:
    """Messages that two variants send in opposite order."""
    other = replace(LOSSLESS, name="other", messages=(("values", 16, 760), ("index", 4, 40)))
    run = load(write_run(tmp_path, run_data(LOSSLESS, other)))
    colours = label_colours(["index", "values"])
    with house_style():
        figure = time_spent(run, colours)
    assert figure is not None
    names = {to_hex(colour): name for name, colour in {**PHASE_COLOURS, **colours}.items()} | {
        "#ffffff": "late"
    }
    bars: dict[int, list[tuple[float, str]]] = {0: [], 1: []}
    for container in figure.axes[0].containers:
        (bar,) = container.patches
        bars[round(bar.get_y() + bar.get_height() / 2)].append(
            (bar.get_x(), names[to_hex(bar.get_facecolor())])
        )

    assert [name for _, name in sorted(bars[0])] == ["encode", "index", "values", "decode", "late"]
    assert [name for _, name in sorted(bars[1])] == ["encode", "values", "index", "decode", "late"]


def test_bytes_are_beside_each_variants_own_dense_gradient(tmp_path: Path) -> None:
    run = load(write_run(tmp_path, run_data(RING, replace(LOSSLESS, elements=500))))
    with house_style():
        figure = bytes_sent(run, label_colours(["index", "values"]))
    assert figure is not None
    (ticks,) = figure.axes[0].collections

    assert [path.vertices.tolist() for path in ticks.get_paths()] == [
        [[8.0, -0.5], [8.0, 0.5]],  # kB: 4 bytes of 2 buckets of 1000 elements
        [[4.0, 0.5], [4.0, 1.5]],
    ]


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        *((words.digits(value), text) for value, text in ((0, "0"), (9.996, "10.0"), (99.96, "100"))),
        *((words.digits(value), text) for value, text in ((-2.5, "-2.50"), (1.234e-9, "1.23e-09"))),
        *((words.scaled(size, "B"), text) for size, text in ((None, "–"), (0, "0 B"), (999, "999 B"))),
        *((words.scaled(size, "B"), text) for size, text in ((12_345_678, "12.3 MB"), (4e9, "4.00 GB"))),
        (words.scaled(2.5e15, "B"), "2.50 PB"),
        *((words.time(us), text) for us, text in ((None, "–"), (0, "0 ns"), (0.5, "500 ns"), (1, "1.00 µs"))),
        *((words.time(us), text) for us, text in ((1240, "1.24 ms"), (2e6, "2.00 s"))),
        *(
            (words.training_loss({"steps": 9, "loss_first": 2.302, "loss": loss}), f"2.30 → {text}")
            for loss, text in ((999_999.0, "999999"), (1e6, "1.00e6"), (-5e7, "-5.00e7"))
        ),
    ],
)
def test_numbers_for_people(shown: str, text: str) -> None:
    assert shown == text


@given(st.floats(min_value=1e-12, max_value=1e17))
def test_reading_a_number_back_loses_less_than_half_a_percent(value: float) -> None:
    letter_factors = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
    number, _, letter = words.scaled(value, "").partition(" ")

    assert float(number) * letter_factors[letter] == pytest.approx(value, rel=0.005001)


def test_score_of_the_last_test() -> None:
    assert words.held_out_score({"test_metric": "HR@10", "test_score": 0.3436}) == "HR@10 34.4 %"
    assert words.held_out_score({"test_metric": "accuracy", "test_score": 0.0}) == "accuracy 0 %"
    assert words.held_out_score({"test_metric": None, "test_score": None}) == "–"
    assert words.held_out_score({}) == "–"  # a folder of an earlier version


def test_scores_are_written_as_their_metric_is() -> None:
    assert words.score("accuracy", 0.5) == "50.0 %"
    assert words.score("perplexity", 443.21) == "443"
    assert words.score("loss", 0.5) == "0.500"
    assert words.score("a metric of the user's own", 0.5) == "0.500"


def test_what_it_took_to_reach_a_target() -> None:
    aimed = {"test_metric": "accuracy", "target": 0.95, "steps_to_target": None}
    reached = {**aimed, "steps_to_target": 120, "time_to_target_us": 3400.0, "bytes_to_target": 1.2e6}

    assert words.to_target(reached) == "95.0 % in 120 steps, 3.40 ms, 1.20 MB"
    assert words.to_target({**reached, "steps_to_target": 1}) == "95.0 % in 1 step, 3.40 ms, 1.20 MB"
    assert words.to_target(aimed) == "95.0 % missed"
    assert words.to_target({**aimed, "test_score": 0.932}) == "95.0 % missed (93.2 %)"
    assert words.to_target({**aimed, "test_metric": "perplexity", "target": 120.0}) == "120 missed"
    assert words.to_target({"test_metric": None, "target": 0.5, "steps_to_target": None}) == "0.500 missed"
    assert words.to_target({}) == "–"


def test_parts_of_a_step_are_in_the_order_of_a_round_and_messages_in_their_own() -> None:
    names = [
        *(("network", "values"), ("decode", ""), ("wait", ""), ("encode", "")),
        *(("network", "index"), ("rank skew", ""), ("network", "dense")),
    ]
    rows = [
        {"phase": phase, "label": label, "time_us": 2.0, "share": 0.1, "payload_bytes": 30.0}
        for phase, label in names
    ]
    found = words.parts({"buckets": 4, "breakdown": rows})

    assert [(part["phase"], part["label"]) for part in found] == [
        *(("encode", ""), ("network", "values"), ("network", "index"), ("network", "dense")),
        *(("wait", ""), ("decode", ""), ("rank skew", "")),
    ]
    assert {(part["time_us"], part["share"], part["payload_bytes"]) for part in found} == {(8.0, 0.1, 120.0)}
    assert words.parts({"buckets": None, "breakdown": None}) == []


def test_a_grid_is_a_heat_map_on_the_first_screen(tmp_path: Path) -> None:
    """RING takes 168 µs a step, LOSSLESS 88; the best of each row is bold."""
    cells = {
        ("star", "ring"): RING,
        ("star", "switch"): LOSSLESS,
        ("mesh", "ring"): RING,
        ("mesh", "switch"): RING,
    }
    fakes = [replace(fake, name="-".join(names)) for names, fake in cells.items()]
    found = run_data(*fakes).summary
    for variant, names in zip(found["variants"], cells, strict=True):  # type: ignore[call-overload]
        variant["axes"] = [["topology", names[0]], ["collective", names[1]]]
    folder = reported(tmp_path, *fakes, summary=found)
    svg = (folder / "figures" / "grid.svg").read_bytes()

    assert {"star", "mesh", "ring", "switch", "topology", "collective", "88.0 µs"} <= set(svg_text(svg))
    assert svg_text(svg).count("168 µs") == 3
    assert svg.count(b"stroke: #d55e00") == 3  # mesh has two best ones
    assert not (folder / "figures" / "cost.svg").exists()  # both networks have the same price, or none
    page = (folder / "report.html").read_text("utf-8")
    assert page.index("All 8 checks hold") < page.index('id="grid"') < page.index('id="throughput"')


def test_what_could_not_be_checked_is_told_once_for_all_variants_with_the_same_finding() -> None:
    unchecked = {"name": "sum_is_right", "verdict": "pass: sums not checked", "detail": "no words"}
    checks = [{"variant": name, **unchecked} for name in ("ring", "tree")]
    checks += [{"variant": "tree", "name": "nothing_lost", "verdict": "pass", "detail": ""}]
    checks += [{"variant": "switch", **unchecked, "verdict": "fail", "detail": "wrong"}]

    unheld = _unheld(cast(RunFolder, SimpleNamespace(checks=checks)))
    assert [(check["variant"], check["detail"], check["verdict"], check["count"]) for check in unheld] == [
        ("ring and tree", "no words", "pass: sums not checked", 2),  # not among those that failed
        ("switch", "wrong", "fail", 1),
    ]
