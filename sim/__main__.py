"""The `netfold` command, `python -m sim` too: what must be settled before other modules are imported.

Ctrl-C is answered while they are. NumPy's linear algebra, which nothing here needs, starts no threads: they
cost every command a tenth of a second of CPU. Modules are no garbage: to look for some less often halves what
that takes.
"""

from __future__ import annotations

import gc
import os
import sys

_YOUNG = 50_000  # objects made before the youngest are looked at; Python's 700 suit small programs
_INTERRUPTED = 130  # as `sim.cli.EXIT_INTERRUPTED`, which is not there yet


def main() -> None:
    """Entry point."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    gc.set_threshold(_YOUNG)
    try:
        from sim.cli import main as commands

        commands()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
