"""Which elements take part in a round: the index, its kernels, and the values at its bits."""
