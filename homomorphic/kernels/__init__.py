"""Compiled basics: how kernels are compiled, keyed hashes, threads, comparison."""
