"""Faults of models, of their data, and of what a user's own model is told."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, faults

W = "tests/sim/workload/training/"
T = "sim/workload/training/"

MUTANTS: list[Mutant] = [
    *faults(
        T + "shapes.py",
        [W + "models/test_registry.py"],
        [
            (
                "a convolution's bias is ready first",
                'return (weight, tensor_of(f"{name}.bias", (outputs,))) if bias',
                'return (tensor_of(f"{name}.bias", (outputs,)), weight) if bias',
            ),
            (
                "a norm is a layer of its own",
                "weight._replace(layer=layer), bias._replace(layer=layer)",
                "weight, bias",
            ),
        ],
    ),
    *faults(
        T + "networks/resnet.py",
        [W + "models/test_networks.py"],
        [
            (
                "a bottleneck strides in its first convolution",
                "self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)",
                "self.conv1 = nn.Conv2d(inputs, width, 1, stride, bias=False); stride = 1",
            ),
            (
                "new channels of option A come last",
                "before = self._more // 2",
                "before = 0",
            ),
        ],
    ),
    *faults(
        T + "data/pictures.py",
        [W + "test_pictures.py"],
        [
            (
                "crops for training reach into those for tests",
                "else (0, border - side)",
                "else (0, border)",
            ),
            (
                "the margin of grey images is grey",
                "np.pad(flat.reshape(len(flat), 1, side, side), around)",
                "np.pad(flat.reshape(len(flat), 1, side, side), around, constant_values=self.mean)",
            ),
        ],
    ),
    *faults(
        T + "tasks/images.py",
        [W + "test_pictures.py"],
        [
            (
                "a test part is trained on where nothing is tested",
                "samples = np.setdiff1d(samples, images.tested)",
                "samples = np.setdiff1d(samples, images.tested) if settings.holds_out else samples",
            ),
        ],
    ),
    *faults(
        T + "densities.py",
        [W + "models/test_densities.py"],
        [
            (
                "every worker draws the batch of the first",
                "task.samples(0, worker)",
                "task.samples(0, 0)",
            ),
            ("the union is what all have", "union[index] |= mask", "union[index] &= mask"),
        ],
    ),
    *faults(
        T + "loop/passes.py",
        [W + "loop/test_buffers.py"],
        [
            (
                "all steps drop the same",
                'drawing(self._seed, "forward", step, worker)',
                'drawing(self._seed, "forward", 0, worker)',
            ),
        ],
    ),
    *faults(
        T + "user/watch.py",
        [W + "user/test_mistakes.py"],
        [
            (
                "infinite gradients pass",
                "None if gradient.isfinite().all() else",
                "None if not gradient.isnan().any() else",
            ),
            (
                "only the first gradient must be finite",
                "for name in self._shapes:",
                "for name in list(self._shapes)[:1]:",
            ),
            (
                "new shapes are not noticed",
                "if (found := _shapes(module)) != self._shapes:",
                "if len(found := _shapes(module)) < len(self._shapes):",
            ),
        ],
    ),
    *faults(
        T + "user/source.py",
        [W + "user/test_training.py"],
        [
            (
                "the user's draws move Python's generator",
                "random.setstate(python)",
                "random.getstate()",
            ),
        ],
    ),
]
