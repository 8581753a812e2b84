"""Records gradients and their times from real training with PyTorch's DDP.

    with netfold.capture(model, "folder", steps=10):    # on every rank, around the training loop
        train()

or, without changing the script, `netfold capture --out folder -- torchrun … train.py`.
docs/explanation/recordings.md describes what is written; `workload: {kind: trace, path: folder}` replays it.

capture           what every rank does: hooks into a model, asks DDP for its buckets; the
                  command, and `site`, which it puts into the processes of a training
recording_files   trace.json: its fields, limits and checks; what every rank writes and the last one joins
"""
