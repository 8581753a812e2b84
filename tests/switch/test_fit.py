"""What programs take of switches: the published examples, the passes, and every refusal in full."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.homomorphic.message import Merge
from netfold.switch.custom import derived
from netfold.switch.fit import Fit, FitError, can_run, check_merges, check_overflow, fit, suits
from netfold.switch.profiles import PROFILES, Profile
from netfold.switch.program import Demand, UnknownProgramError
from netfold.switch.programs import declare, programs
from netfold.switch.registers import new_registers
from tests.examples import examples

TOFINO1, TOFINO2, IDEAL = PROFILES["tofino1"], PROFILES["tofino2"], PROFILES["ideal"]


def fitted(profile: Profile, program: str, **changes: Any) -> Fit:
    """A program as released, with some settings changed."""
    return fit(profile, program, replace(programs()[program].released, **changes))


def refused(profile: Profile, program: str, **changes: Any) -> FitError:
    with pytest.raises(FitError) as error:
        fitted(profile, program, **changes)
    return error.value


def blocks(fit: Fit) -> int:
    return sum(stage.blocks for stage in fit.stages)


# What the sources say of the released programs.


def test_switchml_as_released() -> None:
    """32 ALUs for values and 4 for the rest in 11 of 12 stages; 288 blocks for values of 9 each."""
    found = fitted(TOFINO1, "switchml")

    assert [stage.salus for stage in found.stages] == [1, 1, 2] + 8 * [4]
    assert [stage.blocks for stage in found.stages] == [9, 5, 5 + 3] + 8 * [36]
    assert blocks(found) == 32 * 9 + 22
    assert [part.name for stage in found.stages[:4] for part in stage.parts] == [
        *("receiver", "bitmap", "counter", "exponents", "values")
    ]


def test_atp_as_released() -> None:
    """35 arrays of 40,000 entries: two for every aggregator, for packets that pass twice."""
    found = fitted(TOFINO1, "atp")

    assert found.program.salus == 35
    assert {register.entries for register in found.program.registers} == {40_000}
    assert blocks(found) == 385
    assert found.packet_passes == 2


def test_atp_in_one_pass_explains_why_it_takes_two() -> None:
    """Arrays would be half as long and twice as many."""
    assert str(refused(TOFINO1, "atp", words_per_pass=62)) == (
        "ATP with 62 words a pass needs 66 stateful ALUs (62 for values), tofino1 has 48; "
        "use 36 words a pass at most"
    )
    one_pass = fitted(IDEAL, "atp", words_per_pass=62).program
    assert {register.entries for register in one_pass.registers} == {20_000}


def test_inca_needs_the_stages_of_tofino2() -> None:
    assert str(refused(TOFINO1, "inca")) == (
        "INCA with 64 words a pass needs 66 stateful ALUs (64 for values), tofino1 has 48; "
        "use 40 words a packet at most"  # in the 10 stages behind round and counter
    )
    found = fitted(TOFINO2, "inca")
    assert len(found.stages) == 2 + 64 // 4
    assert blocks(found) == 704 + 2 * 6


def test_switchml_with_128_words_a_pass() -> None:
    """64 ALUs for values: more than Tofino has; Tofino 2 has them, but cannot see so much of a packet."""
    assert str(refused(TOFINO1, "switchml", words=128)) == (
        "SwitchML with 128 words a pass needs 68 stateful ALUs (64 for values), tofino1 has 48; "
        "use 64 (256 B) or 256 words (1024 B) a packet"
    )
    assert str(refused(TOFINO2, "switchml", words=128)) == (
        "SwitchML with 128 words a pass needs 4688 bits of packet header vector, tofino2 has 3072; "
        "use 64 (256 B) or 256 words (1024 B) a packet"
    )


# Passes.


@pytest.mark.parametrize("workers", [1, 2, 8, 16])
def test_passes_of_a_slot_round_on_tofino(workers: int) -> None:
    """Of n packets: n + 1 with 64 words, 4n + 7 with 256; ATP 2n, and 2 for the server's reply."""
    small, large = (fitted(TOFINO1, "switchml", words=words) for words in (64, 256))

    assert small.round_passes(workers) == workers + 1
    assert large.round_passes(workers) == 4 * workers + 7
    assert fitted(TOFINO1, "atp").round_passes(workers) == 2 * workers + 2
    assert (small.extra_passes, large.extra_passes) == (1, 10)
    assert (small.result_latency_ps, large.result_latency_ps) == (2 * 600_000, 11 * 600_000)


