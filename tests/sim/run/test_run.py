"""Whole runs: what they report against what follows from the scenario on paper."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import netfold.sim.results.folder
import netfold.sim.run.run
import netfold.sim.run.variant
import netfold.sim.scenario.load
from netfold.errors import InvariantError, NetfoldError, RunError
from netfold.homomorphic.codec import codec_kinds
from netfold.homomorphic.merge import MERGEABLE
from netfold.sim import files
from netfold.sim.collectives.collective import collectives
from netfold.sim.plan.plan import frame_of
from netfold.sim.report.html_report import build_report
from netfold.sim.results.folder import load
from netfold.sim.run import named_files as run_files
from netfold.sim.run.named_files import setups
from netfold.topologies.graph import LinkSpec
from netfold.topologies.kinds.star import star
from netfold.topologies.topology_files import to_json
from tests.command_line import run_command
from tests.sim.scenes import BYTE_PS, TINY, measure, plan, run, simulate

DELAY_PS, PASS_PS = 1_000_000, 600_000
METRICS = {
    "aggregation_time_us": float,
    "aggregation_elements_per_s": float,
    "iteration_time_us": float,
    "wire_bytes_up": int,
    "wire_bytes_down": int,
    "compression_ratio": float,
    "packets": int,
    "packets_lost": int,
    "packets_retransmitted": int,
    "bit_exact": bool,
    "merges_verified": bool,
    "max_abs_error": float,
    "union_density": float,
}


def unit_bytes(frame_name: str) -> list[int]:
    """Sizes of the packets of a SwitchML message."""
    frame = frame_of(frame_name)
    packets = 4 if frame_name.startswith("roce") else 1
    return [
        frame.wire_bytes(frame.elements, first=part == 0, last=part == packets - 1) for part in range(packets)
    ]


def test_the_object_that_json_prints(tmp_path: Path) -> None:
    outcome = run(tmp_path, text=TINY + "variants:\n  - name: b\n  - {name: a, workers: 2}\n")

    printed = json.loads(json.dumps(outcome.as_dict(), allow_nan=False))
    keys = (
        "scenario seed verdict run_dir baseline question answer variants warnings injected engine isa pinned"
    )
    assert set(keys.split()) == set(printed)
    assert (printed["scenario"], printed["seed"], printed["verdict"]) == ("tiny", 7, "pass")
    assert load(Path(printed["run_dir"])).summary["variants"] == printed["variants"]
    assert [variant["name"] for variant in printed["variants"]] == ["b", "a"]
    for variant in printed["variants"]:
        assert all({"name", "verdict", "detail"} == set(check) for check in variant["checks"])
        assert {name: type(variant["metrics"][name]) for name in METRICS} == METRICS
    assert {"packet_hops": int, "wall_s": float, "packet_hops_per_s": float} == {
        name: type(value) for name, value in printed["engine"].items()
    }
    hops, wall_s, rate = printed["engine"].values()
    assert rate == hops / wall_s


@pytest.mark.parametrize(
    ("frame", "elements", "workers"),
    [("udp-256", 5000, 3), ("udp-1024", 4096, 1), ("roce-1024", 5000, 3), ("roce-1024", 4096, 1)],
)
def test_bytes_of_a_dense_round(tmp_path: Path, frame: str, elements: int, workers: int) -> None:
    """Every block once, and before them one window of exponents alone; all packets are full."""
    found = measure(
        tmp_path, f"collective.frame={frame}", f"workload.elements={elements}", f"workers={workers}"
    )

    sizes = unit_bytes(frame)
    window = 512 // len(sizes)
    blocks = -(-elements // (frame_of(frame).elements * len(sizes)))
    units = blocks + min(window, blocks)
    assert workers * units * sum(sizes) == found["wire_bytes_up"] == found["wire_bytes_down"]
    # Up, once round the loopback of the switch, and down.
    assert units * len(sizes) * workers == found["packets"]
    assert units * len(sizes) * (2 * workers + 1) == found["packet_hops"]
    assert (found["packets_lost"], found["packets_dropped"], found["packets_retransmitted"]) == (0, 0, 0)
    assert 4 * elements / (4 * elements + blocks) == found["compression_ratio"]


@pytest.mark.parametrize(
    ("frame", "passes", "profile"),
    [("udp-256", 1, "tofino1"), ("roce-1024", 10, "tofino1"), ("roce-1024", 10, "ideal")],
)
def test_time_of_one_block(tmp_path: Path, frame: str, passes: int, profile: str) -> None:
    """The exponent goes ahead, then the block: two messages through the switch, one after the other."""
    sizes = unit_bytes(frame)
    elements = len(sizes) * frame_of(frame).elements
    sets = (f"collective.frame={frame}", f"workload.elements={elements}", f"topology.switch={profile}")
    found = measure(tmp_path, *sets)

    # A message's packets follow each other on every link; its first, largest one is waited for at each hop.
    hops = 3 if profile == "tofino1" else 2
    one_ps = (sum(sizes) + (hops - 1) * sizes[0]) * BYTE_PS + 2 * DELAY_PS
    one_ps += (1 + passes) * PASS_PS if profile == "tofino1" else 0
    assert 2 * one_ps / 10**6 == found["aggregation_time_us"] == found["iteration_time_us"]
    assert elements * 10**12 / (2 * one_ps) == found["aggregation_elements_per_s"]


def test_compute_comes_before_and_work_is_charged(tmp_path: Path) -> None:
    elements, blocks = 640, 10
    sets = (f"workload.elements={elements}", "workload.steps=3")
    free = measure(tmp_path, *sets)
    charged = measure(
        tmp_path, *sets, "device={kind: fixed, forward: 2ms, backward: 3ms, memory_rate: 8Gbps}"
    )

    # At a byte a nanosecond. Encoding reads the gradient twice, writes it once and the exponents; decoding
    # reads and writes it once and reads the exponents.
    work_us = (3 * 4 * elements + blocks + 2 * 4 * elements + blocks) / 1000
    assert charged["aggregation_time_us"] == pytest.approx(free["aggregation_time_us"] + work_us)
    assert charged["iteration_time_us"] == pytest.approx(5000 + charged["aggregation_time_us"])
    assert charged["elements"] == elements


# Keys beside those that a collective needs: several chunks, and servers on the hosts of workers.
KEYS: dict[str, dict[str, Any]] = {
    "tree": {"chunk": "512B"},
    "parameter_server": {"placement": "beside_workers"},
}


@pytest.mark.parametrize("kind", collectives())
def test_rounds_have_all_bytes(tmp_path: Path, kind: str) -> None:
    """With six workers, some have their result while they still pass it on."""
    collective = {"kind": kind, **collectives()[kind].choices().get("", {}), **KEYS.get(kind, {})}
    sets = (f"collective={json.dumps(collective)}", "workers=6", "topology.hosts=6", "workload.steps=2")
    result = simulate(tmp_path, *sets)

    assert sum(one.wire_bytes_up for one in result.rounds) == sum(
        link.bytes for link in result.links if link.source.startswith("h")
    )
    assert sum(one.wire_bytes_down for one in result.rounds) == sum(
        link.bytes for link in result.links if link.target.startswith("h")
    )


@pytest.mark.parametrize("collective", ["{kind: ring}", "{kind: in_network, frame: udp-256}"])
def test_jobs_that_follow_each_other_on_the_same_hosts_have_their_own_bytes(
    tmp_path: Path, collective: str
) -> None:
    """Equal jobs put equally many bytes on the wire, and together all that the links carried."""
    arrivals = "jobs=[{name: a, count: 3, arrivals: {kind: even, gap: 1us}}]"
    sets = (f"collective={collective}", "admission=fifo", "workers=4", "topology.hosts=4", arrivals)
    result = simulate(tmp_path, *sets)
    sizes = {
        label: sum(one.wire_bytes_up for one in result.rounds if one.variant == label)
        for label in {one.variant for one in result.rounds}
    }

    assert len(sizes) == 3
    assert len(set(sizes.values())) == 1
    assert sum(sizes.values()) == sum(link.bytes for link in result.links if link.source.startswith("h"))


DESCRIBED = (
    TINY.replace("seed: 7\n", "seed: 7\ndescription: Three workers.\n")
    + """\
