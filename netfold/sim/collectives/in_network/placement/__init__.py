"""Where a job is aggregated: candidate switches and trees, their resources, and the best that fits."""
