"""What a run keeps of its steps as arrays, where `keep` in the scenario asks for it.

Each job has one file, `arrays/<variant>.safetensors`, or `arrays/<variant>/<job>.safetensors` if there are
several jobs. Its tensors are float32 and can be read one step at a time:

    gradients/<bucket>      (steps, workers, elements)  what each worker's backward pass gave
    contributions/<bucket>  (steps, workers, elements)  what each worker put into the sum
    totals/<bucket>         (steps, elements)           what was decoded
    weights/<parameter>     (steps + 1, *shape)         before the first step, then after each; in the order
                                                        in which gradients have their elements

The steps are those that ended: all, unless the job did not run to its end.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from netfold.errors import DataError

Kept = Literal["gradients", "contributions", "totals", "weights"]
FOLDER = "arrays"
BYTES_MAX = 1 << 30
"""The most bytes of arrays of a run."""
_ORDER = "order"
"""The key of the file's metadata that has the names in the order in which they were kept, as JSON."""
Array = NDArray[np.float32]


def file_name(label: str) -> str:
    return f"{FOLDER}/{label}.safetensors"


def to_safetensors(arrays: Mapping[str, Sequence[Array]]) -> bytes:
    """A file of arrays, each given by its steps."""
    from safetensors.numpy import save

    # The format orders tensors by their names.
    return save({name: np.stack(steps) for name, steps in arrays.items()}, {_ORDER: json.dumps(list(arrays))})


def read(path: Path, kept: str, step: int) -> dict[str, Array]:
    """The arrays of one step by what stands after the slash; a negative step counts from the end.

    Raises
    ------
    DataError
        There are no such arrays or no such step, or the file is missing or damaged.
    """
    from safetensors import SafetensorError, safe_open

    opener: Any = safe_open
    try:
        with opener(path, framework="np") as file:
            names = [name for name in json.loads(file.metadata()[_ORDER]) if name.startswith(f"{kept}/")]
            slices = {name.partition("/")[2]: file.get_slice(name) for name in names}
            if not slices:
                raise not_kept(path, kept)
            count = next(iter(slices.values())).get_shape()[0]
            if not -count <= step < count:
                raise DataError(f"{path}: {kept}: there is no {step}", f"allowed: 0 to {count - 1}")
            return {name: array[step % count] for name, array in slices.items()}
    except (OSError, SafetensorError, TypeError, KeyError, ValueError) as error:
        raise DataError(f"{path}: missing or damaged: {error}", "run the scenario again") from None


def not_kept(path: Path, kept: str) -> DataError:
    return DataError(
        f"{path}: there are no {kept}", f"keep: [{kept}] in the scenario keeps them, of the steps that end"
    )
