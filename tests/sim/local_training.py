"""Trains a model with a codec in one process, without a network: real gradients, all facts of a step.

SASG on MNIST-5k with the authors' settings, beside SGD: `python -m tests.sim.local_training [STEPS] [SEEDS]`.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from netfold.homomorphic.codec import Codec
from netfold.homomorphic.codecs.none import Uncompressed
from netfold.homomorphic.codecs.sasg import Sasg
from netfold.homomorphic.fold import AllReduceResult, fold
from netfold.homomorphic.message import Round, Step, StepFact
from netfold.sim.workload.fusion import ONE_BUCKET
from netfold.sim.workload.workload_keys import Evaluate, Training


@dataclass
class LocalTraining:
    """What a training came to."""

    losses: list[float] = field(default_factory=list)  # before each step
    scores: dict[int, float] = field(default_factory=dict)  # on held-out data, by steps done
    uploads: list[int] = field(default_factory=list)  # workers that sent words, in each step
    payload_bytes: int = 0  # of all workers, up

    @property
    def uploads_count(self) -> int:
        return sum(self.uploads)


def train(spec: Training, codec: Codec, workers: int, seed: int, steps: int) -> LocalTraining:
    """Train for some steps; every bucket is folded by rank."""
    workload, done = spec.workload(workers, seed), LocalTraining()
    encoders = [codec.worker(rank, workers, seed) for rank in range(workers)]
    server = codec.server(workers, seed)
    for step in range(steps):
        gradients = workload.gradients(step)
        for rank, encoder in enumerate(encoders):
            encoder.begin(
                Step(
                    step,
                    workload.learning_rate,
                    workload.update_norm,
                    gradients[rank] if StepFact.ALL_BUCKETS in codec.needs else (),
                    partial(workload.kept_gradients, step, rank),
                    partial(workload.keep_weights, rank),
                )
            )
        folded: list[AllReduceResult] = []
        for bucket in workload.buckets:
            round = Round(step, bucket.index, workers, seed, tensors=bucket.tensors)
            own = [one[bucket.index] for one in gradients]
            folded.append(fold(encoders, own, round, server=server))
        assert workload.loss is not None
        done.losses.append(workload.loss)
        sent = np.array([[one.announced_bytes(rank) for one in folded] for rank in range(workers)])
        done.uploads.append(int((sent.sum(axis=1) > 0).sum()))
        done.payload_bytes += int(sent.sum())
        workload.apply(step, [one.decoded[0] for one in folded], [one.results[0].is_update for one in folded])
        if (score := workload.score(step, is_last=step + 1 == steps)) is not None:
            done.scores[step + 1] = score.value
    return done


WORKERS, BATCH, GAMMA = 10, 10, 0.005
ALPHA = 1 / (2 * GAMMA)
CODECS: dict[str, Codec] = {"SGD": Uncompressed(), "SASG": Sasg(alpha=ALPHA)}


def trained(name: str, seed: int, steps: int) -> LocalTraining:
    """Train with one of the codecs; the accuracy is that on held-out images."""
    spec = Training(
        "mlp_784",
        batch=BATCH,
        learning_rate=WORKERS * GAMMA,
        fusion=ONE_BUCKET,
        data="mnist-5k",
        evaluate=Evaluate(50),
    )
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
