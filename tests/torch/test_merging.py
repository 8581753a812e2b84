"""Every merge between real processes is what its definition says, absent workers and all."""

from __future__ import annotations

from pathlib import Path

import pytest

from netfold.homomorphic.message import Merge
from tests.torch.merges import every_merge
from tests.torch.processes import returned

LACKS = (frozenset[Merge](), frozenset({Merge.OR}), frozenset({Merge.ADD, Merge.MAX}))  # gloo, NCCL, neither


@pytest.mark.processes
def test_messages_are_merged_by_rank(tmp_path: Path) -> None:
    assert returned(3, tmp_path, every_merge, LACKS) == [[], [], []]
