"""What goes wrong at one worker ends all of them in words: no traceback of a thread, no abort, no hang."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.examples import nightly
from tests.torch import failures
from tests.torch.processes import returned, run

TEXTS = {  # parts of the error of all workers, in the backward pass of step 1
    "longer": "worker 1 sends 'values' (float_add of 364 float32 words) and 'values'",
    "more": "where worker 0 sends 'values' (float_add of 363 float32 words) and 'values'",
    "early": "worker 1 sends nothing more, having decoded 363 elements where worker 0 sends 'again'",
    "late error": "worker 1, step 1, bucket 0, operation 2, after 'again': KeyError: 'what the codec says'",
    "other bits": "worker 1 has decoded other bits than worker 0 (step 1, bucket 0, operation 2)",
    "no tuple": "the exchange yields a value of type list, must be a tuple of messages",
    "infinite": "only finite values can be carried",
}
REFUSED = {  # what cannot be carried at all
    "settings": ("worker 2 has TopK(", "worker 0 has Packed(", "give all workers the same codec"),
    "seeds": ("worker 2 has Packed(", "with seed 1", "worker 0 has Packed(", "with seed 0"),
    "type": ("bucket 0 has gradients of float64: netfold carries float32, bfloat16, float16",),
    "sparse": ("bucket 0 is a sparse tensor", "sparse=False"),
    "models": ("did not have in the first step", "give each model a state of its own"),
    "names": ("that `parameters` does not name",),
    "joined": ("RunError: worker 1, step 1, bucket 0, operation 2, after 'again': KeyError",),
}


@pytest.mark.processes
def test_all_workers_get_the_same_error(tmp_path: Path) -> None:
    errors = returned(3, tmp_path, failures.every_error)
    for name, part in TEXTS.items():
        first, second, third = errors[0][name]
        assert first == "no error"
        assert second.startswith("RunError: ")
        assert part in second
        assert third == second  # a state that has failed does not go on
    for name, parts in REFUSED.items():
        (text,) = errors[0][name]
        assert all(part in text for part in parts), text
    for name in (*TEXTS, *REFUSED):
        assert [one[name] for one in errors] == [errors[0][name]] * 3, name
    assert "(worker 1, step 1, bucket 0, operation 0)" in errors[2]["infinite"][1]
    assert "decoded an update of the weights and not a sum" in errors[0]["update"][0]
    assert "learning_rate" in errors[0]["update"][0]


@nightly
@pytest.mark.processes
def test_an_uncaught_error_ends_all_processes(tmp_path: Path) -> None:
    ended = run(3, tmp_path, failures.uncaught)

    assert [one.status for one in ended] == [1, 1, 1]
    assert all("what the codec says" in one.error for one in ended)


@nightly
@pytest.mark.processes
@pytest.mark.parametrize("is_default", [True, False])
def test_a_sleeping_worker_ends_the_others_at_the_timeout_of_the_users_group(
    tmp_path: Path, is_default: bool
) -> None:
    """Not at PyTorch's half an hour. Times are asserted, since the time is what the user gave."""
    (error, waited_s), _ = returned(2, tmp_path, failures.asleep, 4, is_default)

    assert error.startswith("RunError: netfold's messages did not get through")
    assert 3.5 < waited_s < 4 + 5


@pytest.mark.processes
def test_a_lost_worker_ends_the_others(tmp_path: Path) -> None:
    first, second, third = run(3, tmp_path, failures.lost)

    assert second.status == 9
    for one in (first, third):
        assert one.status == 1
        assert one.error.startswith("RunError: netfold's messages did not get through")