def test_tofino2_returns_both_words_of_an_entry() -> None:
    """So 64 words are read out as they are added, and 256 in half the passes: 4 of 64 words instead of 8."""
    assert fitted(TOFINO2, "switchml").extra_passes == 0
    assert fitted(TOFINO2, "switchml", words=256).extra_passes == 3 + 3


@pytest.mark.parametrize("name", ["ideal", "fpga", "trio"])
@pytest.mark.parametrize("words", [64, 128, 256])
def test_other_switches_take_one_pass(name: str, words: int) -> None:
    found = fitted(PROFILES[name], "switchml", words=words)

    assert (found.extra_passes, found.stages, found.loopback_ports) == (0, (), 0)
    assert found.round_passes(8) == 8


@pytest.mark.parametrize(
    ("program", "changes", "ports"),
    [
        ("switchml", {}, 1),  # reading out goes once for all workers
        ("switchml", {"words": 256}, 8 * 3 + 7),  # a port a worker in each further pipe, and one a pass
        ("switchml", {"words": 256, "rate_bps": 10**10}, 4),  # 31 streams of 10 Gbps
        ("atp", {}, 1),  # packets that end in the switch are resubmitted
        ("inca", {"words": 36, "words_per_pass": 18}, 8),
    ],
)
def test_loopback_ports(program: str, changes: dict[str, int], ports: int) -> None:
    assert fitted(TOFINO1, program, **changes).loopback_ports == ports


# Memory.


@pytest.mark.parametrize(("slots", "size_bytes"), [(128, 256 * 1024), (512, 1024 * 1024), (8192, 16 << 20)])
def test_register_bytes_are_the_values_of_both_versions(slots: int, size_bytes: int) -> None:
    """At 128 and 512 slots the pool sizes of SwitchML's paper; and what the emulator really allocates."""
    assert size_bytes == fitted(TOFINO1, "switchml", slots=slots, words=256).register_bytes
    assert size_bytes == new_registers(slots, 256).values.nbytes


def test_the_longest_register_array_fits_and_one_slot_more_does_not() -> None:
    """11 blocks of 2048 pairs, two versions: 11,264 slots; the released program names the limit of 22,528."""
    longest = fitted(TOFINO1, "switchml", slots=11_264)
    assert {stage.blocks for stage in longest.stages[3:]} == {48}

    assert str(refused(TOFINO1, "switchml", slots=11_265)) == (
        "11265 slots need 32 register arrays of 22530 entries (13 map RAMs each), "
        "tofino1 with 48 map RAMs a stage has room for 27; use 11264 slots at most"
    )


def test_where_sram_is_scarcer_than_map_rams() -> None:
    small = derived("small", "tofino1", {"sram_blocks_per_stage": 20}, "here")

    assert str(refused(small, "switchml")) == (
        "8192 slots need 32 register arrays of 16384 entries (9 SRAM blocks each), "
        "small with 20 SRAM blocks a stage has room for 18; use 4096 slots at most"
    )


def test_an_ideal_switch_has_no_limit_on_slots() -> None:
    assert fitted(IDEAL, "switchml", slots=10**6, workers=32).extra_passes == 0


def test_memory_that_is_all_a_switch_has() -> None:
    assert str(refused(PROFILES["fpga"], "switchml", slots=10**8)) == (
        "100000000 slots of 64 words take 49.5 GiB, fpga has 8.00 GiB; use 16146247 slots at most"
    )


# Refusals.


def test_arrays_that_wait_for_each_other() -> None:
    """44 ALUs of 48 would do, but three stages are gone before the first value can be added."""
    assert str(refused(TOFINO1, "switchml", words=80)) == (
        "SwitchML with 80 words a pass needs 44 stateful ALUs in stages that wait for each other, "
        "the 12 stages of tofino1 have room for 36 of its 40 arrays 'values'; "
        "use 64 (256 B) or 256 words (1024 B) a packet"
    )


