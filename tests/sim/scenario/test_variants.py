"""Variants, grids and jobs of a scenario, with their host profiles, programs and fusion rules."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from ruamel.yaml import YAML

from netfold.errors import ScenarioError
from netfold.homomorphic.merge import Merge
from netfold.sim.collectives.in_network.in_network_keys import InNetworkSection
from netfold.sim.run.run import summary_of_scenario
from netfold.sim.scenario.load import load, schema
from netfold.sim.scenario.profile_keys import SwitchProfile, read_profile
from netfold.sim.scenario.variant_keys import JOB_KEYS, PoissonArrivals
from netfold.sim.scenario.yaml_tree import ScenarioText
from netfold.sim.studies.sweep_points import resolved_text
from netfold.sim.workload.fusion import ONE_BUCKET, AsGiven, BySize, Fusion, NoFusion
from netfold.sim.workload.gradient_files import GradientFile
from netfold.sim.workload.synthetic import Synthetic
from netfold.sim.workload.workload_keys import Training
from netfold.switch.profiles import PROFILES, Profile
from tests.command_line import run_command
from tests.sim.scenario.files import changed, told, write
from tests.sim.scenes import TINY, plan, refused

GRID = """\
name: grid
workers: 4
workload: {kind: synthetic, elements: 1000}
collective: {kind: ring, window: 64}
variants:
  topology:
    star: {kind: star, hosts: 4}
    racks: {kind: leaf_spine, leaves: 2, spines: 1, hosts_per_leaf: 2}
  codec:
    floats: {kind: none}
    integers: {kind: fixed_point}
  collective:
    ring: {ack_every: 8}
    gather: {kind: all_gather}
"""


def test_every_combination_is_a_variant_and_merges_like_one_of_a_list(tmp_path: Path) -> None:
    variants = load(write(tmp_path, GRID)).variants

    assert [one.name for one in variants] == [
        f"{topology}-{codec}-{collective}"
        for topology in ("star", "racks")
        for codec in ("floats", "integers")
        for collective in ("ring", "gather")
    ]
    found = [(one.topology.kind, one.collective.kind) for one in variants]
    assert found == [(kind, one) for kind in ("star", "leaf_spine") for one in ("ring", "all_gather") * 2]
    assert variants[0].codec == variants[4].codec != variants[2].codec == variants[6].codec
    ring, gather = (one.collective.model_dump() for one in variants[:2])
    assert (ring["window"], ring["ack_every"]) == (64, 8)
    assert gather["window"] == 512  # another kind replaces the mapping


METHODS = (
    GRID.partition("  codec:")[0]
    + """\
  method:
    ring: {codec: {kind: none}, collective: {ack_every: 8}}
    gather: {codec: {kind: topk}, collective: {kind: all_gather}}
