"""The codecs: a file each, in rooms of those that are alike."""

# Importing a codec's module registers it.
from netfold.homomorphic.codec import codec_kinds
from netfold.homomorphic.codecs import fp16
from netfold.homomorphic.codecs.auto import codec as auto
from netfold.homomorphic.codecs.bird import plus as bird_plus
from netfold.homomorphic.codecs.bird import published as bird
from netfold.homomorphic.codecs.bird import shared as bird_shared
from netfold.homomorphic.codecs.dense import kinds
from netfold.homomorphic.codecs.sasg import lists, summed
from netfold.homomorphic.codecs.signs import cascaded_sign, majority, marsit
from netfold.homomorphic.codecs.sketched import lossless
from netfold.homomorphic.codecs.sketched.count_sketch import codec as count_sketch
from netfold.homomorphic.codecs.sparse import block_sparse, packed, random_k, topk

__all__ = [
    "auto",
    "bird",
    "bird_plus",
    "bird_shared",
    "block_sparse",
    "cascaded_sign",
    "codec_kinds",
    "count_sketch",
    "fp16",
    "kinds",
    "lists",
    "lossless",
    "majority",
    "marsit",
    "packed",
    "random_k",
    "summed",
    "topk",
]