def test_folded_packets_have_rules_for_sixteen_workers_only() -> None:
    """Released rules choose the loopback port by worker id, from 0 to 15; one pass needs none of them."""
    assert fitted(TOFINO1, "switchml", workers=32).extra_passes == 1
    assert fitted(TOFINO1, "switchml", workers=16, words=256).loopback_ports == 55
    assert str(refused(TOFINO1, "switchml", workers=70, words=256)) == (
        "SwitchML cannot fold packets of 256 words over 4 pipelines for 70 workers; use 16 workers at most"
    )  # the reason that the number follows from, though its bitmap has 32 bits
    assert str(refused(TOFINO1, "switchml", workers=17, words=256)) == (
        "SwitchML cannot fold packets of 256 words over 4 pipelines for 17 workers; "
        "use 16 workers at most, or 64 words (256 B) a packet"
    )


def test_more_traffic_than_loopback_ports_take() -> None:
    found = refused(TOFINO2, "switchml", workers=16, words=256)

    assert found.about == "workers"
    assert str(found) == (
        "16 workers send 20400 Gbps through loopback ports with SwitchML, tofino2 has 32 of 400 Gbps; "
        "use 9 workers at most, or 64 words (256 B) a packet"
    )
    assert fitted(TOFINO2, "switchml", workers=16, words=256, rate_bps=10**11).loopback_ports == 13


def test_more_pipelines_than_there_are() -> None:
    assert str(refused(TOFINO1, "switchml", words=256, words_per_pass=32)) == (
        "SwitchML needs 8 pipelines in a row for 256 words, 32 in each, tofino1 has 4; "
        "use a switch that can: ideal, fpga, trio"
    )


def test_fewer_words_a_pass_need_more_pipelines() -> None:
    """62 words a pass would need five of four pipelines, 72 need four."""
    assert refused(TOFINO1, "switchml", words=250, words_per_pass=62).about == "words_per_pass"
    assert refused(TOFINO1, "switchml", words=250, words_per_pass=250).hint == "use 72 words a pass at most"


def test_a_switch_that_only_forwards() -> None:
    found = refused(PROFILES["plain"], "switchml")

    assert found.about == "profile"
    assert str(found) == (
        "switch profile 'plain' only forwards; use a switch that can: ideal, tofino1, tofino2, fpga, trio"
    )


def test_timers() -> None:
    assert str(refused(TOFINO1, "timed")) == (
        "the timed program needs timers, tofino1 has none; use a switch that can: ideal, trio"
    )
    clock = derived("clock", "tofino1", {"has_timers": True}, "here")
    assert len(fitted(clock, "timed").stages) == 11


def test_sharp_runs_trees_alone() -> None:
    found = refused(PROFILES["sharp"], "switchml")

    assert found.about == "program"
    assert str(found) == (
        "sharp runs program tree alone, found switchml; "
        "use program tree, or a programmable switch: ideal, tofino1, tofino2, fpga, trio"
    )
    assert fitted(PROFILES["sharp"], "tree", slots=23, words=512).extra_passes == 0


@pytest.mark.parametrize(
    ("changes", "about", "message"),
    [
        (
            {"slots": 24},
            "slots",
            "24 slots need as many outstanding operations, sharp has 23; use 23 slots at most",
        ),
        (
            {"words": 513},
            "words",
            "an operation of sharp holds 2048 B, 513 words a packet are 2052 B; "
            "use 64 (256 B), 256 (1024 B) or 512 words (2048 B) a packet",
        ),
        ({"jobs": 13}, "jobs", "13 jobs need a group each, sharp has 12; use 12 jobs at most"),
    ],
)
def test_what_sharp_has_reserved(changes: dict[str, int], about: str, message: str) -> None:
    found = refused(PROFILES["sharp"], "tree", **changes)

    assert (about, message) == (found.about, str(found))


