"""Shared kernels: compilation, keyed hashes, threads, comparison."""