variants:
  - name: plain
  - name: lossy
    faults: [{kind: loss, rate: 1%, links: ["h0->s0"]}]
  - name: ring
    codec: {kind: none}
    collective: {kind: ring, timeout: 1ms}
"""
)

SLOTS = 34  # 3,439.04 ns up, through the loopback port and down are 32.4 packets of 332 B at 25 Gbps


def test_a_run_folder_says_what_was_run(tmp_path: Path, plain: None) -> None:
    text = DESCRIBED.replace("variants:", "  timeout: released\nvariants:", 1)
    outcome = run(tmp_path, "topology.rate=25Gbps", text=text)
    summary = json.loads((outcome.run_dir / "summary.json").read_bytes())
    plain, lossy, ring = (variant["setup"] for variant in summary["variants"])

    assert summary["description"] == "Three workers."
    assert summary["sets"] == ["topology.rate=25Gbps"]
    assert summary["chosen"] == []  # all
    assert plain == {
        "topology": {"kind": "star", "hosts": 4, "rate": "25Gbps", "delay": "1us", "switch": "tofino1"},
        "workers": {"count": 3},
        "workload": {"kind": "synthetic", "elements": 1000, "density": "100%", "steps": 1},
        "device": {"kind": "none"},
        "codec": {"kind": "fixed_point", "block_elements": 64},  # a packet of udp-256
        "collective": {
            **{"kind": "in_network", "program": "switchml", "frame": "udp-256", "slots": SLOTS},
            **{"message_packets": 1, "switch": "s0", "timeout": "10ms"},
        },
        "faults": [],
    }
    assert lossy["faults"] == [{"kind": "loss", "rate": "1%", "links": ["h0->s0"]}]
    assert ring["codec"] == {"kind": "none"}
    assert ring["collective"] == {"kind": "ring", "frame": "roce-1024", "window": 512, "timeout": "1ms"}

    page = build_report(outcome.run_dir).read_text("utf-8")
    for words in ("Three workers.", "star: hosts 4, rate 25Gbps, switch tofino1", "loss: rate 1%"):
        assert words in page


def test_jobs_have_settings_of_their_own(tmp_path: Path) -> None:
    text = TINY + "jobs: [{name: first, workers: 2}, {name: second, workers: 1, start: 20us}]\n"
    found: dict[str, Any] = setups(plan(tmp_path, text=text))

    assert {name: one["workers"] for name, one in found.items()} == {
        "tiny/first": {"count": 2},
        "tiny/second": {"count": 1, "start": "20us"},
    }


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("none", {"kind": "none"}),
        ("size, bytes: 1600KB", {"kind": "size", "bytes": "1.6MB"}),
        ("layer_fusion", {"kind": "layer_fusion"}),
        ("one", None),  # the default
    ],
)
def test_a_rule_of_fusion_is_recorded_by_its_kind(
    tmp_path: Path, written: str, shown: dict[str, Any] | None
) -> None:
    layers = "tensors: [b.weight=10x20, a.weight=100x10]"
    workload = f"workload={{kind: synthetic, {layers}, fusion: {{kind: {written}}}}}"
    (found,) = setups(plan(tmp_path, workload)).values()

    assert found["workload"].get("fusion") == shown


def test_tests_are_recorded_with_their_interval(tmp_path: Path) -> None:
    sets = "workload={kind: training, model: mlp, steps: 3, evaluate: {every: 10}}"
    (found,) = setups(plan(tmp_path, sets)).values()

    assert found["workload"]["evaluate"] == {"every": 10}


@pytest.mark.parametrize("kind", list(codec_kinds()))
def test_every_codec_is_recorded_by_its_kind(tmp_path: Path, kind: str) -> None:
    """Some are other objects once a network carries them."""
    ideal = "topology={kind: star, hosts: 4, switch: ideal}"
    codec = codec_kinds()[kind]()
    carrier = "in_network" if codec.merges <= MERGEABLE else "all_gather"
    workload = "workload={kind: training, model: mlp}" if codec.needs else "name=tiny"
    sets = f"codec={{kind: {kind}}}", f"collective={{kind: {carrier}}}", ideal, workload
    (found,) = setups(plan(tmp_path, *sets)).values()

    assert found["codec"]["kind"] == kind
    assert json.loads(json.dumps(found, allow_nan=False)) == found


SCENARIO = """\
name: named
topology: {kind: file, path: net.json}
workers: 3
workload: {kind: file, path: g.npy}
codec: {kind: none}
collective: {kind: ring}
variants: [{name: a}, {name: b}, {name: c}]
"""
GRADIENTS = np.arange(3 * 50, dtype=np.float32).reshape(3, 50)


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    np.save(tmp_path / "g.npy", GRADIENTS)
    (tmp_path / "net.json").write_text(to_json(star(3, LinkSpec(10**10, 10**6, 1 << 20), "ideal")))
    (tmp_path / "named.yaml").write_text(SCENARIO)
    return tmp_path / "named.yaml"


def run_netfold(file: Path, *words: str) -> Any:
    return run_command("run", file, "--out", file.parent / "runs", "--no-report", *words)


@pytest.fixture
def after(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let something happen when the variant of a name has been simulated, or raise instead of its result."""

    def at(name: str, happen: Callable[[], object] | BaseException) -> None:
        run_variant = netfold.sim.run.run.run_variant

        def run(plan: Any, variant: Any, *rest: Any) -> Any:
            result = run_variant(plan, variant, *rest)
            if variant.name == name:
                if isinstance(happen, BaseException):
                    raise happen
                happen()
            return result

        monkeypatch.setattr(netfold.sim.run.run, "run_variant", run)

    return at


