"""netfold's codecs in real training: a communication hook of PyTorch's DDP, and a reduce-scatter of FSDP2.

    import netfold.torch

    model = DistributedDataParallel(module)
    state = netfold.torch.State("packed", values="exact", parameters=module.named_parameters())
    model.register_comm_hook(state, netfold.torch.hook)
    ...                             # train as before
    print(state.report())           # bytes by bucket and step, compression, what the codec reports

The generators that the simulator drives are driven here, so a codec has one implementation. Their messages
travel by collectives of torch.distributed and are merged in rank order, as the simulator's `all_gather` does.
docs/explanation/real-training.md says what is guaranteed, which codecs need more, and how fast it is.

A mistake in an option is a `ScenarioError`, with the text that a scenario file would get; what ends a
training is a `RunError`, raised by `backward` on all workers.
"""

from __future__ import annotations

from netfold.torch.exchange import Report
from netfold.torch.hook import ReduceScatter, hook, set_reduce_scatter
from netfold.torch.hook_state import State
from netfold.torch.wire import Support, support_of

__all__ = ["ReduceScatter", "Report", "State", "Support", "hook", "set_reduce_scatter", "support_of"]
