"""Hints for names that are not known."""

from __future__ import annotations

from netfold.spelling import did_you_mean, names_hint


def test_hints() -> None:
    names = ("plain", "tofino2")

    assert did_you_mean("tofino3", names) == "did you mean 'tofino2'? "
    assert did_you_mean("xyz", names) == ""
    assert names_hint("tofino3", names) == "did you mean 'tofino2'? known: plain, tofino2"
    assert names_hint("xyz", names, "allowed") == "allowed: plain, tofino2"
    assert names_hint("tofino3", names, "programs", most=1) == "did you mean 'tofino2'? programs: plain"