@pytest.mark.parametrize(
    ("name", "key", "written", "kept"),
    [
        ("g.npy", "workload.path", "./{}", "{}"),
        ("net.json", "topology.path", "sub//{}", "sub/{}"),
        ("g.npy", "workload.path", "sub/./{}", "sub/{}"),
        ("net.json", "topology.path", ".hidden/{}", None),
        ("g.npy", "workload.path", "figures/{}", None),
        ("net.json", "topology.path", "../beside/{}", None),
    ],
)
def test_a_path_may_be_written_in_any_way(
    scenario: Path, name: str, key: str, written: str, kept: str | None
) -> None:
    """Of a file that cannot be copied into a run folder only the digest is recorded."""
    path, content = written.format(name), (scenario.parent / name).read_bytes()
    (scenario.parent / path).parent.mkdir(exist_ok=True)
    (scenario.parent / path).write_bytes(content)
    result = run_netfold(scenario, "--set", f"{key}={path}")

    assert result.exit_code == 0, result.output
    run = load(scenario.parent / "runs" / "latest")
    (listed,) = (one for one in run.summary["inputs"] if one["path"].endswith(name))
    digest = hashlib.sha256(content).hexdigest()
    place = (kept or written.replace("//", "/").replace("/./", "/")).format(name)
    assert listed == {"path": place, "kept": kept is not None, "bytes": len(content), "sha256": digest}
    if kept:
        assert (run.path / place).read_bytes() == content
    else:
        assert not (run.path / name).exists()


