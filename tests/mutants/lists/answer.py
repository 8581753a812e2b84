"""Faults of what bounds a job, and of ranks and baselines."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, faults

B = "tests/sim/bounds/"

MUTANTS: list[Mutant] = [
    *faults(
        "sim/bounds/path.py",
        [B + "test_path.py"],
        [
            (
                "the network's time begins with the first worker",
                "other, place = max(one for one in begun",
                "other, place = min(one for one in begun",
            ),
            (
                "a worker is waited for that begins after the end",
                "for one in begun if one[0] < at_ps or one[1])",
                "for one in begun)",
            ),
            (
                "all of a slow worker's time is the devices'",
                "usual_ps = phase.start_ps + self._median_ps(index, phase)",
                "usual_ps = phase.end_ps",
            ),
            (
                "a late worker is no straggler",
                "cause = Cause.STRAGGLER if is_late else Cause.DEVICE",
                "cause = Cause.DEVICE",
            ),
            (
                "waits for a turn in the network are the device's",
                'if phase.label == "network":',
                'if phase.label == "":',
            ),
        ],
    ),
    *faults(
        "sim/bounds/network_time.py",
        [B + "test_network_time.py"],
        [
            ("links saturate early", "SATURATED = 0.95", "SATURATED = 0.85"),
            (
                "of equally busy links the first counts",
                "rank = np.where(is_candidate, total[links], -1.0)",
                "rank = np.where(is_candidate, 0.0 * total[links], -1.0)",
            ),
            (
                "samples count whole for a job that waited for a part",
                "return (before(ends) - before(starts)).astype(np.float64)",
                "return (ends - starts).astype(np.float64)",
            ),
            (
                "busy links bound what windows hold",
                "is_held = samples.is_steady & (u > 0) & ~is_idle",
                "is_held = samples.is_steady & (u > 1) & ~is_idle",
            ),
            (
                "a remedy saves half, whatever else is busy",
                "max(whole_ps / 2, float(totals.max(initial=0.0)))",
                "whole_ps / 2",
            ),
        ],
    ),
    *faults(
        "sim/bounds/bound.py",
        [B + "test_known.py"],
        [
            (
                "links that are as busy are told one by one",
                "        left -= set(group)\n",
                "        left -= {link}\n",
            ),
            (
                "a straggler costs half of its time",
                "return 1.0 if cause is Cause.STRAGGLER else 0.5",
                "return 0.5",
            ),
            (
                "hosts that merge do nothing",
                "time_ps += spans_ps - float(split.covered_ps.sum())",
                "time_ps += 0.0",
            ),
        ],
    ),
    *faults(
        "sim/network/sampler.py",
        [B + "test_network_time.py"],
        [
            (
                "what a timer does counts before it",
                "ends = [waiting] if is_jump else",
                "ends = [waiting, after] if is_jump else",
            ),
            (
                "periods do not end",
                "            self.take()\n            self._is_open = False",
                "            self._is_open = False",
            ),
        ],
    ),
    *faults(
        "sim/engine/observe/samples.py",
        [B + "test_network_time.py"],
        [
            (
                "what waits for a link has passed it",
                "busy_ps = link.busy_ps - max(0, link.free_at_ps - now_ps)",
                "busy_ps = link.busy_ps",
            ),
            ("lost units have packets", "    if lost == 0:\n", "    if lost >= 0:\n"),
        ],
    ),
    *faults(
        "sim/report/answer/ranking.py",
        ["tests/sim/report/answer/test_answer.py"],
        [
            (
                "wrong results rank",
                "return kind(verdict) not in GOOD, value is None, signed",
                "return False, value is None, signed",
            ),
            ("less is better", "-value if more_is_better else value", "value"),
        ],
    ),
    *faults(
        "sim/report/answer/ranking.py",
        ["tests/sim/report/answer/test_answer.py"],
        [
            ("jobs are compared", '{"job": one["name"].partition("/")[2], **own}', "own"),
            ("another learning rate is another workload", "if key not in CHOICES}", "if key != ''}"),
            (
                "a variant that failed has a ratio",
                'one["metrics"].get(self.by) if kind(one["verdict"]) in GOOD else None',
                'one["metrics"].get(self.by)',
            ),
            ("compressed variants are the baseline", 'if one.get("is_uncompressed")]', "if one]"),
            ("targets are ignored", 'return "time_to_target_us"', 'return "aggregation_time_us"'),
        ],
    ),
    *faults(
        "sim/checks/rounds/losses.py",
        ["tests/sim/checks/test_bit_exact.py"],
        [
            (
                "only the first element that differs counts",
                "            or count_inexact(total, gradients)\n",
                "",
            ),
            (
                "float32 sums have one right order",
                "addition_error(len(gradients) - 1, sums.magnitude)",
                "0 * sums.magnitude",
            ),
        ],
    ),
    *faults(
        "sim/checks/rounds/findings.py",
        ["tests/sim/checks/test_bit_exact.py"],
        [
            (
                "float32 sums are exact",
                "return None if is_exact and self.float_words else is_exact",
                "return is_exact",
            ),
        ],
    ),
    *faults(
        "sim/report/answer/baseline.py",
        ["tests/sim/report/answer/test_answer.py"],
        [
            ("a run alone has no baseline of its own", "is_only=len(loaded) == 1", "is_only=False"),
        ],
    ),
]
