"""Training workloads: models, data sets and tasks, and the gradients of virtual workers."""
