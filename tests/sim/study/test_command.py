"""`netfold codecs` and `netfold codecs study`: what is printed, kept and refused."""

import dataclasses
import io
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from rich.console import Console
from rich.table import Table
from typer.testing import CliRunner, Result

import netfold.sim.commands.main
from netfold.homomorphic.round import Note, NoteKind
from netfold.sim.study.figures import study_figures
from netfold.sim.study.folder import as_dict
from netfold.sim.study.table import messages_table, study_table
from tests.sim.study.fakes import Fake
from tests.sim.study.test_measure import studied

SMALL = "--elements 20000 --workers 2 --rounds 2 --density 1%,20% --pattern iid,rows".split()  # noqa: SIM905
MEASURED = {"run.json", "speed.svg"}


def run_netfold(*arguments: object) -> Result:
    return CliRunner().invoke(netfold.sim.commands.main.app, [str(argument) for argument in arguments])


def cells(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("│")[1:-1]] for line in text.splitlines() if "│" in line]


def printed(table: Table, width: int) -> str:
    text = io.StringIO()
    Console(file=text, width=width).print(table)
    return text.getvalue()


def test_codecs_are_listed_with_meanings_and_defaults() -> None:
    text = run_netfold("codecs").stdout

    assert (
        "fixed_point (published; SwitchML: Sapio et al., NSDI 2021; with a factor, ATP: Lao et al., NSDI\n"
        "    2021): Dense gradients as int32 words with an agreed exponent per block, or with a constant\n"
        "    factor.\n"
        "  block_elements=null: elements that share an exponent; "
    ) in text
    assert (
        "\n  factor=null: integers per unit of value, the same for all elements, "
        "instead of exponents; ATP's is\n"
        "      1e6.\n"
    ) in text
    assert "\n  load=0.77: members per counter; " in text
    assert max(map(len, text.splitlines())) <= 100


def test_codecs_are_listed_as_json() -> None:
    """Each says its origin once, and what every option means."""
    listed = {codec["kind"]: codec for codec in json.loads(run_netfold("codecs", "--json").stdout)["codecs"]}

    assert listed["none"]["options"] == []
    assert listed["none"]["meaning"].startswith("Dense float32 gradients; ")
    assert {codec["status"] for codec in listed.values()} == {"published", "reconstructed", "ours"}
    assert listed["block_sparse"]["source"] == "OmniReduce: Fei et al., SIGCOMM 2021"
    assert listed["fixed_point"]["options"][1] == {
        "name": "factor",
        "default": None,
        "is_required": False,
        "meaning": "integers per unit of value, the same for all elements, instead of exponents; "
        "ATP's is 1e6.",
    }
    for codec in listed.values():
        assert codec["status"] not in codec["meaning"].lower().rstrip(".").split(), codec["kind"]
        assert all(option["meaning"] for option in codec["options"]), codec["kind"]


