"""Numbers as people read them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.sim.report import words


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (9.996, "10.0"),
        (99.96, "100"),
        (-2.5, "-2.50"),
        (1.234e-9, "1.23e-09"),
    ],
)
def test_digits(value: float, text: str) -> None:
    assert words.digits(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (0, "0 B"), (999, "999 B"), (12_345_678, "12.3 MB"), (4e9, "4.00 GB"), (2.5e15, "2.50 PB")],
)
def test_scaled(value: float | None, text: str) -> None:
    assert words.scaled(value, "B") == text


@pytest.mark.parametrize(
    ("value_us", "text"),
    [(None, "–"), (0, "0 ns"), (0.5, "500 ns"), (1, "1.00 µs"), (1240, "1.24 ms"), (2e6, "2.00 s")],
)
def test_time(value_us: float | None, text: str) -> None:
    assert words.time(value_us) == text


@given(st.floats(min_value=1e-12, max_value=1e17))
def test_reading_a_number_back_loses_less_than_half_a_percent(value: float) -> None:
    letter_factors = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
    number, _, letter = words.scaled(value, "").partition(" ")

    assert float(number) * letter_factors[letter] == pytest.approx(value, rel=0.005001)


def test_score_of_the_last_test() -> None:
    assert words.held_out_score({"test_metric": "HR@10", "test_score": 0.3436}) == "HR@10 34.4 %"
    assert words.held_out_score({"test_metric": "accuracy", "test_score": 0.0}) == "accuracy 0 %"
    assert words.held_out_score({"test_metric": None, "test_score": None}) == "–"
    assert words.held_out_score({}) == "–"  # a folder of an earlier version


def test_scores_are_written_as_their_metric_is() -> None:
    assert words.score("accuracy", 0.5) == "50.0 %"
    assert words.score("perplexity", 443.21) == "443"
    assert words.score("loss", 0.5) == "0.500"
    assert words.score("a metric of the user's own", 0.5) == "0.500"


def test_what_it_took_to_reach_a_target() -> None:
    aimed = {"test_metric": "accuracy", "target": 0.95, "steps_to_target": None}
    reached = {**aimed, "steps_to_target": 120, "time_to_target_us": 3400.0, "bytes_to_target": 1.2e6}

    assert words.to_target(reached) == "95.0 % in 120 steps, 3.40 ms, 1.20 MB"
    assert words.to_target({**reached, "steps_to_target": 1}) == "95.0 % in 1 step, 3.40 ms, 1.20 MB"
    assert words.to_target(aimed) == "95.0 % missed"
    assert words.to_target({**aimed, "test_metric": "perplexity", "target": 120.0}) == "120 missed"
    assert words.to_target({"test_metric": None, "target": 0.5, "steps_to_target": None}) == "0.500 missed"
    assert words.to_target({}) == "–"


@pytest.mark.parametrize(
    ("loss", "text"),
    [
        (999_999.0, "999999"),
        (1e6, "1.00e6"),
        (-5e7, "-5.00e7"),
    ],
)
def test_a_loss_that_diverges_has_an_exponent(loss: float, text: str) -> None:
    assert words.training_loss({"steps": 9, "loss_first": 2.302, "loss": loss}) == f"2.30 → {text}"


def test_parts_of_a_step_are_in_the_order_of_a_round_and_messages_in_their_own() -> None:
    names = [
        *(("network", "values"), ("decode", ""), ("wait", ""), ("encode", "")),
        *(("network", "index"), ("rank skew", ""), ("network", "dense")),
    ]
    rows = [
        {"phase": phase, "label": label, "time_us": 2.0, "share": 0.1, "payload_bytes": 30.0}
        for phase, label in names
    ]
    found = words.parts({"buckets": 4, "breakdown": rows})

    assert [(part["phase"], part["label"]) for part in found] == [
        *(("encode", ""), ("network", "values"), ("network", "index"), ("network", "dense")),
        *(("wait", ""), ("decode", ""), ("rank skew", "")),
    ]
    assert {(part["time_us"], part["share"], part["payload_bytes"]) for part in found} == {(8.0, 0.1, 120.0)}
    assert words.parts({"buckets": None, "breakdown": None}) == []
