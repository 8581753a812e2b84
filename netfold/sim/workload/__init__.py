"""Sources of gradients (training, synthetic, files, recordings), and devices: how long compute takes.

    option.resolved(…) → GradientSource.workload(workers, seed) → Workload:
        gradients(step) → [worker][bucket];  apply(step, totals);  score(step, is_last) on held-out data

`layers` finds the layers of tensors and reads those that were measured, `fusion` divides layers into buckets
and cuts gradients. `models` has the models, `data_sets` the data; `devices` say how long compute takes.
PyTorch is imported only when something is trained.
"""
