"""The buckets of a DDP model: which parameters are summed together, and in which order."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

Buckets = list[list[int]]  # of each bucket, the places of its parameters in DDP's list

NOT_REBUILT = (
    "DDP kept its first buckets, by the order of the parameters and not by that in which gradients are "
    "ready: it does so with find_unused_parameters"
)
UNKNOWN = "DDP does not say which buckets it has: all tensors are in one"


class Reduced(NamedTuple):
    """A parameter whose gradients DDP sums."""

    name: str
    parameter: Any
    is_sparse: bool  # its gradients have rows


def reduced_parameters(ddp: Any) -> list[Reduced]:
    """The parameters, in the order by which DDP numbers them."""
    parameters, expect_sparse = ddp._build_params_for_reducer()  # the reducer has no other list of them
    names = {id(parameter): name for name, parameter in ddp.module.named_parameters(remove_duplicate=False)}
    return [
        Reduced(names[id(parameter)], parameter, bool(is_sparse))
        for parameter, is_sparse in zip(parameters, expect_sparse, strict=True)
    ]


def buckets_of(ddp: Any) -> tuple[Buckets, str]:
    """The buckets that DDP has now, and a note for the reader of the recording.

    Parameters are in the order in which DDP lays them out; where it has kept its first buckets, in reverse,
    since later layers are ready first.
    """
    facts = ddp._get_ddp_logging_data()
    rebuilt = str(facts.get("rebuilt_per_bucket_param_indices", ""))
    if rebuilt:
        return [list(map(int, own.split())) for own in rebuilt.split(",")], ""
    parameters, expect_sparse = ddp._build_params_for_reducer()
    sizes = [int(size) for size in str(facts.get("bucket_sizes", "")).split(",") if size.strip()]
    for found in _first_buckets(ddp, parameters, expect_sparse):
        if sizes == [sum(_bytes(parameters[place]) for place in own) for own in found]:
            return [own[::-1] for own in found], NOT_REBUILT
    return [list(range(len(parameters)))[::-1]], UNKNOWN


def _first_buckets(ddp: Any, parameters: list[Any], expect_sparse: list[bool]) -> list[Buckets]:
    """What the first buckets may be, by the limits that DDP uses in its several modes."""
    from torch import distributed

    dist: Any = distributed
    first_bytes, cap_bytes = int(dist._DEFAULT_FIRST_BUCKET_BYTES), int(ddp.bucket_bytes_cap)
    found = []
    for limits in ([first_bytes, cap_bytes], [cap_bytes], [sys.maxsize]):
        indices, _ = dist._compute_bucket_assignment_by_size(parameters, limits, expect_sparse)
        found.append([list(own) for own in reversed(indices)])
    return found


def _bytes(parameter: Any) -> int:
    return int(parameter.numel() * parameter.element_size())
