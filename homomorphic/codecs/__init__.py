"""The codecs: a file each, in rooms of those that are alike."""

# Importing a codec's module registers it.
from netfold.homomorphic.codec import codec_kinds
from netfold.homomorphic.codecs import fp16
from netfold.homomorphic.codecs.auto import codec as auto
from netfold.homomorphic.codecs.dense import kinds
from netfold.homomorphic.codecs.signs import majority
from netfold.homomorphic.codecs.sketched import lossless
from netfold.homomorphic.codecs.sketched.count_sketch import codec as count_sketch
from netfold.homomorphic.codecs.sparse import block_sparse, packed, random_k, topk

__all__ = [
    "auto",
    "block_sparse",
    "codec_kinds",
    "count_sketch",
    "fp16",
    "kinds",
    "lossless",
    "majority",
    "packed",
    "random_k",
    "topk",
]
