"""Records gradients and their times from real training with PyTorch's DDP.

    with netfold.capture(model, "folder", steps=10):    # on every rank, around the training loop
        train()

or, without changing the script, `netfold capture --out folder -- torchrun … train.py`. README.md in this
folder describes what is written; `workload: {kind: trace, path: folder}` replays it.

recording  what every rank does: `recorder` hooks into a model, `buckets` asks DDP for its buckets
parts      what every rank writes, and how the last one joins all of it
layout     trace.json: its fields, limits and checks;  values  the gradients of a rank and step
launcher   the command; `site` is what it puts into the processes of a training
"""
