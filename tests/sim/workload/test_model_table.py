"""The table of what is known of models holds what their classes and modules say.

    .venv/bin/python -m tests.sim.workload.test_model_table

writes it again.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from netfold.sim.workload.models.registry import TABLE, classes, key_of


def facts() -> dict[str, Any]:
    """The table as it must be: each model with its default options, and with those of its densities."""
    models = [
        section(**options)
        for section in classes().values()
        for options in [{}, *(dict(density.options) for density in section.densities)]
    ]
    return {
        key_of(model.written): model.known().model_dump(mode="json", exclude_defaults=True)
        for model in models
    }


def written(table: dict[str, Any]) -> str:
    """A line for each fact and each tensor, so that changes can be read."""

    def line(indent: int, value: object, key: str | None = None) -> str:
        text = json.dumps(value, ensure_ascii=False)
        return " " * indent + (text if key is None else f"{json.dumps(key)}: {text}")

    models = []
    for key, known in table.items():
        lines = [line(2, value, name) for name, value in known.items() if name != "tensors"]
        tensors = ",\n".join(line(3, tensor) for tensor in known["tensors"])
        body = ",\n".join([*lines, f'  "tensors": [\n{tensors}\n  ]'])
        models.append(f" {json.dumps(key)}: {{\n{body}\n }}")
    return "{\n" + ",\n".join(models) + "\n}\n"


@pytest.mark.slow
def test_the_table_is_that_of_the_modules() -> None:
    """Shapes, layers and their order by a pass on PyTorch's meta device, all else by the classes."""
    table = json.loads(TABLE.read_text("utf-8"))
    expected = facts()

    assert list(table) == list(expected)
    for key, known in expected.items():
        assert table[key] == known, f"{key}: write it again: python -m {__name__}"


if __name__ == "__main__":
    TABLE.write_text(written(facts()), "utf-8")