@pytest.mark.parametrize("name", ["ideal", "tofino1", "fpga"])
def test_more_workers_than_bits(name: str) -> None:
    """A limit of the program, so of every switch; of SwitchML's, a switch may have a narrower one."""
    limit, width = (32, "one 32-bit word") if name == "tofino1" else (64, "64 bits wide")
    assert fitted(PROFILES[name], "switchml", workers=limit)
    assert str(refused(PROFILES[name], "switchml", workers=limit + 1)) == (
        f"SwitchML cannot tell {limit + 1} workers apart: its bitmap is {width}; use {limit} workers at most"
    )
    assert str(refused(PROFILES[name], "atp", workers=40)) == (
        "ATP cannot tell 40 workers apart: its bitmap is one 32-bit word; use 32 workers at most"
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"bitmap_bits": 16},
            "SwitchML cannot tell 20 workers apart: its bitmap is one 16-bit word; use 16 workers at most",
        ),
        (
            {"salu_lanes": 1},
            "SwitchML keeps entries of 64 bits in 'receiver', a stateful ALU of odd takes 32; "
            "use a switch that can: ideal, tofino1, tofino2, fpga, trio",
        ),
        (
            {"parser_limit_bytes": 65},
            "SwitchML has headers of 74 B, odd parses 65 B; "
            "use a switch that can: ideal, tofino1, tofino2, fpga, trio",
        ),
        (
            {"loopback_ports": 0},
            "20 workers send 100 Gbps through loopback ports with SwitchML, odd has 0 of 100 Gbps; "
            "use a switch that can: ideal, tofino1, tofino2, fpga, trio",
        ),
    ],
)
def test_limits_of_a_custom_profile(changes: dict[str, object], message: str) -> None:
    odd = derived("odd", "tofino1", changes, "here")

    assert message == str(refused(odd, "switchml", workers=20))


@pytest.mark.parametrize(("workers", "words"), [(32, 1), (33, 2), (64, 2)])
def test_a_wider_bitmap_takes_registers(workers: int, words: int) -> None:
    """Each 32 workers take a register of both versions' bitmaps, and entries for their queue pairs."""
    wide = derived("wide", "tofino1", {"bitmap_bits": 64}, "here")
    found = fitted(wide, "switchml", workers=workers)

    registers = {register.name: register for register in found.program.registers}
    assert (registers["bitmap"].count, registers["bitmap"].entries) == (words, 8192)
    assert registers["receiver"].entries == words * 32 * 512
    assert found.program.salus == 32 + 3 + words
    arrays = sum(part.arrays for stage in found.stages for part in stage.parts if part.name == "bitmap")
    assert arrays == words
    told = str(refused(wide, "switchml", workers=65))
    assert "tell 65 workers apart: its bitmap is 64 bits wide" in told


def test_what_nothing_can_run() -> None:
    assert str(refused(IDEAL, "switchml", workers=65)).endswith("use 64 workers at most")
    assert str(refused(TOFINO1, "timed", workers=33)).endswith("use a switch that can: there is none")


def test_an_unknown_program() -> None:
    with pytest.raises(UnknownProgramError) as error:
        fit(TOFINO1, "swichml", Demand(8, 512, 64))
    assert str(error.value) == (
        "there is no program 'swichml'; did you mean 'switchml'? known: switchml, tree, timed, atp, inca"
    )


# Laws.


@examples(60)
@given(
    program=st.sampled_from(["switchml", "atp", "inca", "tree"]),
    profile=st.sampled_from([TOFINO1, TOFINO2]),
    demand=st.builds(
        Demand,
        st.integers(1, 60),
        st.integers(1, 100_000),
        st.integers(1, 300),
        st.none() | st.integers(1, 100),
    ),
)
def test_the_most_that_a_refusal_names_fits_and_one_more_does_not(
    program: str, profile: Profile, demand: Demand
) -> None:
    try:
        fit(profile, program, demand)
        return
    except FitError as error:
        found = re.search(r"use (\d+) (?:workers|slots|words) ", error.hint)
        if found is None or "at most" not in error.hint:
            return
        about, most = error.about, int(found[1])
    fit(profile, program, replace(demand, **{about: most}))
    with pytest.raises(FitError):
        fit(profile, program, replace(demand, **{about: most + 1}))


@pytest.mark.parametrize("program", programs())
def test_the_ideal_switch_runs_everything(program: str) -> None:
    assert programs()[program].words
    for words in programs()[program].words:
        assert fitted(IDEAL, program, words=words).extra_passes == 0


@pytest.mark.parametrize("program", programs())
def test_registers_hold_every_word_of_every_slot(program: str) -> None:
    """With versions and pairs, for any split into passes; INCA keeps a word in 64 bits."""
    demand = programs()[program].released
    copies = {"switchml": 2, "timed": 2, "inca": 2}.get(program, 1)

    assert declare(program, demand).values_bytes == copies * 4 * demand.slots * demand.words


# Merges and overflow.


