"""What the page does in a browser, and what its figures carry: numbers, titles, colours of a dark page."""

from __future__ import annotations

import base64
import csv
import hashlib
import html
import io
import itertools
import json
import os
import re
import shutil
import struct
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.text import Text

from netfold.errors import DataError, UnwrittenError
from netfold.sim.report import style
from netfold.sim.report.compare import compare
from netfold.sim.report.figures import time_spent
from netfold.sim.report.hover_text import POINTS_MAX, row_text, to_csv
from netfold.sim.report.html_page import DARK, inlined
from netfold.sim.report.html_report import build_figure, build_report
from netfold.sim.report.over_time import scores_over_time
from netfold.sim.report.ranked_bars import CAUSE_COLOURS, VariantBar, ranked_bars
from netfold.sim.report.trade_off import trade_off
from netfold.sim.results.folder import load, write_run
from netfold.sim.results.records import SeriesRecord
from tests.sim.results.builders import LOSSLESS, RING, US, page_of, reported, run_data, svg_text

EVIL = "<img src=x onerror=alert(1)></script>"
SVG = "{http://www.w3.org/2000/svg}"
TRIAL = """
const seen = {alerts: 0, files: {}};
alert = () => { seen.alerts += 1; };
const made = [];
URL.createObjectURL = (blob) => { made.push(blob); return "blob:none"; };
HTMLAnchorElement.prototype.click = function () { made.push(this.download); };
addEventListener("load", async () => {
  const table = document.querySelector("#variants table");
  const rows = () => [...table.rows].slice(1).filter((row) => !row.hidden);
  const names = () => rows().map((row) => row.cells[0].textContent);
  const time = [...table.querySelectorAll("th")].find((cell) => cell.textContent === "aggregation");
  seen.before = names();
  time.querySelector("button").click();
  seen.ascending = names();
  time.querySelector("button").click();
  seen.descending = names();
  seen.sort = time.getAttribute("aria-sort");
  const box = document.querySelector("#variants input");
  box.value = "ring-1";
  box.dispatchEvent(new Event("input"));
  seen.filtered = names();
  const figure = document.getElementById("throughput");
  const mark = figure.querySelector("[data-tip]");
  mark.dispatchEvent(new PointerEvent("pointermove", {bubbles: true, clientX: 5, clientY: 5}));
  seen.tip = document.getElementById("tip").textContent;
  figure.querySelector("svg").dispatchEvent(new KeyboardEvent("keydown", {key: "ArrowLeft"}));
  seen.last = document.getElementById("tip").textContent;
  for (const button of figure.querySelectorAll(".files button")) button.click();
  for (let at = 0; at < made.length; at += 2) seen.files[made[at + 1]] = await made[at].text();
  const checks = document.getElementById("checks");
  seen.closed = !checks.open;
  location.hash = "#checks";
  await new Promise((resolve) => addEventListener("hashchange", resolve, {once: true}));
  seen.opened = checks.open;
  seen.wide = document.documentElement.scrollWidth;
  document.documentElement.dataset.seen = JSON.stringify(seen);
});
"""


def browser() -> str:
    browser = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chromium-browser")
    if browser is None:
        told = "needs a browser: apt-get install chromium"
        pytest.fail(told) if os.environ.get("CI") == "true" else pytest.skip(told)
    return browser


