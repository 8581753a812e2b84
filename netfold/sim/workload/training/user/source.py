"""Reads the user's file, and calls the function in it."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import numpy as np

from netfold.errors import UserModelError
from netfold.sim.workload.training.loop.passes import drawing
from netfold.sim.workload.training.user.errors import told
from netfold.sim.workload.workload import keyed
from netfold.spelling import names_hint


class UserFile(Protocol):
    """A user's file that has been found, and the function in it."""

    make: str
    """File and function, as the scenario gives them."""
    path: str
    """Of the file, absolute."""
    sha256: str

    @property
    def file(self) -> str:
        """The path of the file, as given."""
        ...

    @property
    def function(self) -> str:
        """The name of the function."""
        ...


def function_of(model: UserFile) -> Callable[[], Any]:
    """The user's function; the file is run, and may import files beside it.

    Raises
    ------
    UserModelError
        The file cannot be run, or has no such function without arguments.
    """
    module = _run(model)
    function = getattr(module, model.function, None)
    if function is None:
        own = [name for name, one in vars(module).items() if inspect.isfunction(one) and name[0] != "_"]
        hint = names_hint(model.function, own, "functions") if own else "it has no functions at all"
        raise UserModelError(f"{model.file} has no function {model.function!r}", hint)
    if not callable(function):
        raise UserModelError(
            f"{model.make} is no function but {type(function).__name__}", "give the name of a function"
        )
    needed = [
        name
        for name, one in inspect.signature(function).parameters.items()
        if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    ]
    if needed:
        raise UserModelError(
            f"{model.make} needs arguments: {', '.join(needed)}",
            "it is called without any: give them defaults",
        )
    return function  # type: ignore[no-any-return]


def call(model: UserFile, function: Callable[[], Any], seed: int) -> Any:
    """What the function returns; the generators of PyTorch, NumPy and Python are seeded for it.

    Raises
    ------
    UserModelError
        It raises an exception.
    """
    with seeded(seed, "weights"), beside(model):
        try:
            return function()
        except (Exception, SystemExit) as error:  # whatever the user's code does
            raise told(error, model.path, model.file, "") from error


@contextmanager
def seeded(seed: int, purpose: str, *key: int) -> Iterator[None]:
    """Seed the global generators of PyTorch, NumPy and Python by a key, and restore them afterwards.

    What the user's code prints meanwhile goes to the error stream: the output may be one JSON object.
    """
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002  the user's code may use them
    drawn = keyed(seed, purpose, *key).integers(2**32, size=2).tolist()
    with drawing(seed, purpose, *key), redirect_stdout(sys.stderr):
        random.seed(drawn[0])
        np.random.seed(drawn[1])  # noqa: NPY002
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002


@contextmanager
def beside(model: UserFile) -> Iterator[None]:
    """Let the user's code import files that are beside its own."""
    folder = str(Path(model.path).parent)
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)


def _run(model: UserFile) -> ModuleType:
    """The user's file as a module; a file that has not changed runs once."""
    name = "netfold_user_" + hashlib.sha256(f"{model.sha256} {model.path}".encode()).hexdigest()[:16]
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, model.path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where dataclasses and pickle look for it
    try:
        with beside(model), seeded(0, "import"):
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # whatever the user's code does
        del sys.modules[name]
        raise told(error, model.path, model.file, "") from error
    return module
