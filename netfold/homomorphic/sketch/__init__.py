"""Sketches: tables of counters that can be peeled, the settings of `lossless`, and their kernels."""