def test_merges_that_a_switch_cannot_do() -> None:
    check_merges(TOFINO1, {Merge.ADD, Merge.OR, Merge.MAX})
    check_merges(PROFILES["sharp"], {Merge.FLOAT_ADD})
    check_merges(TOFINO2, {Merge.TABLE_ADD})
    with pytest.raises(FitError) as error:
        check_merges(TOFINO1, {Merge.ADD, Merge.FLOAT_ADD, Merge.SIGN})
    assert error.value.about == "merges"
    assert str(error.value) == (
        "switch profile 'tofino1' cannot merge words by float_add, sign (it can: add, max, or); "
        "use a switch that can (ideal, fpga), or a codec that needs no more than it can"
    )


@pytest.mark.parametrize(
    ("name", "able"), [("ideal", "add, float_add, max, or, sign, table_add"), ("plain", "nothing")]
)
def test_no_switch_gathers(name: str, able: str) -> None:
    with pytest.raises(FitError) as error:
        check_merges(PROFILES[name], [Merge.GATHER])
    assert str(error.value) == (
        f"switch profile {name!r} cannot merge words by gather (it can: {able}); "
        "use a collective between hosts, or a codec that needs no more than it can"
    )


def test_overflow() -> None:
    for policy in ("wrap", "saturate", "sticky"):
        check_overflow(TOFINO1, policy)
    with pytest.raises(FitError) as error:
        check_overflow(PROFILES["sharp"], "saturate")
    assert error.value.about == "overflow"
    assert str(error.value) == (
        "switch profile 'sharp': its ALUs cannot make sums saturate (they can: wrap); "
        "use wrap, or a switch that can: ideal, tofino1, tofino2, fpga"
    )
    with pytest.raises(FitError, match="its ALUs cannot make sums stick at the limit"):
        check_overflow(PROFILES["sharp"], "sticky")
    with pytest.raises(FitError, match=r"\(they can: nothing\); use a switch that can: ideal"):
        check_overflow(PROFILES["plain"], "wrap")


# Programs of any size.


def test_what_runs_where() -> None:
    able = {
        program: [name for name in PROFILES if can_run(PROFILES[name], program)] for program in programs()
    }

    programmable = ["ideal", "tofino1", "tofino2", "fpga", "trio"]
    assert able["switchml"] == able["inca"] == programmable
    assert able["atp"] == ["ideal", "tofino1", "tofino2", "fpga"]  # trio's sums only wrap
    assert able["tree"] == ["ideal", "tofino1", "tofino2", "sharp", "fpga", "trio"]
    assert able["timed"] == ["ideal", "trio"]


def test_what_suits_what() -> None:
    """A program that no lost packet may meet suits fewer switches than could run it."""
    for program in programs():
        suited = [name for name in PROFILES if suits(PROFILES[name], program)]
        able = [name for name in PROFILES if can_run(PROFILES[name], program)]
        assert suited == (["ideal", "sharp"] if program == "tree" else able)


def test_sums_that_atps_server_could_not_read() -> None:
    found = refused(PROFILES["trio"], "atp", words=62)

    assert found.about == "profile"
    assert str(found) == (
        "ATP needs sums that stick at the limit; trio supports: wrap; "
        "use a switch that can: ideal, tofino1, tofino2, fpga"
    )
    sticky = derived("mine", "trio", {"overflows": ("wrap", "sticky")}, "here")
    assert fitted(sticky, "atp", words=62).packet_passes == 1


def test_trees_that_lose_packets() -> None:
    for name in ("ideal", "sharp"):
        assert fitted(PROFILES[name], "tree", words=64).extra_passes == 0
    for name in ("tofino1", "tofino2", "fpga", "trio"):
        found = refused(PROFILES[name], "tree", words=64)
        assert found.about == "profile"
        assert str(found) == (
            f"program tree does not recover from lost packets, and networks of {name} drop some; "
            "use program switchml, or a switch that can: ideal, sharp"
        )
    lossless = derived("mine", "tofino1", {"is_lossless": True}, "here")
    assert fitted(lossless, "tree", words=64).extra_passes == 1


@pytest.mark.parametrize(
    ("program", "merges", "message"),
    [
        (
            "switchml",
            [],
            "SwitchML needs one of the merges add, float_add, max, or, sign, table_add; mine has none; "
            "use a switch that can: ideal, tofino1, tofino2, fpga, trio",
        ),
        (
            "timed",
            ["or", "max"],
            "the timed program needs one of the merges add, float_add; mine has max, or; "
            "use a switch that can: ideal, trio",
        ),
        (
            "atp",
            ["float_add"],
            "ATP needs one of the merges add; mine has float_add; "
            "use a switch that can: ideal, tofino1, tofino2, fpga",
        ),
    ],
)
def test_a_program_needs_one_of_its_merges(program: str, merges: list[str], message: str) -> None:
    mine = derived("mine", "ideal", {"merges": frozenset(map(Merge, merges))}, "here")

    assert not can_run(mine, program)
    assert message == str(refused(mine, program))
    enough = derived("mine", "ideal", {"merges": frozenset({Merge.ADD})}, "here")
    assert can_run(enough, program)


