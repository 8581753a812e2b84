"""The `netfold` command, `python -m sim` too: what must be settled before other modules are imported.

Ctrl-C is answered while they are. NumPy's linear algebra, which nothing here needs, starts no threads: they
cost every command a tenth of a second of CPU.
"""

from __future__ import annotations

import os
import sys

_INTERRUPTED = 130  # as `sim.cli.EXIT_INTERRUPTED`, which is not there yet


def main() -> None:
    """Entry point."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        from sim.cli import main as commands

        commands()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
