"""Text with units, exactly to and from integers."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.units import (
    RATE,
    SIZE,
    TIME,
    Quantity,
    UnitError,
    format_fraction,
    parse_fraction,
    transmit_time_ps,
)

QUANTITIES = st.sampled_from([RATE, TIME, SIZE])


@pytest.mark.parametrize(
    ("quantity", "text", "value"),
    [
        (RATE, "2.5 Gbps", 2_500_000_000),
        (RATE, "0.001Kbps", 1),
        (TIME, "1us", 1_000_000),
        (TIME, "1.5ns", 1_500),
        (SIZE, "64KiB", 65_536),
        (SIZE, "0.5GiB", 2**29),
    ],
)
def test_texts_have_exact_values(quantity: Quantity, text: str, value: int) -> None:
    assert value == quantity.parse(text)


@pytest.mark.parametrize(
    ("quantity", "value", "text"),
    [
        (RATE, 0, "0bps"),
        (TIME, 10**9, "1ms"),
        (TIME, 123_456_789, "123456789ps"),
        (SIZE, 65_536, "64KiB"),
        # As short as "1050Mbps", "1050ps" and "1050MB": of these the larger unit.
        (RATE, 1_050_000_000, "1.05Gbps"),
    ],
)
def test_values_have_short_texts(quantity: Quantity, value: int, text: str) -> None:
    assert text == quantity.format(value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0ps"),
        (54_811_040, "54.9us"),
        (999_000_001, "1ms"),
        (4_621_104_000_009, "4.63s"),
        (4_621_104_000_000_009, "4630s"),
    ],
)
def test_messages_round_up_to_three_digits(value: int, text: str) -> None:
    assert text == TIME.rough(value)


@given(QUANTITIES, st.integers(0, 10**18))
def test_a_rough_text_is_enough_and_at_most_one_percent_more(quantity: Quantity, value: int) -> None:
    rough = quantity.parse(quantity.rough(value))

    assert value <= rough <= value * 1.01 or value == rough


@given(QUANTITIES, st.integers(0, 2**63 - 1))
def test_formatted_values_parse_to_themselves(quantity: Quantity, value: int) -> None:
    assert value == quantity.parse(quantity.format(value))


@given(QUANTITIES, st.integers(0, 10**6), st.integers(0, 999), st.data())
def test_parsing_is_exact_or_refused(
    quantity: Quantity, whole: int, thousandths: int, data: st.DataObject
) -> None:
    unit = data.draw(st.sampled_from(list(quantity.units)))
    exact = (whole + Fraction(thousandths, 1000)) * quantity.units[unit]
    text = f"{whole}.{thousandths:03}{unit}"
    if exact.denominator == 1 and exact < 2**63:
        assert exact == quantity.parse(text)
    else:
        with pytest.raises(UnitError, match=r"is not a whole number of|is too large"):
            quantity.parse(text)


RATES = "use a number and one of bps, Kbps, Mbps, Gbps, Tbps"


@pytest.mark.parametrize(
    ("quantity", "text", "error"),
    [
        (RATE, "100GB/s", f"cannot read '100GB/s' as a rate\n  {RATES} (100GB/s = '800Gbps')"),
        (RATE, "100", f"cannot read '100' as a rate\n  {RATES} (for example '100Gbps')"),
        (RATE, "٣Gbps", f"cannot read '٣Gbps' as a rate\n  {RATES} (for example '100Gbps')"),
        (RATE, "-1Gbps", "a rate cannot be negative, found '-1Gbps'\n  for example '100Gbps'"),
        (RATE, "0.5bps", "'0.5bps' is not a whole number of bps\n  the smallest rate is 1bps"),
        (
            SIZE,
            "1Mb",
            "cannot read '1Mb' as a size\n"
            "  use a number and one of B, KB, KiB, MB, MiB, GB, GiB (1Mb = '125KB')",
        ),
        (
            SIZE,
            "3M",
            "cannot read '3M' as a size\n  use a number and one of B, KB, KiB, MB, MiB, GB, GiB (3M = '3MB')",
        ),
        (SIZE, "99999999999GiB", "'99999999999GiB' is too large\n  the largest size is 9223372036854775807B"),
    ],
)
def test_what_cannot_be_read_is_explained(quantity: Quantity, text: object, error: str) -> None:
    with pytest.raises(UnitError) as caught:
        quantity.parse(text)

    assert error == str(caught.value)


@pytest.mark.parametrize(
    ("value", "fraction"), [(0, 0.0), (1, 1.0), ("1%", 0.01), ("0.3 %", 0.003), ("100%", 1.0)]
)
def test_fractions(value: object, fraction: float) -> None:
    assert fraction == parse_fraction(value)


@given(st.floats(0, 1))
def test_formatted_fractions_parse_to_themselves(fraction: float) -> None:
    assert fraction == parse_fraction(format_fraction(fraction))


FRACTIONS = "\n  use a number from 0 to 1 or a percentage, for example 0.01 or '1%'"


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (1.5, "1.5 is not a fraction from 0 to 1"),
        (float("nan"), "nan is not a fraction from 0 to 1"),
        (True, "cannot read true as a fraction"),
        ("0.5", "cannot read '0.5' as a fraction"),
    ],
)
def test_what_is_no_fraction_is_explained(value: object, error: str) -> None:
    with pytest.raises(UnitError) as caught:
        parse_fraction(value)

    assert error + FRACTIONS == str(caught.value)


@given(st.integers(1, 2**20), st.integers(1, 10**12))
def test_transmit_time_is_the_exact_time_rounded_up(size_bytes: int, rate_bps: int) -> None:
    exact_ps = Fraction(size_bytes * 8 * 10**12, rate_bps)

    assert 0 <= transmit_time_ps(size_bytes, rate_bps) - exact_ps < 1


@pytest.mark.parametrize("digits", ["9" * 5000, "0." + "3" * 5000])
def test_very_long_numbers_are_refused_in_words(digits: str) -> None:
    """Python itself reads no whole number of more than 4300 digits."""
    for read in (lambda: RATE.parse(f"{digits}Gbps"), lambda: parse_fraction(f"{digits}%")):
        with pytest.raises(UnitError, match=r"^cannot read a number of 5,00[01] digits"):
            read()


def test_a_fraction_that_no_float_holds() -> None:
    with pytest.raises(UnitError, match="is not a fraction from 0 to 1"):
        parse_fraction(10**400)