# Switches without pipelines, and links of any rate.


@examples(40)
@given(
    program=st.sampled_from(["switchml", "timed", "atp", "inca", "tree"]),
    slots=st.integers(1, 10_000),
    words=st.integers(1, 600),
    per_pass=st.none() | st.integers(1, 100),
)
def test_switches_without_pipelines_hold_every_word_once(
    program: str, slots: int, words: int, per_pass: int | None
) -> None:
    """Nothing is folded: words in pairs where entries hold two, INCA's in 64 bits."""
    found = fit(IDEAL, program, Demand(8, slots, words, per_pass)).program
    word_bytes = {"inca": 8}.get(program, 4)
    held = words if program in ("atp", "inca") else words + words % 2
    versions = 2 if program in ("switchml", "timed") else 1

    assert (found.pipes, found.repeats) == (1, 1)
    assert found.values_bytes == versions * slots * held * word_bytes


def test_large_packets_fill_memory_as_small_ones_do() -> None:
    """4,000,000 slots of two versions of 256 words of 4 B are 7.63 GiB."""
    found = fitted(PROFILES["fpga"], "switchml", slots=4_000_000, words=256)

    assert found.register_bytes == 4_000_000 * 2 * 256 * 4
    assert str(refused(PROFILES["trio"], "switchml", slots=4_000_000, words=256)) == (
        "4000000 slots of 256 words take 7.70 GiB, trio has 4.00 GiB; use 2076806 slots at most"
    )


def test_memory_of_a_kilobyte() -> None:
    tiny = derived("tiny", "fpga", {"memory_bytes": 1024}, "here")

    assert str(refused(tiny, "tree", words=64)).startswith("program tree does not recover from lost packets")
    assert str(refused(tiny, "atp", slots=4)) == (
        "4 slots of 62 words take 1.03 KiB, tiny has 1.00 KiB; use 3 slots at most"
    )


def test_ports_of_any_rate() -> None:
    """How busy loopback ports are is unknown; that there are none is known."""
    any_rate = {"port_rate_bps": 0}
    mine = derived("mine", "tofino1", any_rate, "here")

    assert fitted(mine, "switchml", words=256).loopback_ports is None
    assert fitted(mine, "switchml", words=256, rate_bps=10**11).loopback_ports == 31
    without = derived("mine", "tofino1", {**any_rate, "loopback_ports": 0}, "here")
    assert str(refused(without, "switchml")) == (
        "8 workers send packets through loopback ports with SwitchML, mine has 0 of 100 Gbps; "
        "use a switch that can: ideal, tofino1, tofino2, fpga, trio"
    )


def test_sizes_that_packets_have() -> None:
    short = derived("short", "tofino1", {"stages": 10}, "here")
    demand = programs()["switchml"].released

    assert refused(short, "switchml").hint == "use 56 words a packet at most"
    with pytest.raises(FitError) as error:
        fit(short, "switchml", demand, any_words=False)
    assert error.value.hint == "use a switch that can: ideal, tofino1, tofino2, fpga, trio"


# Lanes of sums.


@pytest.mark.parametrize("program", ["switchml", "tree", "timed"])
def test_registers_hold_as_many_bits_as_their_lanes(program: str) -> None:
    """Packed lanes take the bits of their words; a table makes eight values of a word, of any width."""
    words, versions = 256, 1 if program == "tree" else 2
    slots = versions * 100
    sizes = {"words": words, "slots": 100}
    for bits in (4, 8, 16, 32):
        assert fitted(IDEAL, program, **sizes, lane_bits=bits).register_bytes == slots * words * 4
    for bits in (8, 16, 32):
        found = fitted(IDEAL, program, **sizes, lane_bits=bits, is_lifted=True)
        assert found.register_bytes == slots * words * 8 * bits // 8
        assert found.program.values_per_pass == 8 * words