"""
)


def test_an_axis_of_its_own_name_sets_several_keys(tmp_path: Path) -> None:
    variants = load(write(tmp_path, METHODS)).variants

    assert [(one.name, one.topology.kind, one.codec.kind, one.collective.kind) for one in variants] == [
        ("star-ring", "star", "none", "ring"),
        ("star-gather", "star", "topk", "all_gather"),
        ("racks-ring", "leaf_spine", "none", "ring"),
        ("racks-gather", "leaf_spine", "topk", "all_gather"),
    ]
    ring = variants[0].collective.model_dump()
    assert (ring["window"], ring["ack_every"]) == (64, 8)  # merged with the shared mapping


@pytest.mark.parametrize(
    ("change", "into", "error"),
    [
        (
            "gather: {codec",
            "gather: {codc",
            "FILE:11: variants.method.gather.codc: unknown key 'codc'\n  did you",
        ),
        (
            "    ring: {codec: {kind: none}, collective",
            "    ring: {topology",
            "FILE:10: variants.method.ring.topo",
        ),
        (
            "{codec: {kind: topk}, collective: {kind: all_gather}}",
            "{kind: all_gather}",
            "FILE:11: variants.method.gather.kind: unknown key 'kind'",
        ),
        (
            "{codec: {kind: topk}, collective: {kind: all_gather}}",
            "5",
            "FILE:11: variants.method.gather: must set keys of variants, found 5",
        ),
    ],
)
def test_an_axis_of_its_own_name_sets_known_keys_once(
    tmp_path: Path, change: str, into: str, error: str
) -> None:
    assert told(write(tmp_path, METHODS.replace(change, into))).startswith(error)


def test_the_schema_takes_a_grid() -> None:
    validator = Draft202012Validator(schema())
    read = YAML(typ="safe", pure=True).load

    assert validator.is_valid(read(GRID))
    assert validator.is_valid(read(METHODS))
    assert not validator.is_valid(read(GRID.replace("codec:", "codecs:")))


def test_the_command_line_changes_one_combination(tmp_path: Path) -> None:
    sets = ["variants.racks-floats-ring.collective.window=32"]
    windows = [one.collective.window for one in load(write(tmp_path, GRID), sets).variants]

    assert windows == [64, 512, 64, 512, 32, 512, 64, 512]


@pytest.mark.parametrize("values", ["4", "[]", "{}", "[{kind: none}]"])
def test_a_key_needs_values_by_name(tmp_path: Path, values: str) -> None:
    text = GRID.replace("    floats: {kind: none}\n    integers: {kind: fixed_point}\n", "")

    assert told(write(tmp_path, text.replace("  codec:", f"  codec: {values}"))).startswith(
        "FILE:9: variants.codec: must have its values by name"
    )


def test_two_combinations_of_one_name_are_refused(tmp_path: Path) -> None:
    text = GRID.replace("    star: ", "    a: ").replace("    racks: ", "    a-b: ")
    text = text.replace("    floats: ", "    c: ").replace("    integers: ", "    b-c: ")

    assert "the name 'a-b-c-ring' appears twice" in told(write(tmp_path, text))


def test_a_grid_is_counted_before_it_is_made(tmp_path: Path) -> None:
    """Five keys of 60 values are 3 KB of text, and would be 777,600,000 variants."""
    keys = ("topology", "codec", "collective", "workload", "device")
    values = ", ".join(f"v{number}: {{}}" for number in range(60))
    text = (
        GRID.partition("variants:")[0] + "variants:\n" + "".join(f"  {key}: {{{values}}}\n" for key in keys)
    )

    assert told(write(tmp_path, text)) == (
        "FILE:5: variants: spans 777,600,000 variants, the most is 1,000\n"
        "  use fewer values, several scenarios, or a sweep"
    )


def test_names_may_have_underscores(tmp_path: Path) -> None:
    """Also such that differ in their joints alone."""
    text = GRID.replace("    star: ", "    torus_2d: ").replace("    ring: {", "    all_gather-2: {")
    text = text.replace("name: grid", "name: my_grid")
    sets = ["variants.torus_2d-floats-all_gather-2.collective.window=32"]
    found = load(write(tmp_path, text), sets)

    assert found.name == "my_grid"
    assert found.variants[0].name == "torus_2d-floats-all_gather-2"
    assert [one.collective.window for one in found.variants][:2] == [32, 512]
    wrong = told(write(tmp_path, text.replace("my_grid", "_grid")))
    assert "must be lower-case letters, digits, '-' and '_', starting with" in wrong


def test_names_fit_into_names_of_files(tmp_path: Path) -> None:
    most = "n" * 200
    assert load(write(tmp_path, GRID.replace("name: grid", f"name: {most}"))).name == most
    longer = told(write(tmp_path, GRID.replace("name: grid", f"name: {most}n")))
    assert longer.startswith("FILE:1: name: must be text of at most 200 characters, found 'nnn")


BASE = """
name: based
workers: 2
topology: {kind: star, hosts: 2, rate: 10Gbps, delay: 1us}
workload: {kind: synthetic, elements: 500}
codec: {kind: none}
"""
LISTED = """
variants:
  - {name: ring, collective: {kind: ring}}
  - {name: tree, collective: {kind: tree}}
