"""How `make site` makes a site of the repository's Markdown: `sphinx-build -c docs/site . FOLDER`."""

from __future__ import annotations

import re
from pathlib import Path

from sphinx.application import Sphinx

project = "netfold"
copyright = "the netfold authors"
extensions = ["myst_parser"]
root_doc = "README"
include_patterns = ["**.md"]
exclude_patterns = [".*", "runs", "homomorphic", "sim", "switch", "topologies", "build", "dist"]
html_theme = "furo"
html_title = "netfold"
html_extra_path = ["index.html"]
html_copy_source = False
highlight_language = "none"
myst_heading_anchors = 6
myst_enable_extensions = ["html_image"]

TABLE = Path(__file__).parents[2] / "scenarios" / "README.md"
GUIDE = dict.fromkeys(re.findall(r"\((?:\.\./)+(docs/guide/[\w-]+)\.md", TABLE.read_text("utf-8")))
"""The pages of the guide, in the order of the table of scenarios."""
NAVIGATION = {
    "Guide": ["scenarios/README", *GUIDE],
    "Systems": ["docs/systems/*"],
    "Explanation": ["docs/training", "docs/sweeps"],
    "Reference": ["docs/reference", "docs/commands", "docs/api", "docs/matrix", "docs/glossary"],
    "Sources": ["CONTRIBUTING", "docs/recipes", "netfold/**/README", "tests/**", "CHANGELOG"],
}
"""All other pages by their heading in the side bar. README is the start page."""


def add_navigation(app: Sphinx, name: str, source: list[str]) -> None:
    """End the start page with what the side bar shows."""
    if name == root_doc:
        trees = (
            "\n".join([f"```{{toctree}}\n:caption: {caption}\n:hidden:\n:glob:", "", *pages, "```"])
            for caption, pages in NAVIGATION.items()
        )
        source[0] += "\n\n" + "\n\n".join(trees) + "\n"


def setup(app: Sphinx) -> None:
    app.connect("source-read", add_navigation)
