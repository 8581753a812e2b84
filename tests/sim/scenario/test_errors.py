"""Errors as values: their text, their exit status, their way between processes."""

import pickle

import pytest

from netfold.sim.errors import DataError, InvariantError, NetfoldError, ScenarioError, shown


def test_scenario_errors_show_place_message_and_hint() -> None:
    error = ScenarioError("a.yaml", 3, "topology.rate", "cannot read it", "write it well")

    assert str(error) == "a.yaml:3: topology.rate: cannot read it\n  write it well"
    assert str(ScenarioError("a.yaml", 0, "", "is empty")) == "a.yaml: is empty"


@pytest.mark.parametrize(
    "error",
    [ScenarioError("a.yaml", 3, "x", "m", "h"), DataError("m", "h"), InvariantError("m"), NetfoldError("m")],
)
def test_errors_survive_pickling(error: NetfoldError) -> None:
    copy = pickle.loads(pickle.dumps(error))

    assert type(error) is type(copy)
    assert (str(error), vars(error)) == (str(copy), vars(copy))


def test_exit_statuses() -> None:
    assert [error.exit_code for error in (ScenarioError, DataError, InvariantError)] == [2, 2, 3]


def test_values_are_shown_as_a_scenario_writes_them() -> None:
    assert [shown(value) for value in (None, True, "a", 1.5, {}, (1,), [])] == [
        "nothing",
        "true",
        "'a'",
        "1.5",
        "a mapping",
        "a list",
        "an empty list",
    ]