"""
BOTH = """
variants:
  collective: {ring: {kind: ring}, tree: {kind: tree}}
  codec: {plain: {kind: none}, halves: {kind: fp16}}
"""


def scenario(text: str) -> ScenarioText:
    return ScenarioText(BASE + text, "based.yaml")


def test_a_baseline_is_one_of_the_variants_listed_or_in_a_grid() -> None:
    assert load(scenario(f"baseline: tree{LISTED}")).baseline == "tree"
    assert load(scenario(f"baseline: tree-halves{BOTH}")).baseline == "tree-halves"
    assert load(scenario(LISTED)).baseline is None
    assert load(scenario(LISTED), sets=["baseline=ring"]).baseline == "ring"


@pytest.mark.parametrize("variants", [LISTED, BOTH])
def test_another_name_is_refused_at_its_line(variants: str) -> None:
    message = told(scenario(f"baseline: rnig{variants}"))
    assert message.startswith("based.yaml:7: baseline: there is no variant 'rnig'\n")
    assert "variants: ring" in message


def test_a_baseline_goes_into_results_and_points_of_sweeps() -> None:
    summary = summary_of_scenario(scenario(f"baseline: tree{LISTED}"))
    found = {one["name"]: (one["ranking"]["baseline"], one["metrics"]) for one in summary["variants"]}

    assert summary["baseline"] == "tree"
    assert {name: baseline for name, (baseline, _) in found.items()} == {"ring": "tree", "tree": "tree"}
    times = {name: metrics["aggregation_time_us"] for name, (_, metrics) in found.items()}
    assert summary["variants"][0]["ranking"]["times_baseline"] == times["tree"] / times["ring"]
    assert '"baseline": "tree"' in resolved_text(load(scenario(f"baseline: tree{LISTED}")))


def test_the_terminal_divides_by_the_baseline(tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text(scenario(f"baseline: tree{LISTED}").text)
    result = run_command("run", f"{tmp_path}/b.yaml", "--out", f"{tmp_path}/runs", "--no-report")

    assert result.exit_code == 0, result.output
    assert "× baseline: speedup over tree," in result.output


TWO = """\
name: two
topology: {kind: star, hosts: 8}
workers: {count: 2, placement: spread}
workload: {kind: synthetic, elements: 1000}
codec: {kind: fixed_point}
collective: {kind: in_network, slots: 64}
jobs:
  - name: a
  - name: b
    workers: 4
    start: 5ms
    collective: {timeout: 2ms}
variants:
  - name: x
  - name: y
    workload: {elements: 5}
    collective: {slots: 128}
  - name: z
    jobs: []
