"""The key `model` where it names a function in the user's own file."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import field_validator

from netfold.errors import UserModelError
from netfold.homomorphic.round import Tensor
from netfold.sim.files.foreign import UnreadableError, open_regular
from netfold.sim.workload.training.models.spec import Data, Model, TaskSettings
from netfold.sim.workload.training.user.imported import imported

if TYPE_CHECKING:
    from torch import nn

    from netfold.sim.workload.training.models.spec import Task

PATTERN = r"^.+\.py:[A-Za-z_]\w*$"
_HOW = "give a file and a function in it, such as ./mine.py:make"
_BYTES_MAX = 2**24


class UserModel(Model):
    """A model of your own: a function of a Python file that returns a module, data and a loss."""

    kind: Literal["user"] = "user"
    make: str
    """The file and the function, ./mine.py:make; the path is relative to the scenario file."""

    title: ClassVar[str] = "your own model"
    source: ClassVar[str] = "the user's file"
    data: ClassVar[tuple[Data, ...]] = ()
    metric: ClassVar[str] = "score"

    @field_validator("make")
    @classmethod
    def _names_a_function(cls, make: str) -> str:
        return require_function(make)

    @property
    def written(self) -> str | dict[str, Any]:
        """The file and the function."""
        return self.make

    @property
    def file(self) -> str:
        """The path of the file, as given."""
        return self.make.rpartition(":")[0]

    @property
    def code(self) -> str:
        """The file."""
        return self.file

    def files(self, folder: Path) -> set[str]:
        """The file, and those that it imports from beside it."""
        path = Path(os.path.normpath(folder / self.file))
        relative = (os.path.relpath(one, path.parent) for one in imported(path))
        return {self.file, *(str(Path(self.file).parent / one) for one in relative)}

    @property
    def function(self) -> str:
        """The name of the function."""
        return self.make.rpartition(":")[2]

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Unknown before the file is read."""
        raise TypeError(f"{self.make} has not been read")

    def module(self) -> nn.Module:
        """Unknown before the file is read."""
        raise TypeError(f"{self.make} has not been read")

    def task(self, settings: TaskSettings) -> Task:
        """Unknown before the file is read."""
        raise TypeError(f"{self.make} has not been read")

    def located(self, folder: Path, settings: TaskSettings) -> Model:
        """The model with its tensors: the function is called, and a batch passes the module both ways.

        Raises
        ------
        UserModelError
            It cannot be trained; why, and where.
        """
        from netfold.sim.workload.training.user.task import tensors_of  # late: it imports PyTorch

        path = (folder / self.file).absolute()
        found = LocatedModel.model_construct(
            kind="user", make=self.make, path=str(path), sha256=digest_of(path, self.file), found=()
        )
        return found.model_copy(update={"found": tensors_of(found, settings)})


class LocatedModel(UserModel):
    """A user's model whose file has been read."""

    path: str  # absolute
    sha256: str  # of the file, when it was read
    found: tuple[Tensor, ...]

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Its parameters in gradient-ready order, as a backward pass has shown it."""
        return self.found

    def module(self) -> nn.Module:
        """The module, built with the seed 0."""
        return self.task(TaskSettings("", 1, 1, 0)).build()

    def task(self, settings: TaskSettings) -> Task:
        """The user's module, data and loss.

        Raises
        ------
        UserModelError
            The file has changed, or cannot be used.
        """
        from netfold.sim.workload.training.user.task import UserTask

        if digest_of(Path(self.path), self.file) != self.sha256:
            raise UserModelError(f"{self.file}: was changed after it had been checked", "run again")
        return UserTask(self, settings)


def require_function(make: str) -> str:
    """Refuse a text that does not name a function in a file.

    Raises
    ------
    ValueError
        With a hint on the second line.
    """
    if not re.fullmatch(PATTERN, make):
        raise ValueError(f"cannot read {make!r}\n{_HOW}")
    return make


def digest_of(path: Path, given: str) -> str:
    """SHA-256 of the user's file.

    Raises
    ------
    UserModelError
        It cannot be read.
    """
    try:
        with open_regular(path) as file:
            return hashlib.sha256(file.read(_BYTES_MAX)).hexdigest()
    except (UnreadableError, OSError) as error:
        why = error.message if isinstance(error, UnreadableError) else error.strerror or str(error)
        raise UserModelError(
            f"cannot read {given}: {why}", f"{_HOW}, relative to the scenario file"
        ) from None
