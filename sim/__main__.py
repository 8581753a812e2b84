"""The `netfold` command, `python -m sim` too: Ctrl-C is answered while modules are still imported."""

from __future__ import annotations

import sys

_INTERRUPTED = 130  # as `sim.cli.EXIT_INTERRUPTED`, which is not there yet


def main() -> None:
    """Entry point."""
    try:
        from sim.cli import main as commands

        commands()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
