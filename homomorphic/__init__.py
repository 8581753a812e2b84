"""Encodings of gradients whose sums can be taken while encoded; knows nothing of networks."""

from homomorphic import fixed_point, lossless, none, packed  # importing a codec's module makes it known
from homomorphic.codec import codecs

__all__ = ["codecs", "fixed_point", "lossless", "none", "packed"]
