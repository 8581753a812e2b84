"""A plan carried out: variants, jobs, the fault driver."""
