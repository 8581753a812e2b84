"""`make` says so before pip downloads gigabytes of CUDA, and is silent otherwise."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT
from tests.examples import nightly

SCRIPT = ROOT / "tools" / "torch_notice.py"


@pytest.fixture(scope="module")
def tool() -> Any:
    spec = importlib.util.spec_from_file_location("torch_notice", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def wheel(folder: Path, version: str, needs: str = "") -> Path:
    """A wheel of torch with nothing in it but what it needs."""
    path = folder / f"torch-{version}-py3-none-any.whl"
    text = f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n{needs}"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"torch-{version}.dist-info/METADATA", text)
    return path


CUDA = "Requires-Dist: nvidia-cublas==13.1\nRequires-Dist: nvidia-cudnn-cu13==9; platform_system == 'Linux'\n"


@nightly
@pytest.mark.processes
@pytest.mark.parametrize(
    ("version", "needs", "why"),
    [
        ("2.13.0", CUDA, "it needs 2 nvidia packages"),
        ("2.13.0", "Requires-Dist: sympy\n", ""),
        ("2.13.0+cpu", "", ""),
    ],
)
def test_what_pip_would_take_is_read(tmp_path: Path, version: str, needs: str, why: str) -> None:
    """As pip finds it: here by its own settings, in a folder."""
    name = wheel(tmp_path, version, needs).name
    program = (
        f"import sys; sys.path.insert(0, {str(SCRIPT.parent)!r}); import torch_notice;"
        "print(*torch_notice.chosen('torch==2.13.0'), sep='|')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={
            **os.environ,
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(tmp_path),
            "PIP_CONFIG_FILE": os.devnull,
        },
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout == f"{name}|{why}\n"


def test_without_metadata_name_and_size_tell(tool: Any) -> None:
    def size(found: int) -> Any:
        return lambda: found

    def fail() -> int:
        raise AssertionError("the name tells")

    named = "torch-2.13.0+cu130-cp311-cp311-linux_x86_64.whl"
    assert tool.cuda_needs(named, None, fail) == "its name says cu130"
    assert tool.cuda_needs("torch-2.13.0+cpu-cp311-cp311-linux_x86_64.whl", None, fail) == ""
    plain = "torch-2.13.0-cp311-cp311-manylinux_2_28_x86_64.whl"
    assert tool.cuda_needs(plain, None, size(900_000_000)) == "it alone has 0.9 GB"
    assert tool.cuda_needs(plain, None, size(190_000_000)) == ""
    assert tool.cuda_needs(plain, "Requires-Dist: sympy", size(900_000_000)) == ""


def test_the_notice_says_how_not_to(tool: Any) -> None:
    text = tool.notice("torch-2.13.0.whl", "it needs 15 nvidia packages")
    pin = next(
        line for line in (ROOT / "constraints.txt").read_text().splitlines() if line.startswith("torch")
    )

    assert "torch-2.13.0.whl: a CUDA build (it needs 15 nvidia packages), gigabytes in all" in text
    assert f" -m pip install {pin} --index-url https://download.pytorch.org/whl/cpu\n" in text
    assert str(Path.home()) not in text


def test_it_tells_and_goes_on(
    tool: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tool, "_is_installed", lambda: False)
    monkeypatch.setattr(tool, "chosen", lambda requirement: ("torch.whl", "it needs 15 nvidia packages"))
    tool.main()

    assert "stop now (Ctrl-C)" in capsys.readouterr().err


def test_every_tool_that_judges_is_pinned() -> None:
    """Warnings are errors and formatting is a gate: another version may judge otherwise."""
    import tomllib

    from packaging.requirements import Requirement

    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    pins = {
        Requirement(line).name.lower(): Requirement(line)
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if line and not line.startswith("#")
    }

    assert all(str(pin.specifier).startswith("==") for pin in pins.values())
    named = [Requirement(text) for text in (*extras["test"], *extras["check"])]
    assert [one.name for one in named if one.name.lower() not in pins] == []
    for one in named:
        version = str(pins[one.name.lower()].specifier).removeprefix("==")
        assert one.specifier.contains(version), one
