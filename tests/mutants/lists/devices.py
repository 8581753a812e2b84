"""Faults of devices: what is counted, what it takes, how workers differ, how this machine is calibrated."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, faults

D = "tests/sim/workload/devices/"
STEP = "tests/sim/run/step/test_devices.py"
KERNELS = "tests/sim/workload/training/test_kernels.py"

MUTANTS: list[Mutant] = [
    *faults(
        "sim/workload/devices/device.py",
        [D + "test_charges.py", D + "test_roofline.py"],
        [
            ("all kernels start at once", "work.launches * device.launch_ps", "device.launch_ps"),
            (
                "nothing to do starts a kernel",
                "if work.is_free:",
                "if work.read_bytes < 0:",
            ),
            ("a bucket is ready with its first tensor", "return max(times_ps)", "return min(times_ps)"),
            (
                "a layer is ready with its first tensor",
                "found[name] = max(share, found.get(name, 0.0))",
                "found[name] = min(share, found.get(name, 1.0))",
            ),
        ],
    ),
    *faults(
        "sim/workload/devices/roofline.py",
        [D + "test_roofline.py"],
        [
            ("kernels start at no cost", "return self.operator_ps + time_ps", "return time_ps"),
            (
                "half precision moves whole words",
                "kernel.size_bytes // 2 if self.is_half else kernel.size_bytes",
                "kernel.size_bytes",
            ),
            (
                "the first point begins a curve",
                "start, start_ps = self.points[place - 1] if place else (0, 0)",
                "start, start_ps = self.points[place - 1]",
            ),
            (
                "codecs stream through memory on processors",
                "share * hardware.codec_share",
                "share",
            ),
        ],
    ),
    *faults(
        "sim/workload/devices/variation.py",
        [D + "test_variation.py"],
        [
            (
                "jobs meet the same jitter",
                "mix_plain(seed, purposes.DEVICE_JITTER, self.job, worker, step)",
                "mix_plain(seed, purposes.DEVICE_JITTER, worker, step)",
            ),
            (
                "lognormal factors have median 1",
                "float(generator.standard_normal()) - sigma * sigma / 2",
                "float(generator.standard_normal())",
            ),
            ("stragglers are not slower where nothing jitters", "is None and not self.slow", "is None"),
        ],
    ),
    *faults(
        "sim/run/job.py",
        [STEP],
        [
            (
                "updates are not waited for",
                "max(end_ps, backward_end_ps, int(self._environment.now))",
                "max(end_ps, backward_end_ps)",
            ),
            (
                "a straggler updates as fast as others",
                "own.update(step, worker, scaled_ps(update_ps, factor))",
                "own.update(step, worker, update_ps)",
            ),
        ],
    ),
    *faults(
        "sim/run/step/rounds.py",
        [STEP],
        [
            (
                "a codec on the host gets gradients for nothing",
                "encode_ps = copy_ps + sum(",
                "encode_ps = sum(",
            ),
            (
                "stragglers encode as fast as others",
                "work_ps = scaled_ps(usual_ps, ",
                "work_ps = (lambda time_ps, _: time_ps)(usual_ps, ",
            ),
        ],
    ),
    *faults(
        "sim/workload/training/kernels.py",
        [KERNELS],
        [
            (
                "views are kernels",
                "if not flops and (name in _ALLOCATING or _is_view(func, given, returned)):",
                "if not flops and name in _ALLOCATING:",
            ),
            ("tables are read whole", "if name in _GATHERING and sizes:", "if not sizes:"),
            (
                "what is overwritten is read",
                "if name in _OVERWRITING:",
                "if not name:",
            ),
        ],
    ),
    *faults(
        "sim/workload/devices/kinds/trace.py",
        [D + "test_keys.py"],
        [
            (
                "backward ends with the last tensor",
                "max(before_ps, backward_ps or 0)",
                "before_ps",
            ),
        ],
    ),
    *faults(
        "sim/study/measured_encoder.py",
        ["tests/sim/study/test_measure.py"],
        [
            (
                "decoding is charged as encoding",
                "encode_work, decode_work = encode_work + decode_work, []",
                "encode_work = encode_work + decode_work",
            ),
        ],
    ),
]
