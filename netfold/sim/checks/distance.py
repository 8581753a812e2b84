"""What is wrong with totals that keep a codec's bound: beyond float32, all zero, or far from the sums."""

from __future__ import annotations

from netfold.homomorphic.bounds import FLOAT_MAX
from netfold.homomorphic.codec import Codec
from netfold.sim.checks.journal import Journal
from netfold.sim.checks.rounds.sums import NMSE_MAX


def beyond_note(journal: Journal) -> str:
    """Where the sum of all workers is more than float32 has; empty if it never is."""
    for record, findings in zip(journal.rounds, journal.findings, strict=True):
        if (beyond := findings.beyond) is not None:
            place = f"step {record.step}, bucket {record.bucket}, element {beyond.element}"
            return (
                f"the sum of {beyond.workers} workers is beyond float32 at {place}: {beyond.sum:.3g}, and "
                f"the largest is {FLOAT_MAX:.3g}; clip or scale the gradients, or lower the learning rate"
            )
    return ""


def lost_note(codec: Codec, journal: Journal) -> str:
    """How many rounds decoded to nothing but zeros; empty if a round did not, or should have."""
    losses = [findings.loss for findings in journal.findings]
    sent = zip(journal.rounds, losses, strict=True)
    lost = [loss for record, loss in sent if record.uploads and loss.sums[1] > 0]
    if not lost or any(loss.sums[2] for loss in losses):
        return ""
    return (
        f"all totals are zero, and the sums of the gradients are not, in {len(lost)} of {len(losses)} "
        f"rounds: the values are lost in encoding; use {codec.remedy}"
    )


def far_note(codec: Codec, journal: Journal) -> str:
    """The round whose total is farthest from the sum of the gradients that went in; empty if all are near."""
    far = [
        (findings.loss.nmse or 0.0, record)
        for record, findings in zip(journal.rounds, journal.findings, strict=True)
        if findings.is_far
    ]
    if not far:
        return ""
    nmse, record = max(far, key=lambda one: one[0])
    estimates = f", with {record.estimated_elements} estimates" if record.estimated_elements else ""
    return (
        f"totals are far from the sums of the gradients, which workers contribute whole: NMSE {nmse:.3g} in "
        f"step {record.step}, bucket {record.bucket}{estimates}, at most {NMSE_MAX:g} is allowed, in "
        f"{len(far)} of {len(journal.rounds)} rounds; use {codec.remedy}"
    )