def test_a_study_is_printed_and_kept(tmp_path: Path) -> None:
    """The same bytes for the same seed, but for what is measured."""
    words = ("codecs", "study", "packed", "lossless:load=0.5", *SMALL, "--seed", 5, "--out")
    result, _ = (run_netfold(*words, tmp_path / name) for name in ("one", "other"))
    (folder,), (other,) = ((tmp_path / name / "study").iterdir() for name in ("one", "other"))
    rows = [row for row in cells(result.stdout) if row[0] in ("packed", "lossless:load=0.5")]

    assert (result.exit_code, result.stderr) == (0, "")
    assert "elements 20000, workers 2, rounds 2, seed 5\n" in result.stdout
    assert [row[:3] for row in rows[:8:2]] == [
        ["packed", pattern, density] for pattern in ("iid", "rows") for density in ("1 %", "20 %")
    ]
    assert len(rows) == 24  # again with the bytes of each message, and with charged times
    assert result.stdout.endswith(f"Study: {folder}\n")
    assert folder.name.endswith("-seed5")
    kept = {"study.json", "study.parquet", "messages.parquet", "study.svg"}
    assert {path.name for path in folder.iterdir()} == kept | MEASURED
    assert [name for name in kept if (folder / name).read_bytes() != (other / name).read_bytes()] == []
    table = pl.read_parquet(folder / "study.parquet")
    assert table.height == 8
    assert table["wire_ratio"].min() > 1
    messages = pl.read_parquet(folder / "messages.parquet")
    totals = messages.group_by("codec", "pattern", "density", maintain_order=True).agg(pl.col("bytes").sum())
    assert totals["bytes"].to_list() == pytest.approx(table["up_bytes"].to_list())
    lines = [
        f"{codec}, {pattern}" for codec in ("packed", "lossless:load=0.5") for pattern in ("iid", "rows")
    ]
    for name, own in (
        ("study.svg", "Compression of what a worker sends|Sums that are not estimates|dense float32"),
        ("speed.svg", "Encoding on this machine|Decoding on this machine|copying memory"),
    ):
        text = (folder / name).read_text("utf-8")
        assert [one for one in (*own.split("|"), *lines, "density, %") if f">{one}</text>" not in text] == []


def test_a_study_as_json(tmp_path: Path) -> None:
    result = run_netfold("codecs", "study", "packed", "none", *SMALL, "--out", tmp_path, "--json")
    message = json.loads(result.stdout)
    first, second = message["codecs"][:2]

    assert (message["elements"], message["workers"], message["rounds"], message["seed"]) == (20_000, 2, 2, 1)
    assert message["gradients"] == {"row_elements": 64, "overlap": 0.0, "distribution": "normal"}
    assert (first["codec"], first["pattern"], first["density"]) == ("packed", "iid", 0.01)
    assert set(first["bytes_by_message"]) == {"index", "exponents", "values"}
    assert second["bytes_by_message"] == {"values": 80_000.0}
    assert message["speeds"]["codecs"][0]["encode_s"] > 0
    kept = json.loads((Path(message["study_dir"]) / "study.json").read_text())
    assert kept == {key: value for key, value in message.items() if key not in ("speeds", "study_dir")}


def test_a_file_is_studied(tmp_path: Path) -> None:
    gradients = np.zeros((2, 3200), np.float32)
    gradients[0, :32] = gradients[1, 16:48] = 1.0
    np.save(tmp_path / "g.npy", gradients)

    result = run_netfold(
        "codecs", "study", "packed", "--input", tmp_path / "g.npy", "--out", tmp_path, "--json"
    )
    message = json.loads(result.stdout)
    (record,) = message["codecs"]

    assert (message["workers"], record["pattern"], record["density"]) == (2, "input", 0.01)
    assert record["bytes_by_message"] == {"index": 400.0, "exponents": 4.0, "values": 4.0 * 48}
    assert message["gradients"]["input"] == str(tmp_path / "g.npy")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["losless"], "losless: cannot use 'losless' as a kind\n  did you mean 'lossless'? allowed: "),
        (["packed", "--density", "2"], "--density: 2 is not a fraction from 0 to 1\n"),
        (
            ["packed", "--input", "g.txt"],
            "g.txt: must be a .npy, .npz, .safetensors, .pt or .pth file, found .txt\n",
        ),
        (
            ["packed", "--input", "g.npy", "--row-elements", "8", "--density", "1%"],
            "--density, --row-elements: gradients come from g.npy\n"
            "  leave out --density, --row-elements, or --input\n",
        ),
        ([], "Usage: netfold codecs study"),
        (["packed", "--workers", "0"], "Usage: netfold codecs study"),
        (["packed", "--out", ""], "Usage: netfold codecs study"),
    ],
)
def test_bad_usage_is_reported_and_exits_with_2(arguments: Sequence[str], message: str) -> None:
    result = CliRunner().invoke(
        netfold.sim.commands.main.app, ["codecs", "study", *arguments], prog_name="netfold"
    )

    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(message)


