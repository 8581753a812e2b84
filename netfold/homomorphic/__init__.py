"""Encodings of gradients whose sums can be taken while encoded; knows nothing of networks."""
