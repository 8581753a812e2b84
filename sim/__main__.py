"""The `netfold` command, `python -m netfold` too: what must be set before other modules are imported.

Ctrl-C is answered during imports. NumPy's linear algebra, which nothing here needs, starts no threads: they
cost every command a tenth of a second of CPU. The garbage collector runs less often: it would mostly look at
modules, which are no garbage.
"""

from __future__ import annotations

import gc
import os
import sys

_YOUNG = 50_000  # new objects until the collector looks at the youngest; Python's own number is 700
_INTERRUPTED = 130  # as `sim.commands.main.EXIT_INTERRUPTED`, which is not there yet


def main() -> None:
    """Entry point."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    gc.set_threshold(_YOUNG)
    try:
        from netfold.sim.commands.main import main as commands

        commands()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
