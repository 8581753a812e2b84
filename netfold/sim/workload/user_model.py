"""The user's own model: a function in a Python file that returns a module, its data and its loss.

    def make():
        return module, data, loss          # or module, data, loss, score

This file has the key of a scenario. `user_task.py` reads the user's file and calls the function, says what it
must return, trains it, and looks at every backward pass. Every mistake is told in words, with the line of the
user's file where there is one.
"""

from __future__ import annotations

import ast
import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from netfold.errors import DataError, OptionError
from netfold.homomorphic.message import Tensor
from netfold.sim.files import UnreadableError, open_regular
from netfold.sim.workload.model import Model, ModelFacts, TaskSettings

if TYPE_CHECKING:
    from torch import nn

    from netfold.sim.workload.model import Task


# The files that a user's file imports from beside it: a model is made of all of them.


def imported_files(path: Path, folder: Path | None = None) -> set[Path]:
    # The modules and packages beside the file that its import statements name, and what these import. What a
    # program imports by name at run time, and what it reads, is not found. netfold and installed packages do
    # not count. Modules are looked for in `folder`: for a module in a package, where the package lies.
    folder = folder or path.parent
    files: set[Path] = set()
    queue = [path]
    while queue:
        for file in _imported_by(queue.pop(), folder):
            if file != path and file not in files and not _is_installed(file, path, folder):
                files.add(file)
                queue.append(file)
    return files


def _is_installed(file: Path, path: Path, folder: Path) -> bool:
    """Whether a file is netfold's, or of another package where packages are installed."""
    if not file.is_relative_to(folder):  # a relative import leads out of it
        return False
    package, importing = (source.relative_to(folder).parts[0] for source in (file, path))
    return package == "netfold" or (
        package != importing and folder.name in ("site-packages", "dist-packages")
    )


def _imported_by(file: Path, folder: Path) -> Iterator[Path]:
    """The files of the modules that a file's import statements name; it is run from `folder`."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _files(folder, alias.name)
        elif isinstance(node, ast.ImportFrom):
            base = file.parents[node.level - 1] if 0 < node.level <= len(file.parents) else folder
            yield from _files(base, node.module or "")
            for alias in node.names:  # an imported name may be a module
                yield from _files(base, ".".join(filter(None, (node.module, alias.name))))


def _files(base: Path, name: str) -> Iterator[Path]:
    """The files of a module and of the packages that it is in, as far as they are below `base`."""
    parts = name.split(".") if name else []
    for count in range(1, len(parts) + 1):
        module_path = base.joinpath(*parts[:count])
        for file in (module_path.with_suffix(".py"), module_path / "__init__.py"):
            if file.is_file():
                yield file


# The key `model` where it names a function in the user's own file.


PATTERN = r"^.+\.py:[A-Za-z_]\w*$"
HOW = "give a file and a function in it, such as ./mine.py:make"
_BYTES_MAX = 2**24


@dataclass(frozen=True)
class UserModel(Model):
    """A model of your own: a function of a Python file that returns a module, data and a loss."""

    kind: ClassVar[str] = "user"
    make: str
    """The file and the function, ./mine.py:make; the path is relative to the scenario file."""

    def __post_init__(self) -> None:
        if not re.fullmatch(PATTERN, self.make):
            raise OptionError("make", f"cannot read {self.make!r}", HOW)

    @property
    def written(self) -> str | dict[str, Any]:
        return self.make

    @property
    def file(self) -> str:
        return self.make.rpartition(":")[0]

    @property
    def code(self) -> str:
        return self.file

    def files(self, folder: Path) -> set[str]:
        """The file, and those that it imports from beside it."""
        path = Path(os.path.normpath(folder / self.file))
        relative = (os.path.relpath(file, path.parent) for file in imported_files(path))
        return {self.file, *(str(Path(self.file).parent / relative_path) for relative_path in relative)}

    @property
    def function(self) -> str:
        return self.make.rpartition(":")[2]

    @property
    def facts(self) -> ModelFacts:
        # Its tensors are known when the file has been read.
        return ModelFacts(title="your own model", meaning="", source="the user's file", metric="score")

    def module(self) -> nn.Module:
        raise TypeError(f"{self.make} has not been read")

    def task(self, settings: TaskSettings) -> Task:
        raise TypeError(f"{self.make} has not been read")

    def locate(self, folder: Path, settings: TaskSettings) -> Model:
        # Calls the function, and passes a batch through the module both ways.
        from netfold.sim.workload.user_task import known_tensors  # late: it imports PyTorch

        path = (folder / self.file).absolute()
        model = LocatedModel(self.make, str(path), digest_of(path, self.file), ())
        return replace(model, found=known_tensors(model, settings))


@dataclass(frozen=True)
class LocatedModel(UserModel):
    """A user's model whose file has been read."""

    path: str  # absolute
    sha256: str  # the file's digest when it was read
    found: tuple[Tensor, ...]

    @property
    def facts(self) -> ModelFacts:
        # Tensors are in gradient-ready order, as a backward pass has shown it.
        return super().facts.model_copy(update={"tensors": self.found})

    def module(self) -> nn.Module:
        return self.task(TaskSettings("", 1, 1, 0)).build()

    def task(self, settings: TaskSettings) -> Task:
        from netfold.sim.workload.user_task import UserTask

        if digest_of(Path(self.path), self.file) != self.sha256:
            raise DataError(f"{self.file}: was changed after it had been checked", "run again")
        return UserTask(self, settings)


def digest_of(path: Path, given: str) -> str:
    try:
        with open_regular(path) as file:
            return hashlib.sha256(file.read(_BYTES_MAX)).hexdigest()
    except (UnreadableError, OSError) as error:
        why = error.message if isinstance(error, UnreadableError) else error.strerror or str(error)
        raise DataError(f"cannot read {given}: {why}", f"{HOW}, relative to the scenario file") from None
