"""SASG on MNIST-5k with the authors' settings, beside SGD, in one process.

    python -m tests.sim.mnist_sasg [STEPS] [SEEDS]

prints accuracies and uploads of every seed; docs/systems/sasg.md has them for 400 steps and the seeds 1 to 5.
It takes minutes: the tests hold fewer steps of one seed.
"""

from __future__ import annotations

import sys

from netfold.homomorphic.codec import Codec
from netfold.homomorphic.codecs.dense.kinds import Uncompressed
from netfold.homomorphic.codecs.sasg.lists import Sasg
from netfold.sim.workload import TrainingSpec
from netfold.sim.workload.fusion.one import ONE_BUCKET
from tests.sim.local_training import LocalTraining, train

WORKERS, BATCH, GAMMA = 10, 10, 0.005
ALPHA = 1 / (2 * GAMMA)
CODECS: dict[str, Codec] = {"SGD": Uncompressed(), "SASG": Sasg(alpha=ALPHA)}


def trained(name: str, seed: int, steps: int) -> LocalTraining:
    """Train with one of the codecs; the accuracy is that on held-out images."""
    spec = TrainingSpec("mlp_784", BATCH, WORKERS * GAMMA, ONE_BUCKET, data="mnist-5k", test_every=50)
    return train(spec, CODECS[name], WORKERS, seed, steps)


def main(steps: int = 400, seeds: int = 5) -> None:
    """Print a line for every codec and seed."""
    for seed in range(1, seeds + 1):
        for name in CODECS:
            found = trained(name, seed, steps)
            share = found.uploads_count / (steps * WORKERS)
            print(f"{seed} {name:6} {found.scores[steps]:.2%} {found.uploads_count} uploads ({share:.1%})")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
