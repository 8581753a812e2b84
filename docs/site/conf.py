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
smartquotes = False  # options begin with two hyphens
html_copy_source = False
highlight_language = "none"
myst_heading_anchors = 6
myst_enable_extensions = ["html_image"]
myst_disable_syntax = [
    "myst_line_comment",
    "myst_block_break",
    "myst_target",
]  # text in the repository's view

ROOT = Path(__file__).parents[2]
TABLE = (ROOT / "scenarios" / "README.md").read_text("utf-8")
NAVIGATION = {
    "Begin": ["docs/tutorial", "docs/how-to/README", "docs/how-to/*"],
    "Guide": ["scenarios/README", *re.findall(r"\(\.\./(docs/guide/[\w-]+)\.md", TABLE)],
    "Systems": ["docs/systems/*"],
    "Explanation": [
        "docs/training",
        "docs/sweeps",
        "docs/python",
        "docs/explanation/**/*",
    ],
    "Reference": [
        "docs/reference",
        "docs/commands",
        "docs/api",
        "docs/matrix",
        "docs/reproduced",
        "docs/glossary",
    ],
    "Sources": ["CONTRIBUTING", "docs/recipes", "netfold/**/README", "tests/**/README", "CHANGELOG"],
}
"""All pages but the start page, README, by heading of the side bar; a page that nothing names is an error."""


def pages(patterns: list[str]) -> list[str]:
    """The pages that patterns name, each once."""
    paths = (path for pattern in patterns for path in sorted(ROOT.glob(f"{pattern}.md")))
    return list(dict.fromkeys(path.relative_to(ROOT).with_suffix("").as_posix() for path in paths))


def add_navigation(app: Sphinx, name: str, source: list[str]) -> None:
    """End the start page with what the side bar shows."""
    if name == root_doc:
        for caption, patterns in NAVIGATION.items():
            lines = [f"```{{toctree}}\n:caption: {caption}\n:hidden:\n", *pages(patterns), "```\n"]
            source[0] += "\n" + "\n".join(lines)


def setup(app: Sphinx) -> None:
    app.connect("source-read", add_navigation)
