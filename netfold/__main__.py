"""The `netfold` command (and `python -m netfold`): settings that must precede all other imports.

Ctrl-C is handled during imports. NumPy's linear algebra, which netfold does not need, starts no threads: they
would cost every command 0.1 s of CPU time. The garbage collector runs less often: during imports it would
mostly scan modules, which are never garbage. Nor does it look for garbage when the process ends.
"""

from __future__ import annotations

import gc
import os
import sys

_YOUNG = 500_000  # new objects before the youngest generation is collected; Python's default is 700
_INTERRUPTED = 130  # `commands.main.EXIT_INTERRUPTED`, which is not imported yet


def main() -> None:
    """Entry point."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    gc.set_threshold(_YOUNG)
    try:
        from netfold.commands.main import main as commands

        commands()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(_INTERRUPTED)
    finally:
        gc.freeze()  # a quarter of a small run's time would go into looking through what ends with it


# `python -m netfold` is the `netfold` command.


if __name__ == "__main__":
    main()