@pytest.mark.processes
def test_a_browser_sorts_filters_shows_numbers_opens_and_saves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 13 variants, one with markup for a name; ring-N takes N µs less for each message."""
    command = browser()
    fakes = [replace(RING, name=f"ring-{at}", messages=(("values", 40 - at, 4000),)) for at in range(12)]
    for name in ("bound_times", "time_spent", "bytes_sent", "timeline"):
        monkeypatch.setattr(f"netfold.sim.report.figures.{name}", lambda run, labels=(): None)
    fakes.append(replace(RING, name=EVIL, messages=(("values", 5, 4000),)))
    seen = tried(command, reported(tmp_path, *fakes) / "report.html", tmp_path)
    order = [fake.name for fake in fakes]

    assert seen["before"] == seen["descending"] == order
    assert seen["ascending"] == order[::-1]
    assert seen["sort"] == "descending"
    assert seen["filtered"] == ["ring-1", "ring-10", "ring-11"]
    assert seen["tip"].startswith("ring-0 · elements ")
    assert seen["last"].startswith(EVIL)
    assert (seen["alerts"], seen["closed"], seen["opened"]) == (0, True, True)
    rows = list(csv.DictReader(io.StringIO(seen["files"]["throughput.csv"])))
    assert [row["variant"] for row in rows] == order
    saved = ElementTree.fromstring(seen["files"]["throughput.svg"].partition("\n")[2])
    assert "onerror=alert(1)></script>" in [text.text for text in saved.iter(f"{SVG}text")]
    assert "var(" not in seen["files"]["throughput.svg"]


def tried(command: str, page: Path, tmp_path: Path) -> dict[str, Any]:
    """What a browser sees and does on a page."""
    digest = base64.b64encode(hashlib.sha256(TRIAL.encode()).digest()).decode()
    text = page.read_text("utf-8").replace("script-src &#39;", f"script-src 'sha256-{digest}' &#39;")
    page.write_text(text.replace("<title>", f"<script>{TRIAL}</script><title>", 1), "utf-8")
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=4000", "--dump-dom"]
    done = subprocess.run(
        [command, *options, f"--user-data-dir={tmp_path / 'profile'}", f"file://{page}"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    recorded = re.search(r'data-seen="([^"]*)"', done.stdout)
    assert recorded, done.stderr[-2000:]
    seen: dict[str, Any] = json.loads(html.unescape(recorded[1]))
    return seen


@pytest.mark.processes
def test_a_page_of_three_runs_answers_as_compare_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ring-N takes N µs less for each message in the first run, half of that in the second."""
    command = browser()
    for name in ("bound_times", "time_spent", "bytes_sent", "timeline"):
        monkeypatch.setattr(f"netfold.sim.report.figures.{name}", lambda run, labels=(): None)
    runs = [
        [replace(RING, name=f"ring-{at}", messages=(("values", 40 - at // part, 4000),)) for at in range(6)]
        for part in (1, 2)
    ]
    evil = EVIL.removesuffix("</script>")  # a slash is before the name of a job
    runs.append([replace(LOSSLESS, name=evil, losses=(0.7, 0.6))])
    folders = [write_run(tmp_path / f"{number}", run_data(*fakes)) for number, fakes in enumerate(runs)]
    comparison = compare(folders)
    page = comparison.report(tmp_path / "page")
    text = page_of(page.parent)
    names = [f"{fake.name} of run {number}" for number, fakes in enumerate(runs, 1) for fake in fakes]

    assert comparison.report(tmp_path / "page").read_bytes() == page.read_bytes()
    told = text.replace("&#34;", "&quot;").replace("<span>; ", "; ").replace(".</span></p>", ".</p>")
    assert f'<p class="answer">{html.escape(comparison.answers[0])}.</p>' in told
    for number, folder in enumerate(folders, 1):
        assert f"run {number}: {folder}" in text
        assert text.count(f'<td class="n">{number}</td>') >= len(runs[number - 1])
    seen = tried(command, page, tmp_path)
    assert seen["before"] == names
    assert seen["ascending"][0] == names[-1]
    assert sorted(seen["filtered"]) == ["ring-1 of run 1", "ring-1 of run 2"]
    assert seen["last"].startswith(f"{evil} of run 3")
    assert (seen["alerts"], seen["closed"], seen["opened"]) == (0, True, True)
    rows = list(csv.DictReader(io.StringIO(seen["files"]["throughput.csv"])))
    assert [row["variant"] for row in rows] == names
    with pytest.raises(DataError, match="no other run to compare with"):
        compare(folders[:1] * 2).report(tmp_path / "page")
    with pytest.raises(DataError, match="is a run or a sweep"):
        comparison.report(folders[0])


def test_a_figure_carries_its_numbers(tmp_path: Path) -> None:
    """RING sends 2 buckets of 1000 elements in 2 · 64 µs of aggregation a step."""
    folder = reported(tmp_path, replace(RING, name=EVIL, losses=(0.7, 0.6)), LOSSLESS)
    for path in sorted((folder / "figures").iterdir()):
        root = ElementTree.fromstring(path.read_bytes())
        titles = [title.text or "" for title in root.iter(f"{SVG}title")]
        (table,) = (element.text or "" for element in root.iter(f"{SVG}metadata"))
        rows = list(csv.DictReader(io.StringIO(table)))
        assert titles
        assert len(titles) == len(rows)
        assert any(EVIL in title for title in titles)
        assert {EVIL} <= {row["variant"] for row in rows} <= {EVIL, "lossless"}
    sent = ElementTree.fromstring((folder / "figures" / "bytes.svg").read_bytes())
    assert f"{EVIL} · values · size 8.00 kB" in [title.text for title in sent.iter(f"{SVG}title")]
    page = (folder / "report.html").read_bytes()
    assert page.count(b"<script") == 1
    assert b"<img" not in page
    assert build_report(folder).read_bytes() == page


def test_rows_as_text_and_as_a_table() -> None:
    rows = [
        {"variant": "=1+1", "time_us": 1500.0, "busy_share": 0.5},
        {"variant": 'a "b", c', "size_bytes": 2e6, "rank": 3, "time_us": None},
    ]

    assert [*map(row_text, rows)] == ["=1+1 · time 1.50 ms · busy 50.0 %", 'a "b", c · size 2.00 MB · rank 3']
    assert to_csv(rows) == (
        'variant,time_us,busy_share,size_bytes,rank\n\'=1+1,1500.0,0.5,,\n"a ""b"", c",,,2000000.0,3\n'
    )
    assert to_csv([]) == ""


def test_a_figure_in_a_page_has_ids_of_its_own_and_colours_of_the_page() -> None:
    svg = (
        '<?xml version="1.0"?>\n<svg width="9pt"><style>*{}</style><path id="m" d="M 0.123456 1"/>'
        '<g id="unused"><use xlink:href="#m" style="fill: #ffffff"/></g>'
        "<text>fill: #ffffff 0.123456</text></svg>"
    )
    drawn = str(inlined("bytes", svg.encode())["svg"])

    assert '<path id="bytes-m" d="M 0.12 1"/>' in drawn
    assert '<g><use xlink:href="#bytes-m" style="fill: var(--ffffff,#ffffff)"/></g>' in drawn
    assert "<text>fill: #ffffff 0.123456</text>" in drawn
    assert "<style>" not in drawn


def test_long_lines_have_few_marks(tmp_path: Path) -> None:
    losses = tuple(1 / (1 + step) for step in range(70))
    folder = reported(tmp_path, replace(RING, steps=70, losses=losses))
    table = ElementTree.fromstring((folder / "figures" / "training.svg").read_bytes()).find(f"{SVG}metadata")

    assert table is not None
    assert 3 * POINTS_MAX // 2 < (table.text or "").count("\n") <= 3 * POINTS_MAX + 1


def test_a_figure_for_a_paper_has_its_width_and_the_same_bytes(tmp_path: Path) -> None:
    folder = write_run(tmp_path, run_data(RING, LOSSLESS))
    narrow = build_figure(folder, "throughput")
    first = narrow.read_bytes()

    assert narrow == folder / "figures" / "throughput-3.3in.pdf"
    assert re.findall(rb"/MediaBox \[ 0 0 ([\d.]+) ", first) == [b"237.6"]
    assert b"Date" not in first
    assert build_figure(folder, "throughput").read_bytes() == first
    assert b"/MediaBox [ 0 0 504 " in build_figure(folder, "bytes", 7).read_bytes()
    for name, told in (("learning", "no figure 'learning'"), ("training", "'training' has nothing to show")):
        with pytest.raises(DataError, match=told):
            build_figure(folder, name, 7)


def test_a_figure_for_a_document_is_that_of_the_page_in_any_width(tmp_path: Path) -> None:
    folder, out = reported(tmp_path, RING, LOSSLESS), tmp_path / "throughput.svg"

    assert build_figure(folder, "throughput", out=out) == out
    assert out.read_bytes() == (folder / "figures" / "throughput.svg").read_bytes()
    assert b'width="504pt"' in build_figure(folder, "throughput", 7, out).read_bytes()
    assert build_figure(folder, "throughput", out=tmp_path / "a.pdf").read_bytes().startswith(b"%PDF")
    with pytest.raises(DataError, match=r"throughput.jpg: figures are written as SVG, PDF or PNG") as refused:
        build_figure(folder, "throughput", out=tmp_path / "throughput.jpg")
    assert refused.value.hint == "use a name that ends in .svg or .pdf or .png"
    with pytest.raises(UnwrittenError, match="cannot write"):
        build_figure(folder, "throughput", out=tmp_path / "missing" / "throughput.svg")


def test_a_figure_for_slides_has_300_dots_per_inch_and_the_same_bytes(tmp_path: Path) -> None:
    """By PNG's IHDR and pHYs: 300 dots per inch are 11,811 per metre."""
    folder = write_run(tmp_path, run_data(RING, LOSSLESS))
    first = build_figure(folder, "throughput", out=tmp_path / "a.png").read_bytes()

    assert first[:16] == b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"
    assert struct.unpack(">I", first[16:20]) == (9 * 300,)
    assert b"pHYs" + struct.pack(">IIB", 11811, 11811, 1) in first
    assert b"tEXt" not in first
    assert build_figure(folder, "throughput", out=tmp_path / "b.png").read_bytes() == first


def test_in_a_paper_fonts_are_readable_and_hatches_tell_colours_apart(tmp_path: Path) -> None:
    run = load(write_run(tmp_path, run_data(RING, LOSSLESS)))
    with style.house_style(3.3):
        figure = time_spent(run, style.label_colours(["index", "values"]))
        assert figure is not None
        style.to_pdf(figure)
    looks = {(patch.get_facecolor(), patch.get_hatch()) for patch in figure.axes[0].patches}
    shown = {(patch.get_facecolor(), patch.get_hatch()) for patch in figure.legends[0].get_patches()}

    assert looks == shown
    assert len({colour for colour, _ in looks}) == len({hatch for _, hatch in looks}) == len(looks) == 5
    assert {7.0 <= text.get_fontsize() <= 9.0 for text in figure.findobj(Text)} == {True}


def numbers(folder: Path, figure: str) -> list[dict[str, str]]:
    root = ElementTree.fromstring((folder / "figures" / f"{figure}.svg").read_bytes())
    return list(csv.DictReader(io.StringIO(root.findtext(f"{SVG}metadata"))))


def test_what_happened_over_time_and_how_long_messages_took(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Links that are less busy are not drawn; RING's messages take 64 µs, LOSSLESS's 4 and 16."""
    for name in ("throughput", "bound_times", "time_spent", "bytes_sent", "timeline"):
        monkeypatch.setattr(f"netfold.sim.report.figures.{name}", lambda run, labels=(): None)
    series = [
        SeriesRecord("ring", quantity, where, 1000 + US * at, 1000 + US * (at + 1), value)
        for quantity, where, values in (
            ("link busy", "h0->s0", (0.5, 1.0)),
            ("link busy", "s0->h0", (0.1, 0.1)),
            ("longest queue", "", (12.0, 0.0)),
        )
        for at, value in enumerate(values)
    ]
    folder = reported(tmp_path, replace(RING, steps=8), replace(LOSSLESS, steps=8), series=series)
    over_time, messages = numbers(folder, "network"), numbers(folder, "messages")

    assert [(row["link"], row["time_us"], row["busy_share"], row["queue_us"]) for row in over_time] == [
        *(("h0->s0", "0.5", "0.5", ""), ("h0->s0", "1.5", "1.0", "")),
        *(("", "0.5", "", "12.0"), ("", "1.5", "", "0.0")),
    ]
    assert {row["variant"] for row in messages} == {"lossless"}
    slow = [float(row["messages_share"]) for row in messages if float(row["time_us"]) > 10]
    assert min(slow) == pytest.approx(0.55)  # half of them take 4 µs


def test_variants_that_are_nowhere_better_are_hollow(tmp_path: Path) -> None:
    fakes = [replace(LOSSLESS, name="small"), replace(RING, name="worse", nmse=(0.5, 0.5))]
    fakes.append(replace(RING, name="exact", nmse=(0.0, 0.0)))
    with style.house_style():
        figure = trade_off(load(write_run(tmp_path, run_data(*fakes))))
        assert figure is not None
        hollow = [line.get_markerfacecolor() == "none" for line in figure.axes[0].lines]
        same = replace(RING, name="too", nmse=(0.0, 0.0))
        assert trade_off(load(write_run(tmp_path / "same", run_data(fakes[2], same)))) is None

    assert hollow == [False, True, False]


def test_scores_over_time_say_when_the_target_is_reached(tmp_path: Path) -> None:
    """A step of ring takes 168 µs, one of quick 88 µs."""
    dense = replace(RING, accuracies=(0.5, 0.95), target=0.9, metric="accuracy", losses=(2.0, 1.0))
    fakes = [dense, replace(dense, name="quick", messages=LOSSLESS.messages, accuracies=(0.4, 0.8))]
    folder = reported(tmp_path, *fakes)
    rows = numbers(folder, "accuracy")

    assert [(row["variant"], row["time_us"], row["accuracy"]) for row in rows if row["accuracy"]] == [
        *(("ring", "168.0", "0.5"), ("ring", "336.0", "0.95")),
        *(("quick", "88.0", "0.4"), ("quick", "176.0", "0.8")),
    ]
    assert [(row["variant"], row["time_to_target_us"]) for row in rows if row["time_to_target_us"]] == [
        ("ring", "336.0")
    ]
    assert "missed" in svg_text((folder / "figures" / "accuracy.svg").read_bytes())
    page = (folder / "report.html").read_text("utf-8")
    assert page.index('id="accuracy"') < page.index("<nav>")


def test_without_a_target_scores_are_those_when_the_first_variant_ends(tmp_path: Path) -> None:
    dense = replace(RING, accuracies=(0.5, 0.95), losses=(2.0, 1.0))
    quick = replace(dense, name="quick", messages=LOSSLESS.messages, accuracies=(0.4, 0.8))
    run = load(write_run(tmp_path, run_data(dense, quick)))
    run.summary["variants"][1]["scores"][1]["range"] = [0.7, 0.85]
    with style.house_style():
        figure = scores_over_time(run)
    assert figure is not None
    scores, answers = figure.axes

    assert answers.get_title("left") == "accuracy after 176 µs"
    assert [label.get_text() for label in answers.get_yticklabels()] == ["quick", "ring"]
    assert [*answers.lines[0].get_xdata()] == [0.7, 0.85]
    assert {text.get_text() for text in answers.texts} == {"80.0 %", "50.0 %"}
    (shade,) = [drawn for drawn in scores.collections if isinstance(drawn, PolyCollection)]
    assert shade.get_paths()[0].contains_points([(176, 0.75), (88, 0.5)], radius=1e-6).tolist() == [
        True,
        False,
    ]


def lab(colour: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """CIELAB of an sRGB colour under D65 (IEC 61966-2-1, CIE 15)."""
    encoded = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    linear = np.where(encoded <= 0.04045, encoded / 12.92, ((encoded + 0.055) / 1.055) ** 2.4)
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    x, y, z = np.cbrt(to_xyz @ linear / to_xyz.sum(axis=1))  # none is as dark as the curve's straight part
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("page", [{}, DARK])
def test_a_colour_has_one_meaning(page: Mapping[str, str]) -> None:
    """Those of variants, phases, messages and causes differ by four times what is just noticed (2.3)."""
    meanings = (
        *style.VARIANT_COLOURS,
        *style.PHASE_COLOURS.values(),
        *style.KNOWN_LABELS.values(),
        *(colour for colour in CAUSE_COLOURS.values() if colour),
    )
    shown = [page.get(colour.lower(), colour) for colour in meanings]
    pairs = itertools.combinations(map(lab, shown), 2)

    assert min(float(np.linalg.norm(first - second)) for first, second in pairs) > 4 * 2.3


def test_a_logarithmic_axis_has_no_formulas_for_labels(tmp_path: Path) -> None:
    """Of 40 µs and 680 µs, between which there is one power of ten."""
    bars = [VariantBar("a", 40.0, "", ()), VariantBar("b", 680.0, "", ())]
    with style.house_style():
        figure = ranked_bars(bars, "times")
        assert figure is not None
        labels = svg_text(style.to_svg(figure))

    assert "100 µs" in labels
    assert not [label for label in labels if "$" in label]


def test_sizes_of_messages_have_heat_maps_and_lines_that_predictions_go_on_from(tmp_path: Path) -> None:
    """Two networks, two collectives, two sizes: 4 kB and 40 kB, as simulated; 1 MB as predicted."""
    names = list(itertools.product(("small", "large"), ("star", "mesh"), ("ring", "switch")))
    fakes = [
        replace(RING, name="-".join(name), buckets=1, elements=1000 if name[0] == "small" else 10_000)
        for name in names
    ]
    found: Any = run_data(*fakes).summary
    for variant, name in zip(found["variants"], names, strict=True):
        keys = ("workload", "topology", "collective")
        variant["axes"] = [list(pair) for pair in zip(keys, name, strict=True)]
        variant["setup"] = {"workload": {"elements": variant["metrics"]["elements"]}}
        variant["metrics"] |= {"cost_usd": 1e5 if name[1] == "star" else 2e5, "predicted_time_us": 30.0}
        variant["predictions"] = [[1e3, 10.0], [1e6, 530.0]]
    folder = reported(tmp_path, *fakes, summary=found)
    took_us = found["variants"][-1]["metrics"]["aggregation_time_us"]

    grid = svg_text((folder / "figures" / "grid.svg").read_bytes())
    assert [text for text in grid if text in ("small", "large")] == ["small", "large"]
    sizes = numbers(folder, "sizes")
    assert {row["is"] for row in sizes} == {"simulated", "predicted"}
    # By the closed form, 500 µs more than with 40 kB.
    predicted = [float(row["time_us"]) for row in sizes if row["is"] == "predicted" and row["time_us"]]
    assert predicted == [pytest.approx(took_us + 500.0, rel=1e-6)] * 4
    rates = [row for row in sizes if row["algbw_bytes_per_s"] and row["size_bytes"] == "1000000.0"]
    assert float(rates[0]["algbw_bytes_per_s"]) == pytest.approx(1e12 / predicted[0], rel=1e-6)
    costs = numbers(folder, "cost")
    assert {(row["variant"], row["cost_usd"]) for row in costs} >= {
        ("star-ring", "100000.0"),
        ("mesh-switch", "200000.0"),
    }
    page = (folder / "report.html").read_text("utf-8")
    assert page.index('id="grid"') < page.index('id="sizes"') < page.index('id="cost"')
