"""What programs take of switches: the published examples, the passes, and every refusal in full."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.homomorphic.merge import Merge
from netfold.switch.fit import Fit, FitError, can_run, check_merges, check_overflow, fit, suits
from netfold.switch.profiles import PROFILES, Profile, derived
from netfold.switch.program import Demand, declare, names_of, programs
from netfold.switch.registers import new_registers
from tests.examples import examples

PLAIN, IDEAL, TOFINO1, TOFINO2, SHARP, FPGA, TRIO = PROFILES.values()


def fitted(profile: Profile, program: str, **changes: Any) -> Fit:
    """A program as released, with some settings changed."""
    return fit(profile, program, replace(programs()[program].released, **changes))


def refused(profile: Profile, program: str, **changes: Any) -> FitError:
    with pytest.raises(FitError) as error:
        fitted(profile, program, **changes)
    return error.value


def own(like: str, **changes: object) -> Profile:
    """A custom profile."""
    return derived("mine", like, changes, "here")


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
    """35 arrays of 40,000 entries: two for every aggregator, for packets that pass twice; one in one pass."""
    found = fitted(TOFINO1, "atp")

    assert found.program.salus == 35
    assert {register.entries for register in found.program.registers} == {40_000}
    assert blocks(found) == 385
    assert found.packet_passes == 2
    one_pass = fitted(IDEAL, "atp", words_per_pass=62).program
    assert {register.entries for register in one_pass.registers} == {20_000}


def test_inca_as_released() -> None:
    found = fitted(TOFINO2, "inca")

    assert len(found.stages) == 2 + 64 // 4
    assert blocks(found) == 704 + 2 * 6


# Passes.


@pytest.mark.parametrize("workers", [1, 8, 16])
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


@pytest.mark.parametrize("profile", [IDEAL, FPGA, TRIO], ids=lambda one: one.name)
@pytest.mark.parametrize("words", [64, 256])
def test_other_switches_take_one_pass(profile: Profile, words: int) -> None:
    found = fitted(profile, "switchml", words=words)

    assert (found.extra_passes, found.stages, found.loopback_ports) == (0, (), 0)
    assert found.round_passes(8) == 8


@pytest.mark.parametrize(
    ("profile", "program", "changes", "ports"),
    [
        (TOFINO1, "switchml", {}, 1),  # reading out goes once for all workers
        (TOFINO1, "switchml", {"words": 256}, 8 * 3 + 7),  # a port a worker in each further pipe, one a pass
        (TOFINO1, "switchml", {"words": 256, "rate_bps": 10**10}, 4),  # 31 streams of 10 Gbps
        (TOFINO1, "switchml", {"words": 256, "workers": 16}, 55),
        (TOFINO1, "switchml", {"others_bps": 2 * 10**11}, 3),  # the stream of 100 Gbps, and theirs
        (TOFINO1, "atp", {}, 1),  # packets that end in the switch are resubmitted
        (TOFINO1, "inca", {"words": 36, "words_per_pass": 18}, 8),
        (TOFINO2, "switchml", {"words": 256, "workers": 16, "rate_bps": 10**11}, 13),
        # Ports of any rate: how busy they are is unknown.
        (own("tofino1", port_rate_bps=0), "switchml", {"words": 256}, None),
        (own("tofino1", port_rate_bps=0), "switchml", {"words": 256, "rate_bps": 10**11}, 31),
    ],
)
def test_loopback_ports(profile: Profile, program: str, changes: dict[str, int], ports: int | None) -> None:
    assert fitted(profile, program, **changes).loopback_ports == ports


# Memory.


@pytest.mark.parametrize(("slots", "size_bytes"), [(128, 256 * 1024), (512, 1024 * 1024), (8192, 16 << 20)])
def test_register_bytes_are_the_values_of_both_versions(slots: int, size_bytes: int) -> None:
    """At 128 and 512 slots the pool sizes of SwitchML's paper; and what the emulator really allocates."""
    assert size_bytes == fitted(TOFINO1, "switchml", slots=slots, words=256).program.values_bytes
    assert size_bytes == new_registers(slots, 256).values.nbytes


