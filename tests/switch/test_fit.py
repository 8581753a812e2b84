"""What SwitchML takes of a switch, and every refusal in full."""

from __future__ import annotations

import pytest

from switch.fit import FitError, fit_switchml
from switch.profiles import PROFILES, UnknownProfileError, profile
from switch.programs.switchml import new_registers

TOFINO1, IDEAL = PROFILES["tofino1"], PROFILES["ideal"]


@pytest.mark.parametrize("workers", [1, 2, 8, 16])
def test_passes_of_a_slot_round_are_those_of_the_released_program(workers: int) -> None:
    """For n packets: n + 1 passes with 64 words; 4n + 7 with 256, where every packet takes at least four."""
    small, large = (fit_switchml(TOFINO1, workers, 512, elements) for elements in (64, 256))

    assert workers + 1 == workers + small.extra_passes
    assert 4 * workers + 7 == 4 * (workers - 1) + 1 + large.extra_passes


@pytest.mark.parametrize(("slots", "size_bytes"), [(128, 256 * 1024), (512, 1024 * 1024), (8192, 16 << 20)])
def test_register_bytes_are_the_values_of_both_versions(slots: int, size_bytes: int) -> None:
    """At 128 and 512 slots the pool sizes of SwitchML's paper; and what the emulator really allocates."""
    assert size_bytes == fit_switchml(TOFINO1, 8, slots, 256).register_bytes
    assert size_bytes == new_registers(slots, 256).values.nbytes


def test_an_ideal_switch_has_no_passes_and_no_limit_on_slots() -> None:
    assert fit_switchml(IDEAL, 32, 10**6, 64).extra_passes == 0
    assert fit_switchml(IDEAL, 32, 10**6, 256).extra_passes == 0


def test_the_longest_register_array_fits_and_one_slot_more_does_not() -> None:
    """11 blocks of 2048 pairs, two versions: 11,264 slots."""
    assert fit_switchml(TOFINO1, 16, 11 * 2048 // 2, 256).register_bytes == 22_528 * 256 * 4
    with pytest.raises(FitError) as refused:
        fit_switchml(TOFINO1, 16, 11_265, 256)
    assert str(refused.value) == (
        "11265 slots need register arrays of 22530 entries (two versions), "
        "tofino1 has 22528; use 11264 slots at most"
    )


def test_folded_packets_have_rules_for_sixteen_workers_only() -> None:
    """Released rules choose the loopback port by worker id, from 0 to 15; one pass needs none of them."""
    assert fit_switchml(TOFINO1, 32, 512, 64).extra_passes == 1
    with pytest.raises(FitError) as refused:
        fit_switchml(TOFINO1, 17, 512, 256)
    assert str(refused.value) == (
        "SwitchML cannot fold packets of 256 words over four pipes for 17 workers; "
        "use 16 at most, or frame udp-256"
    )


def test_a_switch_that_only_forwards_is_refused() -> None:
    with pytest.raises(FitError) as refused:
        fit_switchml(PROFILES["plain"], 8, 512, 256)
    assert str(refused.value) == "switch profile 'plain' only forwards; use a programmable one"


@pytest.mark.parametrize("name", ["ideal", "tofino1"])
def test_more_workers_than_bits_are_refused(name: str) -> None:
    """A limit of the program, so of every switch."""
    with pytest.raises(FitError) as refused:
        fit_switchml(PROFILES[name], 33, 512, 256)
    assert str(refused.value) == (
        "SwitchML cannot tell 33 workers apart: its bitmap is one 32-bit word; use 32 at most"
    )


@pytest.mark.parametrize("elements", [32, 128, 512])
def test_other_payloads_are_refused(elements: int) -> None:
    """128 and 512 words are defined in the released program, and rejected there too."""
    with pytest.raises(FitError) as refused:
        fit_switchml(TOFINO1, 8, 512, elements)
    assert str(refused.value) == f"SwitchML cannot process {elements} words per packet; use 64 or 256"


def test_profiles_are_found_by_their_name() -> None:
    for name, found in PROFILES.items():
        assert profile(name) is found
        assert found.name == name
    with pytest.raises(UnknownProfileError) as refused:
        profile("tofino3")
    assert str(refused.value) == "there is no switch profile 'tofino3'"
