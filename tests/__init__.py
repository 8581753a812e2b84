"""Tests of netfold; `tests.reference` has the plain-Python oracles."""

from pathlib import Path

ROOT = Path(__file__).parents[1]  # of the repository