def test_the_longest_register_array_fits() -> None:
    """11 blocks of 2048 pairs, two versions: 11,264 slots; the released program names the limit of 22,528."""
    longest = fitted(TOFINO1, "switchml", slots=11_264)

    assert {stage.blocks for stage in longest.stages[3:]} == {48}


# Refusals.

PROGRAMMABLE = "use a switch that can: ideal, tofino1, tofino2, fpga, trio"
NO_PORTS = "through loopback ports with SwitchML, mine has 0 of 100 Gbps"
OR_SIZES = "use 64 (256 B) or 256 words (1024 B) a packet"
REFUSALS: list[tuple[Profile, str, dict[str, Any], str | None, str]] = [  # the message after what it is about
    (
        *(TOFINO1, "atp", {"words_per_pass": 62}, None),
        "ATP with 62 words a pass needs 66 stateful ALUs (62 for values), tofino1 has 48; "
        "use 36 words a pass at most",
    ),
    # 64 ALUs for values: more than Tofino has; Tofino 2 has them, but cannot see so much of a packet.
    (
        *(TOFINO1, "switchml", {"words": 128}, None),
        f"SwitchML with 128 words a pass needs 68 stateful ALUs (64 for values), tofino1 has 48; {OR_SIZES}",
    ),
    (
        *(TOFINO2, "switchml", {"words": 128}, None),
        "SwitchML with 128 words a pass needs 4688 bits of packet header vector, tofino2 has 3072; "
        f"{OR_SIZES}",
    ),
    # 44 ALUs of 48 would do, but three stages are gone before the first value can be added.
    (
        *(TOFINO1, "switchml", {"words": 80}, None),
        "SwitchML with 80 words a pass needs 44 stateful ALUs in stages that wait for each other, "
        f"the 12 stages of tofino1 have room for 36 of its 40 arrays 'values'; {OR_SIZES}",
    ),
    (
        *(TOFINO1, "switchml", {"slots": 11_265}, None),
        "11265 slots need 32 register arrays of 22530 entries (13 map RAMs each), "
        "tofino1 with 48 map RAMs a stage has room for 27; use 11264 slots at most",
    ),
    (
        *(own("tofino1", sram_blocks_per_stage=20), "switchml", {}, None),
        "8192 slots need 32 register arrays of 16384 entries (9 SRAM blocks each), "
        "mine with 20 SRAM blocks a stage has room for 18; use 4096 slots at most",
    ),
    (
        *(FPGA, "switchml", {"slots": 10**8}, None),
        "100000000 slots of 64 words take 49.5 GiB, fpga has 8.00 GiB; use 16146247 slots at most",
    ),
    # Released rules choose the loopback port by worker id, from 0 to 15; one pass needs none of them.
    (
        *(TOFINO1, "switchml", {"workers": 17, "words": 256}, None),
        "SwitchML cannot fold packets of 256 words over 4 pipelines for 17 workers; "
        "use 16 workers at most, or 64 words (256 B) a packet",
    ),
    (
        *(TOFINO2, "switchml", {"workers": 16, "words": 256}, "workers"),
        "16 workers send 20400 Gbps through loopback ports with SwitchML, tofino2 has 32 of 400 Gbps; "
        "use 9 workers at most, or 64 words (256 B) a packet",
    ),
    (
        *(own("tofino1", loopback_ports=0), "switchml", {"workers": 20}, None),
        f"20 workers send 100 Gbps {NO_PORTS}; {PROGRAMMABLE}",
    ),
    (
        *(own("tofino1", loopback_ports=0, port_rate_bps=0), "switchml", {}, None),
        f"8 workers send packets {NO_PORTS}; {PROGRAMMABLE}",
    ),
    (
        *(TOFINO1, "switchml", {"words": 256, "words_per_pass": 32}, None),
        "SwitchML needs 8 pipelines in a row for 256 words, 32 in each, tofino1 has 4; "
        "use a switch that can: ideal, fpga, trio",
    ),
    (*(PLAIN, "switchml", {}, "profile"), f"switch profile 'plain' only forwards; {PROGRAMMABLE}"),
    (
        *(TOFINO1, "timed", {}, None),
        "the timed program needs timers, tofino1 has none; use a switch that can: ideal, trio",
    ),
    (
        *(SHARP, "switchml", {}, "program"),
        "sharp runs program tree alone, found switchml; "
        "use program tree, or a programmable switch: ideal, tofino1, tofino2, fpga, trio",
    ),
    (
        *(SHARP, "tree", {"slots": 24}, "slots"),
        "24 slots need as many outstanding operations, sharp has 23; use 23 slots at most",
    ),
    (
        *(SHARP, "tree", {"words": 513}, "words"),
        "an operation of sharp holds 2048 B, 513 words a packet are 2052 B; "
        "use 64 (256 B), 256 (1024 B) or 512 words (2048 B) a packet",
    ),
    (*(SHARP, "tree", {"jobs": 13}, "jobs"), "13 jobs need a group each, sharp has 12; use 12 jobs at most"),
    # More workers than bits: a limit of the program, so of every switch; a switch may have a narrower one.
    (
        *(FPGA, "switchml", {"workers": 65}, None),
        "SwitchML cannot tell 65 workers apart: its bitmap is 64 bits wide; use 64 workers at most",
    ),
    (
        *(TOFINO1, "switchml", {"workers": 33}, None),
        "SwitchML cannot tell 33 workers apart: its bitmap is one 32-bit word; use 32 workers at most",
    ),
    (
        *(own("tofino1", salu_lanes=1), "switchml", {}, None),
        f"SwitchML keeps entries of 64 bits in 'receiver', a stateful ALU of mine takes 32; {PROGRAMMABLE}",
    ),
    (
        *(own("tofino1", parser_limit_bytes=65), "switchml", {}, None),
        f"SwitchML has headers of 74 B, mine parses 65 B; {PROGRAMMABLE}",
    ),
    (
        *(TRIO, "atp", {"words": 62}, "profile"),
        "ATP needs sums that stick at the limit; trio supports: wrap; "
        "use a switch that can: ideal, tofino1, tofino2, fpga",
    ),
    (
        *(FPGA, "tree", {"words": 64}, "profile"),
        "program tree does not recover from lost packets, and networks of fpga drop some; "
        "use program switchml, or a switch that can: ideal, sharp",
    ),
    (
        *(own("ideal", merges=frozenset()), "switchml", {}, None),
        "SwitchML needs one of the merges add, float_add, max, or, sign, table_add; mine has none; "
        f"{PROGRAMMABLE}",
    ),
    (
        *(TRIO, "switchml", {"lane_bits": 16}, None),
        "switch profile 'trio' cannot add lanes of 16 bits (its adders have: 32); "
        "use a switch that can: ideal, tofino2, fpga",
    ),
    (
        *(IDEAL, "atp", {"lane_bits": 8}, None),
        "ATP cannot add lanes of 8 bits (its adders have: 32); "
        "use program switchml or tree or timed, or a codec whose sums have lanes of 32 bits",
    ),
    (
        *(TOFINO1, "switchml", {"lane_bits": 8, "is_lifted": True, "words": 4}, None),
        "switch profile 'tofino1' cannot merge words by table_add (it can: add, max, or); "
        "use a switch that can: ideal, tofino2, fpga",
    ),
]