def test_where_nothing_can_be_written_nothing_is_studied(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    result = run_netfold("codecs", "study", "packed", *SMALL, "--out", tmp_path / "file")

    assert (result.exit_code, result.stdout) == (2, "")
    place = tmp_path / "file"
    assert (
        result.stderr == f"no run folder can be made in {place}: {place} is not a folder\n  use --out DIR\n"
    )


def test_a_fault_exits_with_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = studied(Fake(bound=0.0, change=lambda rank, total: total + np.float32(1)))
    monkeypatch.setattr("netfold.sim.study.make.run_study", lambda *_: wrong)

    result = run_netfold("codecs", "study", "packed", "--out", tmp_path)

    assert result.exit_code == 1
    assert "\nfake, given, 50 %: an error where the codec's bound allows none\nStudy: " in result.stdout


def test_codec_events_are_below_the_table() -> None:
    notes = [
        Note(NoteKind.CHOICE, "packed: the union is small"),
        Note(NoteKind.REDO, "tiles", 2, 10),
        Note(NoteKind.FORECAST, "digits", 4, 10),
        Note(NoteKind.INFINITE, "beyond", 1, 6),
    ]

    text = printed(study_table(studied(Fake(notes))), 120)

    assert text.endswith(
        "fake, given, 50 %: packed (1 of 1 rounds)\n"
        "fake, given, 50 %: 2 of 10 parts did not decode and were sent again\n"
        "fake, given, 50 %: 4 parts did not match their forecast and were sent again\n"
        "fake, given, 50 %: 1 sums are beyond float32 and became infinite\n"
    )


@pytest.mark.parametrize(
    ("recovery", "shown"), [(1.0, "100 %"), (0.999_999, "99.99 %"), (0.771_23, "77.12 %"), (0.0, "0 %")]
)
def test_recovery_is_never_rounded_up_to_all(recovery: float, shown: str) -> None:
    study = studied(Fake())
    records = tuple(dataclasses.replace(record, recovery=recovery) for record in study.records)

    assert cells(printed(study_table(dataclasses.replace(study, records=records)), 120))[0][7] == shown


def test_tables_fit_narrow_terminals() -> None:
    study = studied(Fake())
    name = "lossless:load=0.7,block_elements=1024"
    records = tuple(dataclasses.replace(record, codec=name) for record in study.records)
    messages = tuple(dataclasses.replace(message, codec=name) for message in study.messages)
    study = dataclasses.replace(study, records=records, messages=messages)

    for width, tables in ((120, 1), (100, 2), (76, 2)):
        lines = [line for line in printed(study_table(study), width).splitlines() if line[0] in "┃│"]
        headings = [line.strip("┃").split("┃") for line in lines if line.startswith("┃")]
        assert len(headings) == tables
        assert len({heading.strip() for line in headings for heading in line}) == 10
        assert max(map(len, lines)) <= width
        assert [row[0] for row in cells("\n".join(lines))] == tables * [
            *("lossless:", "load=0.7,", "block_elements=1024"),
        ]
    assert max(map(len, printed(messages_table(study), 80).splitlines())) <= 80
    assert cells(printed(messages_table(study), 80))[0][3:] == ["12.0 B", "24.0 B", "20.0 B", "56.0 B"]


def test_figures_show_a_single_point_and_density_zero() -> None:
    assert set(study_figures(studied(Fake()))) == {"study.svg", "speed.svg"}
    empty = studied(Fake(), [np.zeros(4, np.float32)] * 2)
    assert all(b"</svg>" in content for content in study_figures(empty).values())
    infinite = studied(Fake(bound=0.0, change=lambda rank, total: total + np.float32(np.inf)))
    assert json.dumps(as_dict(infinite), allow_nan=False)
