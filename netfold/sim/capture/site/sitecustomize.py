"""Python runs this when it starts, in the processes that `netfold capture` launches.

It runs the `sitecustomize` that it hides, if there is one, and lets netfold wait for the import of DDP.
"""

import os
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec

_HERE = os.path.dirname(os.path.abspath(__file__))


def _run_hidden() -> None:
    others = [path for path in sys.path if os.path.abspath(path or os.curdir) != _HERE]
    spec = PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(module_from_spec(spec))


def _install() -> None:
    home = os.environ.get("NETFOLD_CAPTURE_HOME", "")
    if home and home not in sys.path:
        sys.path.append(home)  # last: it must not hide packages of the training
    try:
        from netfold.sim.capture.capture import install
    except ImportError as error:
        print(f"netfold capture: this Python cannot import netfold: {error}", file=sys.stderr)
        return
    install()


_run_hidden()
_install()
