"""What a launched training runs in each of its processes: records the first model that DDP wraps.

The script is not changed: the constructor of `DistributedDataParallel` is wrapped when its module is
imported. A process that never imports it pays nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from netfold.sim.capture.settings import Settings, from_environment

_MODULE = "torch.nn.parallel.distributed"


def install() -> None:
    """Wait for the import of DDP, if a launcher wants a recording."""
    settings = from_environment()
    if settings is not None:
        sys.meta_path.insert(0, _Finder(settings))


class _Finder(MetaPathFinder):
    """Finds DDP's module as usual, with a loader that wraps the constructor."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module, once."""
        if fullname != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Wrapped(spec.loader, self._settings)
        return spec


class _Wrapped(Loader):
    """Loads DDP's module, and wraps its constructor."""

    def __init__(self, loader: Loader, settings: Settings) -> None:
        self._loader, self._settings = loader, settings

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """As usual."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """As usual, then wrap."""
        self._loader.exec_module(module)
        wrap(module.DistributedDataParallel, self._settings)


def wrap(ddp: Any, settings: Settings) -> None:
    """Let the constructor of DDP begin a recording of the first model."""
    constructor = ddp.__init__
    begun: list[Any] = []

    def recorded(self: Any, *arguments: Any, **options: Any) -> None:
        constructor(self, *arguments, **options)
        if begun:
            if len(begun) == 1:
                _say("the training wraps several models in DistributedDataParallel: the first is recorded")
            begun.append(None)
            return
        begun.append(None)
        _begin(self, settings)

    recorded.__wrapped__ = constructor  # type: ignore[attr-defined]  # for inspect.signature
    ddp.__init__ = recorded


def _begin(model: Any, settings: Settings) -> None:
    """Begin the recording, and end it with the process; what goes wrong does not stop the training."""
    from multiprocessing.util import Finalize  # also called where a child of multiprocessing ends

    from netfold.errors import NetfoldError
    from netfold.sim.capture.api import begin

    try:
        recorder = begin(model, settings)
    except NetfoldError as error:
        _say(str(error))
        return

    def end() -> None:
        if (kind := getattr(sys, "last_type", None)) is not None:  # an exception that nobody caught
            recorder.fail(f"the training ended with {kind.__name__}: {sys.last_value}")
        try:
            recorder.finish()
        except NetfoldError as error:
            _say(str(error))

    Finalize(None, end, exitpriority=10)


def _say(text: str) -> None:
    print(f"netfold capture: {text}", file=sys.stderr, flush=True)
