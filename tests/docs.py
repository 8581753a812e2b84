"""Run every command in the documents, and compare the output with the output shown.

    python -m tests.docs [--write] [DOCUMENT...]

Without arguments, it checks all documents. The exit status is 1 if any output differs. `--write` updates the
documents line by line; added and removed lines must be edited by hand. It takes minutes, and 6 GB of
memory for the quickstart. The tests run the quick commands.
"""

from __future__ import annotations

import difflib
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests import ROOT

FOLDERS = [
    path for path in ROOT.iterdir() if path.is_dir() and not path.is_symlink() and path.name != ".venv"
]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(path for folder in FOLDERS for path in folder.rglob("*.md"))])
FRAME = tuple("┏┃┡└")
"""How the lines of a table begin that are no rows."""
SIMILAR_MIN = 0.6  # similarity of a shown and a printed line, apart from digits, to count as the same line


class Step(NamedTuple):
    """A command in a document and the output shown below it."""

    command: str
    output: str


def blocks(document: Path, language: str) -> list[str]:
    """Code blocks of one language."""
    return _blocks(document.read_text("utf-8"), language)


def chapters(document: Path) -> dict[str, list[Step]]:
    """The commands of a document, in order, by the heading "## …" above them; "" before the first."""
    parts = re.split(r"^## (.*)\n", "## \n" + document.read_text("utf-8"), flags=re.MULTILINE)
    return {heading: _steps(text) for heading, text in zip(parts[1::2], parts[2::2], strict=True)}


def steps(document: Path) -> list[Step]:
    """All commands of a document, in order."""
    return [step for chapter in chapters(document).values() for step in chapter]


def _blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def _steps(text: str) -> list[Step]:
    commands = re.split(r"^\$ (.*)\n", "".join(_blocks(text, "console")), flags=re.MULTILINE)
    return [Step(*pair) for pair in zip(commands[1::2], commands[2::2], strict=True)]


def prepare(document: Path, folder: Path) -> None:
    """Prepare a folder for a document's commands: the scenario in the document is `mine.yaml`."""
    for text in blocks(document, "yaml"):
        (folder / "mine.yaml").write_text(text, "utf-8")
    (folder / "scenarios").symlink_to(ROOT / "scenarios")


def missing(shown: str, printed: str) -> list[str]:
    """Parts of the shown output that were not printed in this order; "…" matches any text."""
    rest, absent = _plain(printed), []
    for part in re.split(r"^…\n", shown, flags=re.MULTILINE):
        _, found, after = rest.partition(_plain(part)) if part else ("", "", rest)
        if part and not found:
            absent.append(part)
        else:
            rest = after
    return absent


def renewed(shown: str, printed: str) -> str:
    """The shown output, every line replaced by the most similar printed line, in the same order."""
    rest = _plain(printed).splitlines()
    lines = []
    for line in shown.splitlines():
        if line == "…":
            lines.append(line)
            continue
        similarity = [_similarity(line, one) for one in rest]
        best = max(range(len(rest)), key=similarity.__getitem__, default=0)
        if similarity and similarity[best] >= SIMILAR_MIN:
            lines.append(rest[best])
            rest = rest[best + 1 :]
        else:
            lines.append(line)
    return "".join(f"{line}\n" for line in lines)


def _similarity(shown: str, printed: str) -> float:
    """Similarity from 0 to 1; rows of tables are similar if they have the same name, frames always."""
    if shown[:1] in FRAME:
        return float(shown[:1] == printed[:1])
    if shown.startswith("│") and printed.startswith("│"):
        same_name = shown.split("│")[1].strip() == printed.split("│")[1].strip()
        return 1.0 if same_name else 0.0
    words = [re.sub(r"[\d.]+", "#", line) for line in (shown, printed)]
    return difflib.SequenceMatcher(None, words[0], words[1]).ratio()


def _plain(text: str) -> str:
    """Text without spaces at the ends of its lines."""
    return re.sub(r" +$", "", text, flags=re.MULTILINE)


def printed(command: str, folder: Path) -> str:
    """The output of a command, run in a separate process."""
    words = [sys.executable, "-m", "netfold", *shlex.split(command)[1:]]
    done = subprocess.run(
        words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    return done.stdout


def _wrong(document: Path, known: dict[str, str]) -> Iterator[tuple[Step, str, list[str]]]:
    """Steps of a document whose output differs; `known` caches the output of commands for other documents."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(document, folder)
        for step in steps(document):
            print(f"$ {step.command}", flush=True)
            if step.command not in known or "mine.yaml" in step.command:
                known[step.command] = printed(step.command, folder)
            if absent := missing(step.output, known[step.command]):
                yield step, known[step.command], absent


def main(arguments: list[str]) -> int:
    """Check documents (see the module docstring); returns the exit status."""
    documents = [Path(word).resolve() for word in arguments if word != "--write"] or DOCUMENTS
    known: dict[str, str] = {}
    status = 0
    for document in documents:
        for step, output, absent in _wrong(document, known):
            status = 1
            print(f"{document.relative_to(ROOT)}: shown, but not printed:\n{''.join(absent)}", end="")
            print(f"it prints:\n{output}")
            if "--write" in arguments:
                text = document.read_text("utf-8")
                before = f"$ {step.command}\n{step.output}"
                after = f"$ {step.command}\n{renewed(step.output, output)}"
                document.write_text(text.replace(before, after), "utf-8")
    print("documents differ from what is printed" if status else "documents show what is printed")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
