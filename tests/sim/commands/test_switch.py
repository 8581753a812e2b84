"""`netfold switch`: what is printed, what fits on a terminal, and the exit statuses."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table
from typer.testing import CliRunner, Result

from netfold.sim.commands.main import app
from netfold.sim.commands.switch_tables import fit_table, profile_table, profiles_table
from netfold.switch.fit import FitError, fit
from netfold.switch.profiles import PROFILES
from netfold.switch.programs import programs


def run_netfold(line: str) -> Result:
    return CliRunner().invoke(app, line.split())


def lines(table: Table, width: int) -> list[str]:
    """What a terminal shows."""
    text = io.StringIO()
    Console(file=text, width=width).print(table)
    return text.getvalue().splitlines()


def test_a_program_stage_by_stage() -> None:
    result = run_netfold("switch fit switchml --profile tofino1 --workers 16")

    assert result.exit_code == 0
    printed = result.stdout.splitlines()
    assert printed[0] == "switchml on tofino1: 16 workers, 8192 slots, 64 words a packet"
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in printed if line.startswith("│")]
    assert cells == [
        ["0", "1/4", "9/80", "9/48", "receiver"],
        ["1", "1/4", "5/80", "5/48", "bitmap"],
        ["2", "2/4", "8/80", "8/48", "counter, exponents"],
        *([str(stage), "4/4", "36/80", "36/48", "values × 4"] for stage in range(3, 11)),
        ["all", "36/48, 75 %", "310/960, 32 %", "310/576, 54 %", "11 of 12 stages"],
    ]
    assert printed[-5:] == [
        "passes         17 a slot round (N + 1): 1 a packet, 1 to read the result out",
        "latency        1.2us for the packet that completes a slot (2 passes)",
        "loopback       1 of 56 ports busy when 16 workers send at 100Gbps",
        "header vector  2640 of 4096 bits (64 %): 74 B of headers, 64 words",
        "registers      4.28 MiB, values alone 4.00 MiB",
    ]


def test_a_program_that_does_not_fit() -> None:
    result = run_netfold("switch fit switchml --profile tofino1 --words 128")

    assert result.exit_code == 1
    assert result.stdout == (
        "does not fit: SwitchML with 128 words a pass needs 68 stateful ALUs (64 for values), "
        "tofino1 has 48\n"
        "  use 64 (256 B) or 256 words (1024 B) a packet\n"
    )
    result = run_netfold("switch fit atp --profile tofino1 --per-pass 62 --json")
    assert result.exit_code == 1
    assert json.loads(result.stdout) == {
        "fits": False,
        "about": "words_per_pass",
        "message": "ATP with 62 words a pass needs 66 stateful ALUs (62 for values), tofino1 has 48",
        "hint": "use 36 words a pass at most",
    }


def test_a_fit_as_json() -> None:
    result = run_netfold("switch fit atp --profile tofino1 --slots 20000 --json")

    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert found["fits"]
    assert found["demand"]["slots"] == 20_000
    assert found["stages"][1] == {
        "stateful_alus": 2,
        "sram_blocks": 22,
        "map_rams": 22,
        "registers": {"bitmap": 1, "ecn": 1},
    }
    assert (found["stateful_alus"], found["sram_blocks"], found["map_rams"]) == (
        [35, 48],
        [385, 960],
        [385, 576],
    )
    assert (found["packet_passes"], found["read_passes"], found["round_passes"]) == (2, 0, 18)
    assert (found["result_latency_ps"], found["loopback_ports"]) == (1_200_000, [1, 56])


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (
            "switch fit swichml --profile tofino1",
            "there is no program 'swichml'\n"
            "  did you mean 'switchml'? known: switchml, tree, timed, atp, inca\n",
        ),
        (
            "switch fit switchml --profile trio --per-pass 8",
            "--per-pass 8: trio has no stages, one pass adds all words of a packet\n  remove --per-pass\n",
        ),
    ],
)
def test_what_cannot_be_asked(line: str, told: str) -> None:
    result = run_netfold(line)

    assert (result.exit_code, result.stdout, result.stderr) == (2, "", told)


def test_ports_of_any_rate(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text("name: mine\nlike: tofino1\nport_rate: 0bps\n", "utf-8")

    printed = run_netfold(f"switch fit switchml --profile {path}").stdout.splitlines()
    assert printed[-3] == "loopback       56 ports, load unknown: port_rate is 0, any rate"
    as_json = json.loads(run_netfold(f"switch fit switchml --profile {path} --json").stdout)
    assert as_json["loopback_ports"] == [None, 56]


def test_all_profiles_in_a_list_and_all_their_numbers() -> None:
    printed = run_netfold("switch profiles").stdout

    assert all(f"│ {name} " in printed for name in PROFILES)
    numbers = run_netfold("switch profiles tofino1").stdout
    for name, source in PROFILES["tofino1"].sources.items():
        assert f"│ {name} " in numbers
        assert source in numbers
    assert "adds nothing up" in run_netfold("switch profiles plain").stdout


@pytest.mark.parametrize("profile", PROFILES)
def test_everything_fits_a_terminal_of_80_columns(profile: str) -> None:
    tables = [profiles_table(), profile_table(PROFILES[profile])]
    for program in programs():
        try:
            tables.append(fit_table(fit(PROFILES[profile], program, programs()[program].released)))
        except FitError:
            continue
    for table in tables:
        assert max(len(line.rstrip()) for line in lines(table, 80)) <= 80
    assert "overflow" in "".join(lines(profiles_table(), 120))