"""


def test_jobs_are_merged_over_what_their_variant_says(tmp_path: Path) -> None:
    x, y, z = load(write(tmp_path, TWO)).variants

    found = [(job.name, job.workers.count, job.workers.placement, job.start) for job in x.jobs]
    assert found == [("a", 2, "spread", 0), ("b", 4, "spread", 5 * 10**9)]
    for variant, slots, elements in ((x, 64, 1000), (y, 128, 5)):
        for job in variant.jobs:
            assert isinstance(job.collective, InNetworkSection)
            assert (job.collective.slots, job.workload.elements) == (slots, elements)  # type: ignore[union-attr]
    assert [job.collective.timeout for job in x.jobs] == ["auto", 2 * 10**9]
    assert z.jobs == ()


def test_a_variant_needs_nothing_that_all_its_jobs_bring(tmp_path: Path) -> None:
    text = TWO.replace("workers: {count: 2, placement: spread}\n", "").replace(
        "name: a", "name: a\n    workers: 3"
    )

    x, y, _ = load(
        write(tmp_path, text.replace("  - name: z\n    jobs: []\n", "  - {name: z, workers: 1}\n"))
    ).variants

    assert [job.workers.count for job in x.jobs] == [job.workers.count for job in y.jobs] == [3, 4]
    assert x.workers.count == 3


def test_the_command_line_wins_over_jobs_and_reaches_each(tmp_path: Path) -> None:
    x, *_ = load(write(tmp_path, TWO), ["collective.timeout=9ms", "variants.x.jobs.a.workers=3"]).variants

    assert [job.collective.timeout for job in x.jobs] == [9 * 10**9] * 2
    assert [(job.workers.count, job.workers.placement) for job in x.jobs] == [(3, "spread"), (4, "spread")]

    x, y, _ = load(write(tmp_path, TWO), ["variants.y.jobs.b.start=1s", "jobs=[{name: c}]"]).variants
    assert [job.name for job in (*x.jobs, *y.jobs)] == ["c", "c"]
    assert x.jobs[0].workers.placement == "spread"


def test_an_error_points_to_the_line_of_the_job_or_of_what_it_took_over(tmp_path: Path) -> None:
    path = write(tmp_path, TWO)
    scenario = load(path)

    def where(key: str) -> str:
        return str(scenario.error(key, "wrong", variant="x")).replace(str(path), "FILE")

    assert where("jobs.b.collective.timeout") == "FILE:12: jobs.b.collective.timeout: wrong"
    assert where("jobs.b.collective.slots") == "FILE:6: collective.slots: wrong"
    assert where("jobs.a.collective.timeout") == "FILE:6: collective.timeout (default): wrong"


MISTAKES = [
    (
        "  - name: b\n",
        "  - name: a\n",
        "FILE:9: jobs.a: the name 'a' appears twice\n  it is already on line 8",
    ),
    (
        "  - name: a\n",
        "  - a\n",
        "FILE:8: jobs.0: must be a mapping, found 'a'\n  each job has a name and the keys it changes",
    ),
    (
        "    start: 5ms",
        "    topology: {hosts: 3}",
        "FILE:11: jobs.b.topology: unknown key 'topology'\n  "
        "allowed: name, start, count, arrivals, fallback, workers, hosts, workload, device, overlap, codec, "
        "collective, published",
    ),
    (
        "    start: 5ms",
        "    fallback: {kind: ring, windw: 3}",
        "FILE:11: jobs.b.fallback.windw: unknown key 'windw'\n  did you mean 'window'? ",
    ),
    ("workers: {count: 2, placement: spread}\n", "", "FILE:7: jobs.a: the key 'workers' is missing\n"),
]


GRID_MISTAKES = [
    ("  codec:\n", "  codecs:\n", "FILE:9: variants.codecs: unknown key 'codecs'\n  did you mean 'codec'?"),
    (
        "    star: {kind: star, hosts: 4}\n",
        "    star: {kind: star, host: 4}\n",
        "FILE:7: variants.topology.star.host: unknown key 'host'\n  did you mean 'hosts'?",
    ),
    (
        "    ring: {ack_every: 8}",
        "    a b: {ack_every: 8}",
        "FILE:13: variants.collective.a b: 'a b' cannot be part of a variant's name",
    ),
]


@pytest.mark.parametrize(
    ("text", "old", "new", "error"),
    [*((TWO, *mistake) for mistake in MISTAKES), *((GRID, *mistake) for mistake in GRID_MISTAKES)],
)
def test_mistakes_name_their_place(tmp_path: Path, text: str, old: str, new: str, error: str) -> None:
    assert text.count(old) == 1
    message = told(write(tmp_path, text.replace(old, new)))

    assert message.startswith(error), message


SETS = [
    ("jobs.c.workers=1", "--set: jobs.c.workers: there is no job 'c'\n  jobs: a, b"),
    (
        "variants.z.jobs.a.workers=1",
        "--set: variants.z.jobs.a.workers: there is no job 'a'\n  this variant has no jobs; "
        "write the list whole",
    ),
    ("jobs.a=1", "--set: jobs.a: a job cannot be replaced as a whole\n  use jobs.NAME.PATH=VALUE"),
    ("jobs.a.seed=1", f"--set: jobs.a.seed: unknown key 'seed'\n  allowed: {', '.join(JOB_KEYS)}"),
]


@pytest.mark.parametrize(("text", "error"), SETS)
def test_mistakes_on_the_command_line(tmp_path: Path, text: str, error: str) -> None:
    path = write(tmp_path, TWO if "variants.z" in text else TWO.replace("  - name: z\n    jobs: []\n", ""))

    assert told(path, [text]) == error


@pytest.mark.parametrize(
    ("jobs", "starts_us"),
    [
        ("{name: a, count: 2, start: 3us}, {name: b}", [("a-1", 3), ("a-2", 3), ("b", 0)]),
        (
            "{name: a, start: 1us, arrivals: {kind: fixed, at: [0us, 2us, 2us]}}",
            [("a-1", 1), ("a-2", 3), ("a-3", 3)],
        ),
        ("{name: a, count: 3, arrivals: {kind: even, gap: 5us}}", [("a-1", 0), ("a-2", 5), ("a-3", 10)]),
    ],
)
def test_arrivals_count_from_the_start(tmp_path: Path, jobs: str, starts_us: list[tuple[str, int]]) -> None:
    (variant,) = plan(tmp_path, text=f"{TINY}admission: fifo\njobs: [{jobs}]\n").variants
    starts = [(name, job.start_ps) for name, job in zip(variant.job_names, variant.jobs, strict=True)]
    assert starts == [(name, 10**6 * start_us) for name, start_us in starts_us]


def test_equal_ranges_of_slots_leave_no_gaps(tmp_path: Path) -> None:
    """Six hosts run two of the six jobs at a time; ranges of one size need no more slots than these have."""
    sets = "workers: 3, collective: {kind: in_network, frame: udp-256, slots: 64}"
    text = f"{TINY.replace('hosts: 4', 'hosts: 6')}admission: fifo\njobs: [{{name: a, count: 6, {sets}}}]\n"
    (variant,) = plan(tmp_path, text=text).variants

    assert variant.admission is not None
    assert [*variant.admission.room.values()] == [2 * 64]


def test_poisson_gaps_are_exponential_and_independent() -> None:
    mean, count = 1_000_000, 20_000
    times = PoissonArrivals(mean_gap_ps=1_000_000).times_ps(count, 1, 0)
    gaps = [after - before for before, after in zip((0, *times), times, strict=False)]

    assert sum(gaps) / count == pytest.approx(mean, rel=4 / math.sqrt(count))
    # Kolmogorov and Smirnov: the largest distance of the distributions is below 1.95 / √n but once in 1000.
    distance = max(
        abs(rank / count - (1 - math.exp(-gap / mean))) for rank, gap in enumerate(sorted(gaps), start=1)
    )
    assert distance < 1.95 / math.sqrt(count)
    centred = [gap - mean for gap in gaps]
    together = sum(a * b for a, b in itertools.pairwise(centred)) / (count * mean**2)
    assert abs(together) < 4 / math.sqrt(count)


def test_poisson_arrivals_are_those_of_the_seed_and_the_place_in_the_list() -> None:
    arrivals = PoissonArrivals(mean_gap_ps=1_000_000)

    assert arrivals.times_ps(5, 1, 0) == arrivals.times_ps(9, 1, 0)[:5]
    assert arrivals.times_ps(5, 1, 0) != arrivals.times_ps(5, 2, 0)
    assert arrivals.times_ps(5, 1, 0) != arrivals.times_ps(5, 1, 1)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        *(
            (f"admission: fifo\njobs: {jobs}", words)
            for jobs, words in (
                ("[{name: a, count: 2, arrivals: {kind: poisson, mean_gap: 0us}}]", "mean_gap"),
                ("[{name: a, arrivals: {kind: fixed, at: [-1us]}}]", "at"),
                ("[{name: a, arrivals: {kind: fixed, at: []}}]", "at least one time"),
                ("[{name: a, arrivals: {kind: fixed, at: [2us, 1us]}}]", "in order"),
                ("[{name: a, count: 3, arrivals: {kind: fixed, at: [1us]}}]", "leave out count"),
                ("[{name: a, count: 1001}]", "1000"),
                ("[{name: a-1}, {name: a, count: 1}]", "'a-1'"),
                ("[{name: a}, {name: b, hosts: {message: 1us}}]", "b.hosts: with admission: fifo any"),
                ("[{name: a, count: 1000}, {name: b, count: 1000}, {name: c}]", "2,001 jobs are too many"),
            )
        ),
        ("jobs: [{name: a, workers: 2, count: 3}]", "hosts"),  # each job has its own
        ("jobs: [{name: a, workers: 1, fallback: {kind: ring}}]", "admission: fifo"),
        ("admission: fifo", "one job"),
        (
            "admission: fifo\nfaults: [{kind: worker_crash, worker: 0, at: 1us}]\njobs: [{name: a}]",
            "admission: reserved",
        ),
    ],
)
def test_jobs_that_cannot_be_are_refused_in_words(tmp_path: Path, more: str, words: str) -> None:
    assert words in refused(tmp_path, text=f"{TINY}{more}\n")


OWN = """\
name: mine
like: tofino1
summary: half a Tofino
stages: 6
pass_latency: 500ns
port_rate: 25Gbps
loopback_rate: 0bps
parser_limit: 1KiB
merges: [add, float_add]
overflows: [saturate]
is_lossless: true
adder_bits: [8, 32]
"""


def profiles(folder: Path, section: str, *sets: str) -> dict[str, Profile]:
    text = changed("topology:\n", f"profiles:\n{section}topology:\n")
    return dict(load(write(folder, text), sets).switch_profiles)


def check(found: Profile) -> None:
    """It is what `OWN` says, and otherwise Tofino."""
    numbers = {"stages": 6, "pass_latency_ps": 500_000, "port_rate_bps": 25 * 10**9, "loopback_rate_bps": 0}
    rules = {"merges": {Merge.ADD, Merge.FLOAT_ADD}, "overflows": ("saturate",), "is_lossless": True}
    changes = {
        **numbers,
        **rules,
        "parser_limit_bytes": 1024,
        "adder_bits": (8, 32),
        "sources": found.sources,
    }
    assert found == replace(PROFILES["tofino1"], name="mine", summary="half a Tofino", **changes)


def test_in_the_scenario(tmp_path: Path) -> None:
    indented = "".join(f"    {line}\n" for line in OWN.splitlines())
    found = profiles(tmp_path, f"  -{indented[3:]}")["mine"]

    check(found)
    assert found.sources["stages"] == f"{tmp_path}/scenario.yaml:4"
    assert found.sources["phv_bits"] == PROFILES["tofino1"].sources["phv_bits"]


def test_in_a_file_beside_the_scenario(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(OWN, "utf-8")
    found = profiles(tmp_path, "  - own.yaml\n  - {name: other, like: trio}\n")

    assert list(found) == ["mine", "other"]
    check(found["mine"])
    check(read_profile(str(tmp_path / "own.yaml")))
    assert found["other"].memory_bytes == PROFILES["trio"].memory_bytes


def test_the_command_line_changes_them(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(OWN, "utf-8")

    assert profiles(tmp_path, "  - own.yaml\n", "profiles.mine.stages=7")["mine"].stages == 7
    check(profiles(tmp_path, "  - {name: other, like: trio}\n", "profiles=[own.yaml]")["mine"])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            OWN.replace("stages: 6", "stages: 0"),
            "own.yaml:4: stages: must be at least 1 in a pipeline, found 0\n  tofino1 has 12",
        ),
        (OWN.replace("[8, 32]", "[8, 12]"), "own.yaml:12: adder_bits.1: cannot use 12\n  allowed: 8, 16, 32"),
        (OWN.replace("like: tofino1\n", ""), "own.yaml:1: the key 'like' is missing\n  like: Known profile"),
        ("stages: [\n", "own.yaml:2: broken YAML"),
    ],
)
def test_a_mistake_in_a_file_is_told_with_its_line_there(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(text, "utf-8")

    with pytest.raises(ScenarioError) as alone:
        read_profile(str(path))
    with pytest.raises(ScenarioError) as in_scenario:
        profiles(tmp_path, "  - own.yaml\n")
    assert str(alone.value).startswith(f"{tmp_path}/{told}")
    assert str(in_scenario.value).startswith(f"{tmp_path}/")
    assert told.partition("\n")[0].rpartition(": ")[2] in str(in_scenario.value)


def test_every_key_is_a_field_of_profiles() -> None:
    """What a scenario may change is named as there, without units."""
    fields = {
        key.removesuffix(unit) for key in Profile.__dataclass_fields__ for unit in ("_bps", "_ps", "_bytes")
    }

    assert set(SwitchProfile.model_fields) - {"like"} <= fields


ONE = """\
name: one
topology: {kind: star, hosts: 8}
workers: 2
workload: {kind: synthetic, elements: 1000}
codec: {kind: fixed_point}
collective:
  kind: in_network
