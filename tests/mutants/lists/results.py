"""Faults of metrics, tables and comparisons."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, faults

R = "tests/sim/results/"

MUTANTS: list[Mutant] = [
    *faults(
        "sim/results/summary.py",
        [R + "test_summary.py"],
        [
            (
                "loopback time is that of all ports together",
                "_ratio(max(inside), fact.duration_ps)",
                "_ratio(sum(inside), fact.duration_ps)",
            ),
            (
                "bytes per worker are those of all workers",
                "_mean(wire_bytes_up, steps_count * workers_count)",
                "_mean(wire_bytes_up, steps_count)",
            ),
            (
                "compression is the wrong way round",
                "_ratio(workers_count * dense_bytes, payload_bytes_up)",
                "_ratio(payload_bytes_up, workers_count * dense_bytes)",
            ),
            (
                "time of aggregation is the total",
                '"aggregation_time_us": _mean_us(aggregation_ps, len(steps))',
                '"aggregation_time_us": _mean_us(aggregation_ps, 1)',
            ),
            ("the last loss is the first", "_finite(steps[-1].loss)", "_finite(steps[0].loss)"),
            (
                "drops count as losses",
                "sum(link.lost_packets for link in links)",
                "sum(link.lost_packets + link.dropped_packets for link in links)",
            ),
            (
                "one exact round makes a variant exact",
                "all(record.merges_verified for record in rounds)",
                "any(record.merges_verified for record in rounds)",
            ),
            (
                "forecast misses are redone parts",
                '"forecast_misses": sum(record.forecast_misses',
                '"forecast_misses": sum(record.redone_parts',
            ),
        ],
    ),
    *faults(
        "sim/results/verdicts.py",
        [R + "test_verdicts.py", R + "test_summary.py"],
        [
            (
                "stuck is worse than wrong",
                '    if not kinds or not kinds <= {*GOOD, "stuck"}:',
                '    if not kinds or "stuck" not in kinds and not kinds <= {*GOOD, "stuck"}:',
            ),
            ("what was not checked passes", "    if not kinds or not kinds <=", "    if not kinds <="),
        ],
    ),
    *faults(
        "sim/results/breakdown.py",
        [R + "test_breakdown.py"],
        [
            (
                "the first worker tells of a round",
                "return max(by_worker.values()",
                "return min(by_worker.values()",
            ),
            (
                "overlapping rounds count twice",
                "max(record.start_ps, reached_ps), record.end_ps)",
                "record.start_ps, record.end_ps)",
            ),
        ],
    ),
    *faults(
        "sim/report/figures.py",
        ["tests/sim/report/test_report.py"],
        [
            (
                "all variants have the largest dense gradient",
                "        [size / factor for size in dense_bytes],\n",
                "        [max(dense_bytes) / factor for size in dense_bytes],\n",
            ),
            (
                "messages without bytes have no say in colours",
                'run.phases.filter(pl.col("phase") == "network")["label"]',
                '_payload_parts(run)["label"]',
            ),
        ],
    ),
    *faults(
        "sim/report/answer/ranking.py",
        ["tests/sim/report/test_report.py"],
        [
            (
                "aggregation alone is compared",
                'return "iteration_time_us"',
                'return "aggregation_time_us"',
            ),
        ],
    ),
    *faults(
        "sim/commands/reports.py",
        ["tests/sim/commands/test_report.py"],
        [
            (
                "a report is drawn that nobody wants",
                "    if is_wanted:\n",
                "    if True:\n",
            ),
            (
                "a report that failed is told as written",
                "            raise\n",
                "",
            ),
        ],
    ),
    *faults(
        "sim/report/words.py",
        ["tests/sim/report/test_words.py"],
        [
            (
                "parts are in the order of the records",
                'return sorted(rows, key=lambda part: _PLACES.get(part["phase"], len(_PLACES)))',
                "return rows",
            ),
        ],
    ),
    *faults(
        "sim/run/settings.py",
        ["tests/sim/run/test_settings.py"],
        [
            (
                "a section in a section lacks its defaults",
                "_given(whole[key]) if isinstance(value, dict) else value",
                "value",
            ),
        ],
    ),
    *faults(
        "sim/report/answer/baseline.py",
        ["tests/sim/report/test_compare.py"],
        [
            (
                "variants are compared with the baseline's first",
                'same = next((one for one in mine if one["name"] == wanted), None)',
                "same = None",
            ),
            (
                "the baseline's number counts from 0",
                "return loaded[int(text) - 1]",
                "return loaded[int(text) % len(loaded)]",
            ),
        ],
    ),
    *faults(
        "sim/collectives/in_network/carrier.py",
        ["tests/sim/collectives/test_carriers.py"],
        [
            (
                "the last window waits for its answer",
                "full = -(-words // self.window_words) - 1",
                "full = -(-words // self.window_words)",
            ),
        ],
    ),
    *faults(
        "sim/collectives/in_network/run.py",
        ["tests/sim/collectives/test_packet_counts.py"],
        [
            (
                "retransmissions are those of worker 0",
                "            for worker in range(self._workers)\n        )",
                "            for worker in range(1)\n        )",
            ),
        ],
    ),
    *faults(
        "sim/checks/journal.py",
        [R + "test_breakdown.py", "tests/sim/run/test_run.py"],
        [
            (
                "time that two spans share counts twice",
                "covered += max(0, end - max(start, reached))",
                "covered += max(0, end - start)",
            ),
            (
                "messages up are bytes down",
                "wire_bytes_down=int(self.wire_bytes[1])",
                "wire_bytes_down=int(self.wire_bytes[0])",
            ),
        ],
    ),
    *faults(
        "sim/run/outcome.py",
        ["tests/sim/collectives/test_packet_counts.py"],
        [
            (
                "packets delivered are reported as sent",
                'packets=counters["sent_packets"]',
                'packets=counters["delivered_packets"]',
            ),
        ],
    ),
]
