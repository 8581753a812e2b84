"""The command `netfold calibrate`: measure this machine as a device."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from netfold.sim.commands.terminal import print_error, print_json, print_line


def calibrate(
    file: Annotated[
        Path, typer.Argument(metavar="[FILE]", help="Device file to write, ending in .json.")
    ] = Path("cpu.json"),
    threads: Annotated[int, typer.Option(min=1, max=1024, help="Threads that PyTorch computes with.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print the device file instead of text.")] = False,
) -> None:
    """Measure this machine's processor, and write a device file that scenarios can name.

    \b
    netfold calibrate cpu.json
    netfold run scenario.yaml --set device=cpu.json

    It takes about half a minute. What else the machine does makes the result worse: the last lines say how
    well the device predicts real steps.
    """
    from netfold.sim.studies.calibrate import AGREES, device_path, write_device
    from netfold.sim.studies.calibrate import calibrate as measured

    device_path(file)
    found = measured(threads, lambda what: print_error(f"measures {what}"))
    write_device(file, found)
    if as_json:
        import json

        print_json(json.loads(found.text))
        return
    for rate in found.codecs:
        print_line(
            f"{rate.codec}, {100 * rate.density:g} %: {rate.bytes_per_ns:.2f} counted bytes a nanosecond"
        )
    for step in found.checks:
        is_near = abs(step.ratio - 1) <= AGREES
        print_line(
            f"{step.model}: predicted {step.predicted_us:.0f} µs, measured {step.measured_us:.0f} µs"
            f"{'' if is_near else f' (more than {AGREES:.0%} apart: calibrate on an idle machine)'}"
        )
    print_line(f"Device file: {file}")
