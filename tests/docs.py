"""Run every command in the documents, and compare the output with the output shown.

    python -m tests.docs [--write] [DOCUMENT...]

Without arguments, it checks all documents. The exit status is 1 if any output differs, or any picture that
the commands draw. `--write` updates the documents line by line, and the pictures; added and removed lines
must be edited by hand. It takes minutes, and 6 GB of memory for the quickstart. The tests run the quick
commands.
"""

from __future__ import annotations

import difflib
import os
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
PICTURES = ROOT / "docs" / "pictures"
FILE = r"^```(?:yaml|python|bash)\n((?:#!.*\n)?# ([\w-]+\.\w+)\b.*?)^```$"
"""A block whose first comment names the file that it shows."""
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
    """Prepare a folder for a document's commands: files that it names, and its scenario as `mine.yaml`."""
    for text in blocks(document, "yaml"):
        (folder / "mine.yaml").write_text(text, "utf-8")
    for text, name in re.findall(FILE, document.read_text("utf-8"), re.MULTILINE | re.DOTALL):
        (folder / name).write_text(text, "utf-8")
    (folder / "scenarios").symlink_to(ROOT / "scenarios")


def pictures() -> dict[str, list[Path]]:
    """The pictures that documents show, by file name, and the documents."""
    shown: dict[str, list[Path]] = {}
    for document in DOCUMENTS:
        for name in re.findall(r"pictures/([\w.-]+)\)", document.read_text("utf-8")):
            shown.setdefault(name, []).append(document)
    return shown


def redrawn(folder: Path) -> list[Path]:
    """Pictures of the documents that commands drew in a folder, other than those of the repository."""
    drawn = [path for name in pictures() if (path := folder / name).exists()]
    kept = [PICTURES / path.name for path in drawn]
    pairs = zip(drawn, kept, strict=True)
    return [new for new, old in pairs if not old.exists() or new.read_bytes() != old.read_bytes()]


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
    """The output of a command, run in a separate process: of netfold, or of another program by a shell."""
    name, *words = shlex.split(command)
    words = [sys.executable, "-m", "netfold", *words] if name == "netfold" else ["bash", "-c", command]
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        words,
        cwd=folder,
        env={**os.environ, "PATH": programs, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.stdout


def _wrong(document: Path, folder: Path, known: dict[str, str]) -> Iterator[tuple[Step, str, list[str]]]:
    """Steps of a document whose output differs; `known` caches the output of commands for other documents.

    Not where later commands read what earlier ones have written.
    """
    prepare(document, folder)
    typed = steps(document)
    needs_all = any("runs/" in step.command or "netfold examples" in step.command for step in typed)
    for step in typed:
        print(f"$ {step.command}", flush=True)
        if needs_all or step.command not in known or "mine.yaml" in step.command:
            known[step.command] = printed(step.command, folder)
        if absent := missing(step.output, known[step.command]):
            yield step, known[step.command], absent


def main(arguments: list[str]) -> int:
    """Check documents (see the module docstring); returns the exit status."""
    documents = [Path(word).resolve() for word in arguments if word != "--write"] or DOCUMENTS
    known: dict[str, str] = {}
    status = 0
    for document in documents:
        with tempfile.TemporaryDirectory() as name:
            for step, output, absent in _wrong(document, Path(name), known):
                status = 1
                print(f"{document.relative_to(ROOT)}: shown, but not printed:\n{''.join(absent)}", end="")
                print(f"it prints:\n{output}")
                if "--write" in arguments:
                    text = document.read_text("utf-8")
                    before = f"$ {step.command}\n{step.output}"
                    after = f"$ {step.command}\n{renewed(step.output, output)}"
                    document.write_text(text.replace(before, after), "utf-8")
            for picture in redrawn(Path(name)):
                status = 1
                print(f"{document.relative_to(ROOT)}: its commands draw another {picture.name}")
                if "--write" in arguments:
                    (PICTURES / picture.name).write_bytes(picture.read_bytes())
    print("documents differ from what is printed" if status else "documents show what is printed")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