@pytest.mark.parametrize(("name", "at"), [("g.npy", "a"), ("net.json", "b")])
def test_a_file_that_goes_away_during_a_run_is_no_loss(
    scenario: Path, after: Any, name: str, at: str
) -> None:
    """The gradients are open, the graph is read: the folder has both as they were."""
    content = (scenario.parent / name).read_bytes()
    after(at, (scenario.parent / name).unlink)
    result = run_netfold(scenario)

    assert result.exit_code == 0, result.output
    (kept,) = runs_of(scenario.parent, "named")
    assert (kept / name).read_bytes() == content


@pytest.mark.parametrize("at", ["a", "c"])
def test_gradients_that_change_during_a_run_end_it_before_a_false_digest_is_written(
    scenario: Path, after: Any, at: str
) -> None:
    path, content = scenario.parent / "g.npy", (scenario.parent / "g.npy").read_bytes()
    after(at, lambda: np.save(path, GRADIENTS + 1))
    result = run_netfold(scenario)

    assert result.exit_code == 2
    assert result.stderr.endswith(
        f"{path}: was changed while the run was using it\n"
        "  run again, and do not change the file until the run ends\n"
    )
    if at == "a":
        assert not (scenario.parent / "runs" / "named").exists()
        return
    (kept,) = runs_of(scenario.parent, "named")
    done = "ab"
    assert kept.name.endswith(f"-unfinished-{len(done)}-of-3")
    assert [one["name"] for one in load(kept).summary["variants"]] == list(done)
    assert (kept / "g.npy").read_bytes() == content
    assert load(kept).summary["inputs"][0]["sha256"] == hashlib.sha256(content).hexdigest()


