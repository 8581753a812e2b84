"""The frame of a page: one style, one script, figures that follow its colours, and nothing from elsewhere."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

_FOLDER = Path(__file__).parent
DARK = {
    "#ffffff": "#161616",
    "#000000": "#e6e6e6",
    "#1a1a1a": "#e6e6e6",
    "#d4d4d4": "#4c4c4c",
    "#9a9a9a": "#8c8c8c",
    "#5c5c5c": "#b0b0b0",
    "#f0f0f0": "#2a2a2a",
    "#f4f4f4": "#262626",
    "#d6e8f3": "#12384d",
    "#e7d4e8": "#5d4a5f",
    "#0072b2": "#2a7fd4",
    "#332288": "#6457d6",
    "#882255": "#b8336f",
}
"""Colours of figures that a dark page needs otherwise: paper, ink, greys, and those too dark to see on it."""
_TAG = re.compile(r"<[^>]+>")
_REFERENCE = re.compile(r'(?:url\(|href=")#([\w.-]+)')
_COLOUR = re.compile(r'((?:fill|stroke)(?:: |="))(#[0-9a-fA-F]{6})')
_LONG_NUMBER = re.compile(r"(\.\d\d)\d+")
_PLACE = re.compile(r' (?:d|x|y|points|transform)="[^"]*"')
_UNTURNED = re.compile(r' transform="rotate\(-0 [^"]*"')
_LINE_END = re.compile(r" \n(?=[A-Z])")  # in a path
_BETWEEN = re.compile(r">\s+<")
_FONT = re.compile(r"font-family: [^;\"]+; ")
_LOOK = (
    'fill="var(--000000,#000000)" stroke-linejoin="round" '
    'font-family="DejaVu Sans, Helvetica, Arial, sans-serif"'
)
"""What all in a figure has that says nothing else."""


def template_of(path: Path) -> jinja2.Template:
    """A template that escapes all it shows, and refuses what it is not given."""
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader([path.parent, _FOLDER]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    script = (_FOLDER / "page.js").read_text("utf-8")
    digest = f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}"
    dark = "; ".join(f"--{light[1:]}: {colour}" for light, colour in DARK.items())
    templates.globals |= {
        "style": Markup(
            (_FOLDER / "page.css").read_text("utf-8")
            + f"@media screen and (prefers-color-scheme: dark) {{ figure {{ {dark} }} }}\n"
        ),
        "script": Markup(script),
        "policy": f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src '{digest}'",
    }
    return templates.get_template(path.name)


def inlined(name: str, svg: bytes, caption: str = "") -> dict[str, Any]:
    """A figure for a page: `svg` is markup whose colours follow the page's, and whose ids no other has."""
    text = svg.decode()
    body = text[text.index("<svg") :]
    referenced = {*_REFERENCE.findall(body)}

    def changed(match: re.Match[str]) -> str:
        tag = _LINE_END.sub("", _COLOUR.sub(_themed, match[0]))
        tag = _PLACE.sub(lambda place: _LONG_NUMBER.sub(r"\1", place[0]), _UNTURNED.sub("", tag))
        tag = _FONT.sub("", tag)
        tag = re.sub(
            r' id="([^"]*)"', lambda ids: f' id="{name}-{ids[1]}"' if ids[1] in referenced else "", tag
        )
        return _REFERENCE.sub(lambda ids: f"{ids[0][: -len(ids[1])]}{name}-{ids[1]}", tag)

    drawn = _BETWEEN.sub("><", _TAG.sub(changed, body))
    drawn = re.sub(r"<style.*?</style>", "", drawn, count=1, flags=re.DOTALL)
    label = f'role="img" aria-labelledby="{name}-caption" {_LOOK}'
    return {
        "name": name,
        "caption": caption,
        "svg": Markup(drawn.replace("<svg ", f"<svg {label} ", 1)),
    }


def _themed(match: re.Match[str]) -> str:
    what, colour = match[1], match[2].lower()
    return f"{what}var(--{colour[1:]},{colour})" if colour in DARK else match[0]