def test_packed_counters_are_words() -> None:
    """A packet of 64 words of eight counters fits as one of 64 words."""
    assert fitted(TOFINO1, "switchml", lane_bits=4).stages == fitted(TOFINO1, "switchml").stages


@pytest.mark.parametrize(
    ("profile", "changes", "inside", "refusal"),
    [
        # Values start in the fourth stage: 9 · 4 ALUs of two values are 72, four or two to a word.
        (TOFINO1, {"lane_bits": 8}, 18, "stages that wait for each other"),
        (TOFINO1, {"lane_bits": 16}, 36, "stages that wait for each other"),
        # 17 · 4 ALUs are 136 values, eight to a word of codes.
        (TOFINO2, {"lane_bits": 8, "is_lifted": True}, 17, "stages that wait for each other"),
        (TOFINO2, {"lane_bits": 16, "is_lifted": True}, 15, "bits of packet header vector"),
        # 74 B of headers, and 32 + 8 · 32 bits a word, of 3072.
        (TOFINO2, {"lane_bits": 32, "is_lifted": True}, 8, "bits of packet header vector"),
    ],
)
def test_values_that_a_pass_adds(
    profile: Profile, changes: dict[str, Any], inside: int, refusal: str
) -> None:
    fitted(profile, "switchml", **changes, slots=64, words=inside)
    error = refused(profile, "switchml", **changes, slots=64, words=inside + 1)
    assert refusal in error.message
    assert error.hint == f"use {inside} words a packet at most"
    demand = replace(programs()["switchml"].released, **changes, slots=64, words=256)
    with pytest.raises(FitError, match=f"use {inside} words a packet at most"):
        fit(profile, "switchml", demand, any_words=False)


def test_narrow_entries_take_fewer_blocks() -> None:
    """16 bits an entry are eight to a row of 128, not two: 1024 rows hold 8192 of them, and a spare block."""
    for bits, entries in ((8, 8192), (16, 4096), (32, 2048)):
        for rows, wanted in ((entries, 2), (entries + 2, 3)):
            found = fitted(TOFINO1, "switchml", words=4, slots=rows // 2, lane_bits=bits)
            values = next(stage for stage in found.stages if stage.parts[-1].name == "values")
            assert values.blocks == wanted * values.parts[-1].arrays


def test_an_extra_pass_reads_the_second_value_of_an_entry() -> None:
    """Tofino 1 reads one value of an entry per pass, whatever its width."""
    for bits in (8, 16, 32):
        words = 8 * bits // 32
        assert fitted(TOFINO1, "switchml", words=words, lane_bits=bits).read_passes == 1
        assert fitted(TOFINO2, "switchml", words=words, lane_bits=bits).read_passes == 0


@pytest.mark.parametrize(
    ("profile", "program", "changes", "text"),
    [
        (
            PROFILES["trio"],
            "switchml",
            {"lane_bits": 16},
            "switch profile 'trio' cannot add lanes of 16 bits (its adders have: 32); "
            "use a switch that can: ideal, tofino2, fpga",
        ),
        (
            IDEAL,
            "atp",
            {"lane_bits": 8},
            "ATP cannot add lanes of 8 bits (its adders have: 32); "
            "use program switchml or tree or timed, or a codec whose sums have lanes of 32 bits",
        ),
        (
            TOFINO1,
            "switchml",
            {"lane_bits": 8, "is_lifted": True, "words": 4},
            "switch profile 'tofino1' cannot merge words by table_add (it can: add, max, or); "
            "use a switch that can: ideal, tofino2, fpga",
        ),
    ],
)
def test_lanes_that_adders_do_not_have(
    profile: Profile, program: str, changes: dict[str, Any], text: str
) -> None:
    assert str(refused(profile, program, **changes)) == text


def test_adders_of_words_add_counters() -> None:
    for name in ("trio", "sharp", "fpga"):
        program = "tree" if name == "sharp" else "switchml"
        changes = {"slots": 16, "words": 256, "lane_bits": 4}
        assert fitted(PROFILES[name], program, **changes).packet_passes == 1
    fitted(TOFINO1, "atp", lane_bits=4)  # whose sums stick: the codec refuses that


def test_a_custom_profile_has_adders_of_its_own() -> None:
    narrow = derived("narrow", "trio", {"adder_bits": (8, 32)}, source="here")
    fitted(narrow, "switchml", lane_bits=8)
    assert refused(narrow, "switchml", lane_bits=16).about == "lanes"