def test_gradients_that_are_gone_before_a_variant_opens_them_are_an_error(scenario: Path, after: Any) -> None:
    """The last variant has its own file, which no variant has opened yet."""
    np.save(scenario.parent / "other.npy", GRADIENTS)
    other = "{name: c, workload: {kind: file, path: other.npy}}"
    scenario.write_text(SCENARIO.replace("{name: c}", other))
    after("a", (scenario.parent / "other.npy").unlink)
    result = run_netfold(scenario)

    assert result.exit_code == 2
    assert f"{scenario.parent / 'other.npy'}: cannot be read: there is no such file\n" in result.stderr
    (kept,) = runs_of(scenario.parent, "named")
    assert [one["name"] for one in load(kept).summary["variants"]] == ["a", "b"]


def test_a_file_that_is_gone_before_the_first_variant_is_an_error(
    scenario: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve = netfold.sim.run.run.resolve

    def resolved(*arguments: Any) -> Any:
        plan = resolve(*arguments)
        (scenario.parent / "net.json").unlink()
        return plan

    monkeypatch.setattr(netfold.sim.run.run, "resolve", resolved)
    result = run_netfold(scenario)

    assert (result.exit_code, result.stderr) == (
        2,
        f"{scenario.parent / 'net.json'}: cannot be read: there is no such file\n"
        "  put the file back, and run again\n",
    )


OWN = """\
name: own
topology: {kind: star, hosts: 3, switch: mine}
profiles: [parts/mine.yaml]
workers: 3
workload: {kind: file, path: parts/g.npy}
codec: {kind: none}
collective: {kind: ring}
"""
PROFILE = "{name: mine, like: ideal}\n"


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """Two steps of three workers, whole numbers: every sum is exact, and sparse in the second step."""
    (tmp_path / "parts").mkdir()
    gradients = np.arange(2 * 3 * 500, dtype=np.float32).reshape(2, 3, 500)
    gradients[1, :, 10:] = 0
    np.save(tmp_path / "parts" / "g.npy", gradients)
    (tmp_path / "parts" / "mine.yaml").write_text(PROFILE)
    (tmp_path / "own.yaml").write_text(OWN)
    return tmp_path / "own.yaml"


def test_a_run_sends_what_the_file_holds(own: Path) -> None:
    result = run_netfold(own)
    assert result.exit_code == 0, result.output

    run = load(own.parent / "runs" / "latest")
    content = (own.parent / "parts" / "g.npy").read_bytes()
    assert run.rounds["elements"].to_list() == [500, 500]
    assert run.rounds["nonzeros"].to_list() == [499, 10]  # element 0 of worker 0 is 0
    assert run.rounds["union_nonzeros"].to_list() == [500, 10]
    assert run.summary["inputs"] == [
        {"path": path, "kept": True, "bytes": len(one), "sha256": hashlib.sha256(one).hexdigest()}
        for path, one in (("parts/g.npy", content), ("parts/mine.yaml", PROFILE.encode()))
    ]
    # Its scenario names a profile and gradients, which lie beside it.
    assert (run.path / "parts" / "mine.yaml").read_text() == PROFILE
    again = run_netfold(run.path / "scenario.yaml")
    assert again.exit_code == 0, again.output
    second = (run.path / "runs" / "latest").resolve()
    assert (run.path / "summary.json").read_bytes() == (second / "summary.json").read_bytes()


def test_of_large_gradients_only_the_digest_is_recorded(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size_bytes = (own.parent / "parts" / "g.npy").stat().st_size
    for limit, is_kept in ((size_bytes, True), (size_bytes - 1, False)):
        monkeypatch.setattr(run_files, "KEPT_BYTES_MAX", limit)
        assert run_netfold(own).exit_code == 0
        run = (own.parent / "runs" / "latest").resolve()
        assert (run / "parts" / "g.npy").is_file() == is_kept
        assert load(run).summary["inputs"][0]["bytes"] == size_bytes


def test_fewer_workers_than_the_file_has_are_a_warning(own: Path) -> None:
    """Steps beyond those of the file begin anew."""
    result = run_netfold(own, "--set", "workers=2", "--set", "workload.steps=3")

    assert result.exit_code == 0
    warning = "own: the first 2 of the 3 workers' gradients in parts/g.npy are used"
    run = load(own.parent / "runs" / "latest")
    assert run.summary["warnings"] == [warning]
    assert run.rounds["nonzeros"].to_list() == [499, 10, 499]


def test_the_kept_scenario_ends_with_the_command_that_repeats_the_run(own: Path, tmp_path: Path) -> None:
    run_netfold(own, "--set", "workers=2", "--set", "topology={kind: star, hosts: 3}", "--seed", "5")
    run = (own.parent / "runs" / "latest").resolve()
    kept, _, command = (run / "scenario.yaml").read_text("utf-8").rpartition("# netfold run scenario.yaml ")
    repeated = run_command("run", str(run / "scenario.yaml"), *shlex.split(command), "--out", str(tmp_path))

    assert kept == own.read_text("utf-8")
    assert repeated.exit_code == 0
    assert load(tmp_path / "latest").summary == load(run).summary


def test_more_workers_than_the_file_has_are_refused(own: Path) -> None:
    result = run_netfold(own, "--set", "workers=4", "--set", "topology.hosts=4")

    assert result.exit_code == 2
    assert result.stderr == (
        f"{own}:5: workload.path: parts/g.npy: holds the gradients of 3 workers, 4 are needed\n"
        "  use 3 workers at most\n"
    )


def test_a_gradient_that_is_not_finite_ends_the_run_in_words(own: Path) -> None:
    gradients = np.ones((3, 20), np.float32)
    gradients[1, 7] = np.nan
    np.save(own.parent / "parts" / "g.npy", gradients)
    result = run_netfold(own, "--set", "codec={kind: exact}")

    path = own.parent / "parts" / "g.npy"
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-2:] == [
        f"{path}: holds numbers that are not finite: nan at [1, 7], worker 1",
        "  a gradient must be finite; look for an error in the training step that computed it",
    ]


VARIANTS_KEPT_SCENARIO = """\
name: three
topology: {kind: star, hosts: 2}
workers: 2
workload: {kind: synthetic, elements: 300}
codec: {kind: none}
collective: {kind: ring}
variants: [{name: first}, {name: second}, {name: third}]
"""


def run_three_variants(folder: Path, *words: str) -> Any:
    file = folder / "three.yaml"
    file.write_text(VARIANTS_KEPT_SCENARIO)
    return run_netfold(file, *words)


def runs_of(folder: Path, name: str = "three") -> list[Path]:
    """Visible folders of runs of a scenario."""
    return list((folder / "runs" / name).glob("[!.]*"))


def folders(folder: Path) -> list[str]:
    """Their names, without the time that each begins with."""
    return sorted(path.name.partition("-seed")[2] for path in runs_of(folder))


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (MemoryError("no 5 GiB"), 1, "not enough memory: no 5 GiB\n  use fewer elements, samples or workers"),
        (InvariantError("bytes vanished"), 3, "bytes vanished\n  a bug; to reproduce: netfold run"),
        (ValueError("unexpected"), 1, ""),  # `main` prints its traceback, and exits with 3
    ],
)
def test_variants_that_are_done_are_kept(
    tmp_path: Path, after: Any, error: BaseException, status: int, message: str
) -> None:
    after("third", error)
    result = run_three_variants(tmp_path)

    assert (result.exit_code, message in result.stderr) == (status, True)
    assert folders(tmp_path) == ["1-unfinished-2-of-3"]
    (kept,) = runs_of(tmp_path)
    assert [one["name"] for one in load(kept).summary["variants"]] == ["first", "second"]
    assert load(kept).summary["unfinished"] == ["third"]
    assert "first" in result.stdout
    assert "Unfinished: third did not run to the end.\n" in result.stdout
    assert f"Finished variants are in {kept}\nTo write a report: netfold report {kept}\n" in result.stdout
    assert isinstance(error, NetfoldError | KeyboardInterrupt | MemoryError) or result.exception is error
    assert not (tmp_path / "runs" / "latest").exists()


