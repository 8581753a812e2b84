"""Sampled rows of layers: `bird` and `bird_plus`, gathered; `bird_shared`, summed on the way."""
