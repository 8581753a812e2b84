"""Warn before pip downloads gigabytes: whether the torch that pip would install is a CUDA build.

`make` runs this before it installs. The pinned version does not decide it: for Linux, `torch==2.13.0` on
pypi.org is a CUDA build and needs a dozen nvidia packages, that on download.pytorch.org/whl/cpu needs none.
So this script asks pip's finder, with pip's settings, for the file, and reads the file's requirements: from
the wheel if it is local, from the index (PEP 658), or else judges by name and size. It downloads no wheel. If
it finds nothing out, it prints nothing and never fails the installation. (Before pip 23.3,
`pip install --dry-run` would download the wheel first.)
"""

from __future__ import annotations

import re
import sys
import time
import zipfile
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import unquote

CONSTRAINTS = Path(__file__).parents[1] / "constraints.txt"
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
LARGE_BYTES = 400_000_000  # CPU builds have some 200 MB, CUDA builds 500 and more
PAUSE_S = 10  # on a terminal
_TIMEOUT_S = "15"


def main() -> None:
    """Print the notice if torch would be a CUDA build, and pause so that a person can read it."""
    if _is_installed():
        return
    try:
        name, needs = chosen(pinned(CONSTRAINTS.read_text("utf-8")))
    except Exception:  # pip's internals may change
        return
    if needs:
        print(notice(name, needs), file=sys.stderr, flush=True)
        if sys.stderr.isatty():
            time.sleep(PAUSE_S)


def notice(name: str, needs: str) -> str:
    """The notice about a CUDA wheel."""
    pin = pinned(CONSTRAINTS.read_text("utf-8"))
    python = Path(sys.executable)
    shown = python.relative_to(Path.cwd()) if python.is_relative_to(Path.cwd()) else python.name
    return (
        f"pip would take {name}: a CUDA build ({needs}), gigabytes in all. netfold runs on the CPU.\n"
        f"To have the CPU build instead, stop now (Ctrl-C), run\n\n"
        f"    {shown} -m pip install {pin} --index-url {CPU_INDEX}\n\n"
        "and then the same make target again."
    )


def pinned(constraints: str) -> str:
    """The requirement of torch in the text of constraints."""
    return next((line.strip() for line in constraints.splitlines() if re.match(r"torch\b", line)), "torch")


def chosen(requirement: str) -> tuple[str, str]:
    """Name of the file that pip would install, and why it is a CUDA build; "" if it is not."""
    from pip._internal.commands import create_command
    from pip._internal.req.constructors import install_req_from_line

    command: Any = create_command("download")
    options, _ = command.parse_args(["-qqq", "--timeout", _TIMEOUT_S, "--retries", "1", requirement])
    wanted: Any = install_req_from_line(requirement).req
    with command.main_context():
        session = command.get_default_session(options)
        finder = command._build_package_finder(options=options, session=session)
        best = finder.find_best_candidate(wanted.name, wanted.specifier).best_candidate
        name = unquote(best.link.filename)
        return name, cuda_needs(name, _metadata(best.link, session), lambda: _size_bytes(best.link, session))


def cuda_needs(name: str, text: str | None, size_bytes: Any) -> str:
    """Why a wheel is a CUDA build: by its metadata or, if there is none, by its name and size."""
    if text is not None:
        needs = r"^Requires-Dist: ((?:nvidia|cuda)[\w.-]*)"
        packages = set(re.findall(needs, text, re.MULTILINE | re.IGNORECASE))
        return f"it needs {len(packages)} nvidia packages" if packages else ""
    local = re.match(r"torch-[^-+]*\+([^-]*)-", name)
    if local:
        return f"its name says {local[1]}" if local[1].startswith("cu") else ""
    found = size_bytes()
    return f"it alone has {found / 1e9:.1f} GB" if found > LARGE_BYTES else ""


def _metadata(link: Any, session: Any) -> str | None:
    """The METADATA of a wheel without downloading it, if available."""
    if link.is_file and link.file_path.endswith(".whl"):
        with zipfile.ZipFile(link.file_path) as wheel:
            inside = next(one for one in wheel.namelist() if one.endswith(".dist-info/METADATA"))
            return wheel.read(inside).decode()
    apart = link.metadata_link()
    if apart is None:
        return None
    response = session.get(apart.url)
    return str(response.text) if response.ok else None


def _size_bytes(link: Any, session: Any) -> int:
    return int(session.head(link.url, allow_redirects=True).headers.get("Content-Length", 0))


def _is_installed() -> bool:
    try:
        metadata.version("torch")
    except metadata.PackageNotFoundError:
        return False
    return True


if __name__ == "__main__":
    main()