@pytest.mark.parametrize(("profile", "program", "changes", "about", "message"), REFUSALS)
def test_refusals_in_full(
    profile: Profile, program: str, changes: dict[str, Any], about: str | None, message: str
) -> None:
    found = refused(profile, program, **changes)

    assert str(found) == message
    assert about in (None, found.about)


@pytest.mark.parametrize(
    ("profile", "program", "changes", "passes"),
    [
        (SHARP, "tree", {"slots": 23, "words": 512}, 0),
        (IDEAL, "switchml", {"workers": 64}, 0),
        (TOFINO1, "switchml", {"workers": 32}, 1),
        (IDEAL, "tree", {"words": 64}, 0),
        (own("tofino1", is_lossless=True), "tree", {"words": 64}, 1),
        (own("tofino1", has_timers=True), "timed", {}, 1),
        (own("trio", overflows=("wrap", "sticky")), "atp", {"words": 62}, 0),
        (own("trio", adder_bits=(8, 32)), "switchml", {"lane_bits": 8}, 0),
        # Adders of words add counters; of ATP, whose sums stick, the codec refuses that.
        (TRIO, "switchml", {"slots": 16, "words": 256, "lane_bits": 4}, 0),
        (SHARP, "tree", {"slots": 16, "words": 256, "lane_bits": 4}, 0),
        (TOFINO1, "atp", {"lane_bits": 4}, 1),
    ],
)
def test_just_inside(profile: Profile, program: str, changes: dict[str, Any], passes: int) -> None:
    assert fitted(profile, program, **changes).extra_passes == passes


