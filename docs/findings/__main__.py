"""`python -m docs.findings [TABLE …]`: compute and print tables, and write them into the page."""

from __future__ import annotations

import sys
import time

from docs.findings import tables
from docs.findings.table import PAGE, replaced


def main(names: list[str]) -> int:
    """Compute the named tables, or all in a few minutes."""
    every = {table.name: table for table in tables.ALL}
    unknown = [name for name in names if name not in every]
    if unknown:
        print(f"there is no table {unknown[0]!r}; there are {', '.join(every)}", file=sys.stderr)
        return 2
    for name in names or every:
        started = time.monotonic()
        markdown = every[name].markdown()
        PAGE.write_text(replaced(PAGE.read_text("utf-8"), name, markdown), "utf-8")
        print(f"{name}\n\n{markdown}\n")
        print(f"{name}: {time.monotonic() - started:.0f} s", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
