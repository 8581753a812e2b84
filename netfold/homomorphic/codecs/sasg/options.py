"""The options that both codecs of SASG have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from netfold.homomorphic.codec import Codec
from netfold.homomorphic.codecs.sasg.rule import UploadRule, check_rule, facts_of
from netfold.homomorphic.codecs.sparse.topk import check_share
from netfold.homomorphic.feedback import STATE_BYTES
from netfold.homomorphic.round import StepFact

WEIGHT_BYTES = 4


@dataclass(frozen=True)
class SasgOptions(Codec):
    """Who uploads, and how much."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid", "strict": True}

    share: float = 0.01
    alpha: float | None = None
    staleness: int = 10

    def __post_init__(self) -> None:
        check_share(self.share)
        check_rule(self.alpha, self.staleness)

    @property
    def needs(self) -> frozenset[StepFact]:
        """What the rule reads; with alpha 0 the learning rate alone."""
        return facts_of(self.alpha)

    @property
    def state_bytes(self) -> int:
        """What is held back, and the weights of the last upload."""
        return STATE_BYTES + (WEIGHT_BYTES if StepFact.KEPT_WEIGHTS in self.needs else 0)

    def rule(self, workers: int) -> UploadRule:
        """The rule of one of some workers."""
        return UploadRule(self.alpha, self.staleness, workers)
