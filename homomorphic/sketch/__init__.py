"""Tables of counters that peel: the settings of `lossless` and their kernels."""
