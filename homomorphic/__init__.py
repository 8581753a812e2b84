"""Encodings of gradients whose sums can be taken while encoded; knows nothing of networks."""

# Importing a codec's module makes it known.
from netfold.homomorphic import auto, block_sparse, dense, fixed_point, lossless, none, packed
from netfold.homomorphic.codec import codecs

__all__ = ["auto", "block_sparse", "codecs", "dense", "fixed_point", "lossless", "none", "packed"]
