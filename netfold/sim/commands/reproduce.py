"""The command that repeats a run that has shown a bug."""

from __future__ import annotations

from pathlib import Path

from netfold.errors import InvariantError


def installed_version() -> str:
    """Of netfold."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("netfold")
    except PackageNotFoundError:
        return "(not installed)"


def reproducible(
    error: InvariantError, file: Path, sets: list[str] | None, seed: int | None, variants: list[str] | None
) -> InvariantError:
    """The same error with the command that reproduces it as its hint."""
    return InvariantError(error.message, f"a bug; to reproduce: {_command(file, sets, seed, variants)}")


def _command(file: Path, sets: list[str] | None, seed: int | None, variants: list[str] | None) -> str:
    """The command that repeats a run, with netfold's version and the hash of the scenario."""
    import hashlib
    import shlex

    words = ["netfold", "run", str(file)]
    words += [word for text in sets or () for word in ("--set", text)]
    words += [] if seed is None else ["--seed", str(seed)]
    words += [word for name in variants or () for word in ("--variant", name)]
    version = f"# netfold {installed_version()}"
    if not file.is_file():  # standard input cannot be read again
        return f"{shlex.join(words)}   {version}"
    return f"{shlex.join(words)}   {version}, scenario sha256 {hashlib.sha256(file.read_bytes()).hexdigest()}"