def test_a_scenario_is_read_once_and_each_variant_is_summed_up_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often the folder of the finished variants is written."""
    read: list[Any] = []
    summed: list[list[str]] = []
    read_source, summarize = netfold.sim.scenario.load.read_source, netfold.sim.run.variant.summarize

    def reads(path: Any) -> Any:
        read.append(path)
        return read_source(path)

    def sums(facts: Any, records: Any) -> Any:
        summed.append(list(facts))
        return summarize(facts, records)

    monkeypatch.setattr(netfold.sim.scenario.load, "read_source", reads)
    monkeypatch.setattr(netfold.sim.run.variant, "summarize", sums)
    result = run_three_variants(tmp_path)

    assert (result.exit_code, read) == (0, [tmp_path / "three.yaml"])
    assert summed == [["first"], ["second"], ["third"]]


def test_many_variants_are_written_more_rarely(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When a sixteenth of them is new: the 17th and 18th together, and never the last ones."""
    written, write_run = list[int](), netfold.sim.results.folder.write_run

    def writes(out_dir: Path, data: Any, suffix: str) -> Path:
        written.append(int(suffix.split("-")[2]))
        return write_run(out_dir, data, suffix)

    monkeypatch.setattr(netfold.sim.results.folder, "write_run", writes)
    result = run_three_variants(tmp_path, "--set", "seeds=8")

    assert (result.exit_code, folders(tmp_path)) == (0, ["1"])
    assert written == [*range(1, 17), 18, 20, 22]


