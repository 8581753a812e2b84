"""Faults of rules of fusion, of what they weigh, and of what is predicted."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, faults

F = "tests/sim/workload/fusion/"
C = "tests/sim/run/costs/"

MUTANTS: list[Mutant] = [
    *faults(
        "sim/workload/fusion/layer_fusion.py",
        [F + "test_layer_fusion.py"],
        [
            (
                "a plan is dropped for another that only frees the device earlier",
                "(times[left] < times[first] - slack).any(axis=1)",
                "(times[left] < times[first] - slack).all(axis=1)",
            ),
            (
                "what is left to decode makes no difference between plans",
                "[plans.device, plans.network, plans.decoded, plans.device + plans.decode]",
                "[plans.device, plans.network]",
            ),
            (
                "the rest of the layers is thought to take longer than it may",
                "alone = cost.all_ps(sizes) - cost.start_ps",
                "alone = cost.all_ps(sizes)",
            ),
            (
                "the network need not wait for the device",
                "network = np.maximum(plans.network, device) + stages.network.all_ps(elements)",
                "network = plans.network + stages.network.all_ps(elements)",
            ),
            (
                "encoding costs nothing",
                "device = plans.device + backward_ps + stages.encode.all_ps(elements)",
                "device = plans.device + backward_ps",
            ),
            (
                "the first search is all",
                "return _search(layers, costs, known, None)",
                "return _search(layers, costs, np.inf, 1)",
            ),
        ],
    ),
    *faults(
        "sim/workload/fusion/costs.py",
        [F + "test_layer_fusion.py"],
        [
            (
                "the device decodes while it computes",
                "step_ps = device_ps\n",
                "step_ps = 0.0\n",
            ),
            (
                "buckets go in the order in which they are listed",
                "sorted(partition, key=max)",
                "list(partition)",
            ),
            ("sorting takes as long as reading", "* (logs(sizes) / LN2)", ""),
        ],
    ),
    *faults(
        "sim/workload/fusion/mg_wfbp.py",
        [F + "test_layer_fusion.py"],
        [
            (
                "the start of a message is not saved",
                "if ready_ps - start_ps < network.start_ps:",
                "if ready_ps < start_ps:",
            ),
            (
                "the network is free before each bucket",
                "start_ps = max(free_ps, ready_ps)",
                "start_ps = ready_ps",
            ),
        ],
    ),
    *faults(
        "sim/workload/fusion/omgs.py",
        [F + "test_layer_fusion.py"],
        [
            (
                "what a message waits anyway is not counted",
                "- (start_ps - encoded_ps) < saved_ps",
                "< saved_ps",
            ),
            (
                "encoding both at once costs as much as both alone",
                "encode_ps = encode.ps(both) - encode.ps(elements) - encode.ps(layer.elements)",
                "encode_ps = 0.0",
            ),
        ],
    ),
    *faults(
        "sim/run/costs/fit.py",
        [C + "test_fit.py"],
        [
            ("a line may begin below zero", "if start < 0:", "if False:"),
            ("a line may fall", "if slope < 0:", "if False:"),
            (
                "one size is all start",
                "element_ps=float(Fraction(total_ps, total))",
                "start_ps=total_ps / count",
            ),
        ],
    ),
    *faults(
        "sim/run/costs/measure.py",
        [C + "test_warm_up.py"],
        [
            (
                "a warm-up sees the faults",
                "replace(variant, faults=FaultPlan(), jobs=(alone,))",
                "replace(variant, jobs=(alone,))",
            ),
            (
                "costs that are given are measured",
                "fitted(samples) if given is None else given",
                "fitted(samples)",
            ),
            (
                "any overlap is as predicted",
                "if not is_as_assumed or overlap.buckets_in_flight < buckets:",
                "if False:",
            ),
            (
                "codecs that look at all buckets first are as predicted",
                "if job.codec.needs & AFTER_BACKWARD:",
                "if False:",
            ),
            ("each step of a warm-up is a sample", "if bucket.step == last:", "if True:"),
            (
                "any jobs on a network share costs",
                "return _alone(job) == _alone(peer) and all(",
                "return _alone(job) == _alone(peer) or all(",
            ),
        ],
    ),
    *faults(
        "sim/run/costs/measure.py",
        [C + "test_predicted.py"],
        [
            ("the first step is usual", "_STEPS = 2 ", "_STEPS = 1 "),
            ("all steps of a warm-up count", "if phase.step == last:", "if True:"),
            (
                "jobs of one step share costs with longer ones",
                "steps=_steps(job),\n        references",
                "steps=1,\n        references",
            ),
        ],
    ),
    *faults(
        "sim/plan/overlap.py",
        ["tests/sim/run/step/test_closed_forms.py"],
        [
            ("what decodes last goes first", "(2 * last if self.decodes_last else 0)", "0"),
        ],
    ),
    *faults(
        "sim/run/step/rounds.py",
        ["tests/sim/run/step/test_closed_forms.py"],
        [
            (
                "a shared network stays shared",
                "collective.is_serial or parts.overlap.sends_in_turn",
                "collective.is_serial",
            ),
        ],
    ),
    *faults(
        "sim/workload/profile.py",
        ["tests/sim/workload/test_profile.py"],
        [
            ("smaller layers lose their last element", "-(-elements // shrink)", "elements // shrink"),
            ("layers may be ready in any order", "if ready_ms < before_ms:", "if False:"),
        ],
    ),
    *faults(
        "sim/workload/layers.py",
        ["tests/sim/workload/test_profile.py"],
        [
            (
                "measured times are not looked at",
                "ready_shares[own[-1]] if ready_shares else",
                "ready_shares[own[-1]] if False else",
            ),
        ],
    ),
]
