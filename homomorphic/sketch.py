"""A bucket's sketch: all its tables, by the fastest kernels that can."""
