"""The engine's page names the purposes of its draws, as the code does: numbers on a page drift unnoticed."""

import re

from netfold.homomorphic.kernels import purposes
from tests import ROOT

PAGE = (ROOT / "sim/engine/README.md").read_text("utf-8")
DRAWS = re.findall(r"mix\(([^)…]*)", PAGE)


def test_every_draw_on_the_page_has_a_purpose_that_exists() -> None:
    named = {name for draw in DRAWS for name in re.findall(r"\b[A-Z][A-Z_]+\b", draw)}

    assert len(DRAWS) > 25
    assert sorted(name for name in named if not isinstance(getattr(purposes, name, None), int)) == []


def test_no_draw_on_the_page_has_a_number_in_the_place_of_a_purpose() -> None:
    numbered = [draw for draw in DRAWS if re.search(r"(^|(seed|key|h), )\d+(,|$| \+)", draw)]

    assert numbered == []