def test_the_first_variant_leaves_nothing_to_keep(tmp_path: Path, after: Any) -> None:
    after("first", RunError("not enough memory"))
    result = run_three_variants(tmp_path)

    assert (result.exit_code, result.stdout, folders(tmp_path)) == (1, "", [])


def test_a_disk_that_gets_full_keeps_what_was_written_and_prints_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_file = files.write_file
    begun: list[Path] = []

    def write(path: Path, data: bytes) -> None:
        begun.extend([path] if path.name == "scenario.yaml" else [])
        if len(begun) > 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write_file(path, data)

    monkeypatch.setattr(files, "write_file", write)
    result = run_three_variants(tmp_path)

    assert result.exit_code == 1
    assert "cannot write" in result.stderr
    assert "No space left on device" in result.stderr
    assert folders(tmp_path) == ["1-unfinished-1-of-3"]
    assert "second" in result.stdout  # it was done, and is in the table
    (kept,) = runs_of(tmp_path)
    assert f"Finished variants are in {kept}, without second\n" in result.stdout


def test_all_variants_are_kept_where_their_folder_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(out_dir: Path, run: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left")

    monkeypatch.setattr(netfold.sim.run.run, "write_run", write)
    result = run_three_variants(tmp_path)
    (kept,) = runs_of(tmp_path)

    assert result.exit_code == 1
    assert folders(tmp_path) == ["1-unfinished-3-of-3"]
    assert "Results: " not in result.stdout
    assert result.stdout.endswith(
        "Unfinished: all variants are done, the run folder was not written.\n"
        f"Finished variants are in {kept}\n"
        f"To write a report: netfold report {kept}\n"
    )
    assert run_command("report", kept).exit_code == 0
    assert (kept / "report.html").is_file()


def test_a_variant_that_cannot_be_summed_up_takes_no_other_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary_of = netfold.sim.run.run.summary_of

    def summed(results: Any) -> Any:
        if len(results) == 2:
            raise InvariantError("rounds of no job")
        return summary_of(results)

    monkeypatch.setattr(netfold.sim.run.run, "summary_of", summed)
    result = run_three_variants(tmp_path)

    assert (result.exit_code, "rounds of no job" in result.stderr) == (3, True)
    assert folders(tmp_path) == ["1-unfinished-1-of-3"]
    assert "Unfinished: second, third did not run to the end.\n" in result.stdout


def test_some_variants_alone(tmp_path: Path) -> None:
    result = run_three_variants(tmp_path, "--variant", "third", "--variant", "first")

    assert (result.exit_code, folders(tmp_path)) == (0, ["1"])
    summary = load(tmp_path / "runs" / "latest").summary
    assert "unfinished" not in summary
    assert [one["name"] for one in summary["variants"]] == ["first", "third"]


def test_a_variant_that_is_not_there(tmp_path: Path) -> None:
    result = run_three_variants(tmp_path, "--variant", "secnd")

    assert result.exit_code == 2
    assert result.stderr == (
        f"{tmp_path / 'three.yaml'}: there is no variant 'secnd'\n"
        "  did you mean 'second'? variants: first, second, third\n"
    )
