"""Figures of one run agree with each other, and each row is about its own variant."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

from matplotlib.colors import to_hex

from netfold.sim.report.figures import bytes_sent, time_spent
from netfold.sim.report.style import PHASE_COLOURS, house_style, label_colours
from netfold.sim.results import load, write_run
from tests.sim.results.builders import LOSSLESS, RING, reported, run_data


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


def test_a_message_has_one_colour_in_all_figures_of_a_run(tmp_path: Path) -> None:
    """Also where figures have different messages: those without payload are not in that of bytes."""
    names = [f"table {number}" for number in range(12)]
    many = replace(
        LOSSLESS, messages=tuple((name, 4, 40 * (number % 2)) for number, name in enumerate(names))
    )
    folder = reported(tmp_path, RING, many)
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