"""


def refused_collective(folder: Path, *lines: str) -> str:
    return told(write(folder, ONE + "".join(f"  {line}\n" for line in lines)))


def test_timed_slots_have_a_timer(tmp_path: Path) -> None:
    (variant,) = load(write(tmp_path, f"{ONE}  program: timed\n  slot_timer: 1ms\n")).variants
    section = variant.collective
    assert isinstance(section, InNetworkSection)
    chosen = (section.frame, section.slots, section.message_packets, section.slot_timer)
    assert chosen == ("udp-1024", "auto", 1, 10**9)


@pytest.mark.parametrize(
    ("program", "line", "owners"),
    [
        ("switchml", "slot_timer: 1ms", "program timed"),
        ("tree", "entries: 10", "program atp"),
        ("atp", "timeout_max: 1s", "programs switchml and timed"),
        ("atp", "message_packets: 1", "program switchml"),
    ],
)
def test_options_of_other_programs_are_refused(tmp_path: Path, program: str, line: str, owners: str) -> None:
    key = line.partition(":")[0]

    assert refused_collective(tmp_path, f"program: {program}", line) == (
        f"FILE:9: collective.{key}: {key} belongs to {owners}, found program {program}\n  remove it"
    )


def test_values_that_a_program_cannot_have_are_refused(tmp_path: Path) -> None:
    assert refused_collective(tmp_path, "program: timed") == (
        "FILE:6: collective.slot_timer: program timed needs a slot timer\n  for example slot_timer: 1ms"
    )
    assert refused_collective(tmp_path, "program: atp", "overflow: wrap") == (
        "FILE:9: collective.overflow: program atp keeps words at the limit, where its server sees them; "
        "found 'wrap'\n  use sticky, or leave it out"
    )
    assert refused_collective(tmp_path, "program: timed", "slot_timer: 0us") == (
        "FILE:9: collective.slot_timer: must be more than 0\n  a slot that does not wait aggregates nothing"
    )


@pytest.mark.parametrize(
    ("program", "frame", "hint"),
    [
        ("switchml", "roce-2048", "did you mean 'roce-1024'? allowed: udp-256, udp-1024, roce-1024"),
        ("tree", "udp-256", "allowed: roce-1024, roce-2048"),
        ("atp", "udp-256", "allowed: atp"),
    ],
)
def test_every_program_has_frames_of_its_own(tmp_path: Path, program: str, frame: str, hint: str) -> None:
    assert refused_collective(
        tmp_path, f"program: {program}", f"frame: {frame}", "slot_timer: 1ms"
    ).startswith(f"FILE:9: collective.frame: cannot use '{frame}' with program {program}\n  {hint}")


ELEMENTS = "kind: synthetic\n  elements: 1000\n  density: 5%"


def workload(text: str) -> str:
    """The scenario with another workload; the lines of `text` are its keys."""
    return changed(ELEMENTS, text.replace("\n", "\n  "))


def rules(folder: Path, text: str, *sets: str) -> list[Fusion]:
    """The rule of each variant."""
    found = [variant.workload for variant in load(write(folder, text), sets).variants]
    assert all(isinstance(one, Training | Synthetic | GradientFile) for one in found)
    return [one.fusion for one in found]


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("kind: synthetic\nelements: 10", ONE_BUCKET),
        ("kind: synthetic\nelements: 10\nbucket: 8KiB", BySize(8192)),
        ("kind: synthetic\nelements: 10\nbucket:", ONE_BUCKET),
        ("kind: synthetic\nelements: 10\nfusion: {kind: size, bytes: 8KiB}", BySize(8192)),
        ("kind: synthetic\nelements: 10\nfusion: {kind: none}", NoFusion()),
        (
            "kind: training\nmodel: mlp\nfusion: {kind: partition, buckets: [['2'], [1]]}",
            AsGiven((("2",), (1,))),
        ),
    ],
)
def test_rules_and_their_short_form(tmp_path: Path, text: str, rule: Fusion) -> None:
    assert rules(tmp_path, workload(text)) == [rule, rule]
    Draft202012Validator(schema()).validate(YAML(typ="safe", pure=True).load(workload(text)))


def test_the_short_form_merges_as_the_long_one(tmp_path: Path) -> None:
    """A variant or the command line may say the other than the file."""
    short = workload("kind: synthetic\nelements: 10\nbucket: 8KiB")
    variant = short.replace("  - name: ring", "  - name: ring\n    workload: {fusion: {kind: none}}")
    back = variant.replace("bucket: 8KiB", "fusion: {kind: one}").replace(
        "{fusion: {kind: none}}", "{bucket: 2B}"
    )

    assert rules(tmp_path, variant) == [BySize(8192), NoFusion()]
    assert rules(tmp_path, back) == [ONE_BUCKET, BySize(2)]
    assert rules(tmp_path, variant, "workload.bucket=1KiB") == [BySize(1024)] * 2
    assert rules(tmp_path, variant, "workload.fusion={kind: one}") == [ONE_BUCKET] * 2
    assert rules(tmp_path, short, "workload.fusion.bytes=3B") == [BySize(3)] * 2
    assert rules(tmp_path, variant, "variants.ring.workload.bucket=1KiB") == [BySize(8192), BySize(1024)]


def test_a_change_to_tensors_drops_the_elements_and_back(tmp_path: Path) -> None:
    text = workload("kind: synthetic\nelements: 10")
    text = text.replace("  - name: ring", "  - name: ring\n    workload: {tensors: [3x4, 4]}")

    def found(*sets: str) -> list[tuple[int | None, tuple[str | int, ...] | None]]:
        workloads = [variant.workload for variant in load(write(tmp_path, text), sets).variants]
        return [(one.elements, one.tensors) for one in workloads if isinstance(one, Synthetic)]

    assert found() == [(10, None), (None, ("3x4", 4))]
    assert found("workload.elements=7") == [(7, None)] * 2
    assert found("workload.tensors=[a=5x5]") == [(None, ("a=5x5",))] * 2
    assert found("variants.switch.workload.tensors=[5]") == [(None, (5,)), (None, ("3x4", 4))]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "kind: synthetic\nelements: 10\nbucket: 8KiB\nfusion: {kind: none}",
            "12: workload.bucket: bucket and fusion are both given\n"
            "  bucket: 8KiB is short for fusion: {kind: size, bytes: 8KiB}: leave out one",
        ),
        ("kind: synthetic\nelements: 10\nbucket: 0B", "workload.bucket: must be more than 0, found '0B'"),
        (
            "kind: synthetic\ndensity: 1%",
            "workload: the key 'elements' is missing\n  give the elements of the gradient",
        ),
        (
            "kind: synthetic\nelements: 10\ntensors: [10]",
            "workload: elements and tensors are both given\n  the tensors say how many: leave out elements",
        ),
        (
            "kind: synthetic\ntensors: [3x, 4]",
            "workload.tensors: cannot read the tensor '3x'\n"
            "  a tensor is written 128x64, or with its name fc1.weight=128x64",
        ),
        ("kind: synthetic\ntensors: [a=3, a=4]", "workload.tensors: the name 'a' appears twice"),
    ],
)
def test_mistakes_are_reported_where_they_are(tmp_path: Path, text: str, message: str) -> None:
    assert message in told(write(tmp_path, workload(text)))
