"""The codecs: a file or a folder each."""

# Importing a codec's module registers it.
from netfold.homomorphic.codec import codec_kinds
from netfold.homomorphic.codecs import auto, block_sparse, fp16, lossless, majority, packed, random_k, topk
from netfold.homomorphic.codecs.dense import kinds

__all__ = [
    "auto",
    "block_sparse",
    "codec_kinds",
    "fp16",
    "kinds",
    "lossless",
    "majority",
    "packed",
    "random_k",
    "topk",
]
