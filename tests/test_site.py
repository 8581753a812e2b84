"""The documents as a site (`make site`): all pages are reached, and what leads nowhere is an error."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT
from tests.docs import DOCUMENTS


def built(pages: Path, site: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """What `make site` says of a folder of pages; `site` is where it writes."""
    command = re.search(
        r"-m (sphinx .*) \. build/site$", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE
    )
    assert command
    words = [
        *command[1].replace("docs/site", str(ROOT / "docs" / "site")).split(),
        *options,
        str(pages),
        str(site),
    ]
    return subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.processes
def test_every_document_is_a_page_and_every_link_leads_somewhere(tmp_path: Path) -> None:
    done = built(ROOT, tmp_path, "-b", "dummy")  # reads and resolves all pages, and writes none

    assert (done.returncode, done.stderr) == (0, "")
    pages = {
        path.relative_to(tmp_path / ".doctrees").with_suffix(".md") for path in tmp_path.rglob("*.doctree")
    }
    assert pages == {path.relative_to(ROOT) for path in DOCUMENTS}


@pytest.mark.processes
def test_what_leads_nowhere_is_an_error(tmp_path: Path) -> None:
    links = "[a](#here) [b](gone.md) [c](#gone-too) [d](gone.py)\n\n![e](gone.svg)"
    (tmp_path / "README.md").write_text(f"# Here\n\n{links}\n\nOf all, 1\n% is right.\n", "utf-8")

    done = built(tmp_path, tmp_path / "site")

    assert done.returncode == 1
    assert set(re.findall(r"gone[\w.-]*", done.stderr)) == {"gone.md", "gone-too", "gone.py", "gone.svg"}
    assert "% is right." in (tmp_path / "site" / "README.html").read_text(
        "utf-8"
    )  # which MyST takes for a comment
    assert (tmp_path / "site" / "index.html").exists()
