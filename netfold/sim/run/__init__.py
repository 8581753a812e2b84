"""A plan carried out: variants, jobs, steps, faults, checkpoints."""