def test_hints() -> None:
    """62 words a pass would need five of four pipelines, 72 need four."""
    assert refused(TOFINO1, "switchml", words=250, words_per_pass=62).about == "words_per_pass"
    assert refused(TOFINO1, "switchml", words=250, words_per_pass=250).hint == "use 72 words a pass at most"
    assert refused(IDEAL, "switchml", workers=65).hint == "use 64 workers at most"
    assert refused(TOFINO1, "timed", workers=33).hint == "use a switch that can: there is none"
    short = own("tofino1", stages=10)
    assert refused(short, "switchml").hint == "use 56 words a packet at most"
    with pytest.raises(FitError) as error:
        fit(short, "switchml", programs()["switchml"].released, any_words=False)
    assert error.value.hint == PROGRAMMABLE


@pytest.mark.parametrize(("workers", "words"), [(32, 1), (33, 2), (64, 2)])
def test_a_wider_bitmap_takes_registers(workers: int, words: int) -> None:
    """Each 32 workers take a register of both versions' bitmaps, and entries for their queue pairs."""
    found = fitted(own("tofino1", bitmap_bits=64), "switchml", workers=workers)

    registers = {register.name: register for register in found.program.registers}
    assert (registers["bitmap"].count, registers["bitmap"].entries) == (words, 8192)
    assert registers["receiver"].entries == words * 32 * 512
    assert found.program.salus == 32 + 3 + words
    arrays = sum(part.arrays for stage in found.stages for part in stage.parts if part.name == "bitmap")
    assert arrays == words


def test_an_unknown_program() -> None:
    with pytest.raises(ValueError) as error:
        fit(TOFINO1, "swichml", Demand(8, 512, 64))
    assert str(error.value) == (
        "there is no program 'swichml'; did you mean 'switchml'? known: switchml, tree, timed, atp, inca"
    )


# Merges and overflow.


def test_merges_that_a_switch_cannot_do() -> None:
    check_merges(TOFINO1, {Merge.ADD, Merge.OR, Merge.MAX})
    check_merges(SHARP, {Merge.FLOAT_ADD})
    check_merges(TOFINO2, {Merge.TABLE_ADD})
    with pytest.raises(FitError) as error:
        check_merges(TOFINO1, {Merge.ADD, Merge.FLOAT_ADD, Merge.SIGN})
    assert error.value.about == "merges"
    assert str(error.value) == (
        "switch profile 'tofino1' cannot merge words by float_add, sign (it can: add, max, or); "
        "use a switch that can (ideal, fpga), or a codec that needs no more than it can"
    )
    with pytest.raises(FitError) as error:
        check_merges(PLAIN, [Merge.GATHER])
    assert str(error.value) == (
        "switch profile 'plain' cannot merge words by gather (it can: nothing); "
        "use a collective between hosts, or a codec that needs no more than it can"
    )


def test_overflow() -> None:
    for policy in ("wrap", "saturate", "sticky"):
        check_overflow(TOFINO1, policy)
    with pytest.raises(FitError) as error:
        check_overflow(SHARP, "saturate")
    assert error.value.about == "overflow"
    assert str(error.value) == (
        "switch profile 'sharp': its ALUs cannot make sums saturate (they can: wrap); "
        "use wrap, or a switch that can: ideal, tofino1, tofino2, fpga"
    )
    with pytest.raises(FitError, match="its ALUs cannot make sums stick at the limit"):
        check_overflow(SHARP, "sticky")
    with pytest.raises(FitError, match=r"\(they can: nothing\); use a switch that can: ideal"):
        check_overflow(PLAIN, "wrap")


