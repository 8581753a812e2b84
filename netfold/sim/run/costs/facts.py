"""What a run records of the fusion of a job: the buckets, the costs, and the predicted time of a step."""

from __future__ import annotations

from typing import Any

from netfold.sim.plan.plan import JobPlan
from netfold.sim.workload.fusion import pieces_of
from netfold.sim.workload.fusion_weighing import Cost, Costs, predict
from netfold.sim.workload.layers import is_vector, layers_of
from netfold.units import PS_PER_US


def fusion_facts(job: JobPlan) -> dict[str, Any] | None:
    """The facts on a settled job as plain data; None if no rule asked for its costs."""
    costs, workload = job.costs, job.workload
    if costs is None:
        return None
    layers, partition = workload.layers, workload.fusion.partition(workload.layers)
    if is_vector(workload.tensors):
        layers = layers_of(pieces_of(workload.tensors, workload.fusion))
        partition = tuple((index,) for index in range(len(layers)))
    found = predict(layers, partition, costs)
    groups = sorted(partition, key=max)
    return {
        "rule": workload.fusion.title,
        "layers": len(layers),
        "predicted_iteration_time_us": found.step_ps / PS_PER_US,
        "costs": _costs(costs),
        "buckets": [
            {
                "layers": [layers[index].name for index in sorted(own)],
                "elements": sum(layers[index].elements for index in own),
                "encoded_us": encoded_ps / PS_PER_US,
                "arrived_us": arrived_ps / PS_PER_US,
            }
            for own, encoded_ps, arrived_ps in zip(groups, found.encoded_ps, found.arrived_ps, strict=True)
        ],
    }


def _costs(costs: Costs) -> dict[str, Any]:
    stages = costs.stages
    named = {"encode": stages.encode, "network": stages.network, "decode": stages.decode}
    return {
        "forward_us": costs.forward_ps / PS_PER_US,
        "backward_us": costs.backward_ps / PS_PER_US,
        "samples": len(costs.samples),
        "fit_error": costs.fit_error,
        "stages": {name: _cost(cost) for name, cost in named.items()},
    }


def _cost(cost: Cost) -> dict[str, float]:
    return {
        "start_us": cost.start_ps / PS_PER_US,
        "element_us": cost.element_ps / PS_PER_US,
        "sort_us": cost.sort_ps / PS_PER_US,
    }
