"""Gradients that are rows of tables: those of a batch, equal to what whole tables get."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from netfold.sim.workload import TrainingSpec, training_workload
from netfold.sim.workload.training.models.ncf import Ncf
from netfold.sim.workload.training.models.registry import model_named
from netfold.sim.workload.training.models.spec import Model
from tests.sim.workload.training.loop.given import train
from tests.sim.workload.training.text.given import (
    BERT,
    GPT,
    LSTM,
    ROWS,
    SAMPLED,
    backward,
    module_of,
    task_of,
)

pytestmark = pytest.mark.usefixtures("short_text")


def dense(module: nn.Module) -> nn.Module:
    for one in module.modules():
        if isinstance(one, nn.Embedding):
            one.sparse = False
    return module


@pytest.mark.parametrize("model", [*ROWS, GPT], ids=lambda model: model.kind)
def test_gradients_are_rows_where_the_model_says_so_and_what_whole_tables_get(model: Model) -> None:
    for batch in (1, 7):
        task = task_of(model, batch)
        gradients = backward(task, module_of(task))
        most = model.row_tables(batch)

        assert {name for name, one in gradients.items() if one.is_sparse} == set(most)
        held = 0
        for name, one in gradients.items():
            if one.is_sparse:
                found = one.coalesce()
                assert one.sparse_dim() == 1
                assert found._nnz() <= most[name]
                held += most[name] * found.values()[0].numel()
            else:
                held += one.numel()
        assert model.held_elements(batch) == held
    tables = backward(task, dense(module_of(task)))
    assert not any(one.is_sparse for one in tables.values())
    for name, one in gradients.items():
        torch.testing.assert_close(one.to_dense(), tables[name], rtol=1e-5, atol=1e-9)


def test_what_is_held_of_a_gradient() -> None:
    """Of lstm_1b the LSTM and its projection, 16 · 20 words, and as many classes and 8192 samples."""
    model = model_named("lstm_1b")
    layers = 4 * 2048 * (256 + 2048 + 2) + 257 * 2048 - 2048 + 256

    assert model.held_elements(16) == layers + 320 * 256 + (320 + 8192) * 257
    for model in ROWS:
        assert model.held_elements(1) < model.held_elements(1 << 20) == model.elements
    for model in (GPT, Ncf()):
        assert model.held_elements(1) == model.elements


@pytest.mark.parametrize("model", [LSTM, SAMPLED, BERT.model_copy(update={"dropout": 0.3}), GPT])
def test_the_same_seed_trains_the_same_bits(model: Model) -> None:
    """With dropout, samples and questions; the global generator is as before."""
    state = torch.get_rng_state()
    losses = []
    for seed in (1, 1, 2):
        workload = training_workload(TrainingSpec(model, 2, 0.5), 2, seed)
        train(workload, range(2))
        losses.append(workload.loss)
    assert losses[0] == losses[1] != losses[2]
    assert torch.equal(state, torch.get_rng_state())