def test_what_runs_where_and_suits_what() -> None:
    """A program that no lost packet may meet suits fewer switches than could run it."""
    able = {
        program: [name for name in PROFILES if can_run(PROFILES[name], program)] for program in programs()
    }

    programmable = ["ideal", "tofino1", "tofino2", "fpga", "trio"]
    assert able["switchml"] == able["inca"] == programmable
    assert able["atp"] == ["ideal", "tofino1", "tofino2", "fpga"]  # trio's sums only wrap
    assert able["tree"] == ["ideal", "tofino1", "tofino2", "sharp", "fpga", "trio"]
    assert able["timed"] == ["ideal", "trio"]
    for program in programs():
        suited = [name for name in PROFILES if suits(PROFILES[name], program)]
        assert suited == (["ideal", "sharp"] if program == "tree" else able[program])
    assert not can_run(own("ideal", merges=frozenset({Merge.OR, Merge.MAX})), "timed")
    assert can_run(own("ideal", merges=frozenset({Merge.ADD})), "timed")


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


@examples(40)
@given(
    program=st.sampled_from(["switchml", "timed", "atp", "inca", "tree"]),
    slots=st.integers(1, 10**6),
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


# Lanes of sums.


@pytest.mark.parametrize("program", ["switchml", "tree", "timed"])
def test_registers_hold_as_many_bits_as_their_lanes(program: str) -> None:
    """Packed lanes take the bits of their words; a table makes eight values of a word, of any width."""
    words, versions = 256, 1 if program == "tree" else 2
    slots = versions * 100
    sizes = {"words": words, "slots": 100}
    for bits in (4, 8, 16, 32):
        assert fitted(IDEAL, program, **sizes, lane_bits=bits).program.values_bytes == slots * words * 4
    for bits in (8, 16, 32):
        found = fitted(IDEAL, program, **sizes, lane_bits=bits, is_lifted=True)
        assert found.program.values_bytes == slots * words * 8 * bits // 8
        assert found.program.values_per_pass == 8 * words


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


def test_narrow_entries() -> None:
    """16 bits an entry are eight to a row of 128, not two: 1024 rows hold 8192 of them, and a spare block.

    Tofino 1 reads one value of an entry per pass, whatever its width; packed counters are words.
    """
    for bits, entries in ((8, 8192), (16, 4096), (32, 2048)):
        for rows, wanted in ((entries, 2), (entries + 2, 3)):
            found = fitted(TOFINO1, "switchml", words=4, slots=rows // 2, lane_bits=bits)
            values = next(stage for stage in found.stages if stage.parts[-1].name == "values")
            assert values.blocks == wanted * values.parts[-1].arrays
        words = 8 * bits // 32
        assert fitted(TOFINO1, "switchml", words=words, lane_bits=bits).read_passes == 1
        assert fitted(TOFINO2, "switchml", words=words, lane_bits=bits).read_passes == 0
    assert fitted(TOFINO1, "switchml", lane_bits=4).stages == fitted(TOFINO1, "switchml").stages


# Workers that may be absent: a register of contributors, and four bytes of header.


def test_programs_that_carry_absence() -> None:
    assert names_of(lambda program: program.carries_absence) == ["switchml", "tree", "timed"]


@pytest.mark.parametrize("program", ["switchml", "tree", "timed"])
def test_absence_takes_a_register_and_a_header_more(program: str) -> None:
    released = programs()[program].released
    plain = declare(program, released)
    more = declare(program, replace(released, may_be_absent=True))

    added = [one for one in more.registers if one.name not in {old.name for old in plain.registers}]
    assert [(one.name, one.bits, one.count) for one in added] == [("contributors", 32, 1)]
    assert added[0].entries == programs()[program].versions * released.slots
    assert more.header_bytes == plain.header_bytes + 4
    assert declare(program, replace(released, header_bytes=50, may_be_absent=True)).header_bytes == 54
    assert "contributors" in more.values.after


@pytest.mark.parametrize("profile", [TOFINO1, TOFINO2], ids=lambda one: one.name)
def test_switchml_with_absence_fits_in_the_same_stages(profile: Profile) -> None:
    """The contributors' register is beside the counter: one ALU more, no stage more."""
    plain, more = fitted(profile, "switchml"), fitted(profile, "switchml", may_be_absent=True)

    assert more.program.salus == plain.program.salus + 1
    assert len(more.stages) == len(plain.stages)
    assert "contributors" in [part.name for part in more.stages[2].parts]
