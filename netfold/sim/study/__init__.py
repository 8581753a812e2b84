"""Codecs on gradients without a network: bytes, speed, errors, side by side.

    options.py   read_codecs(["packed", "lossless:load=0.7"])   the codecs
    source.py    synthetic_source(…) or file_source(…)          the gradients
    measure.py   run_study(codecs, source, …) → Study           `homomorphic.fold` drives the encoders
                                                                (measured_encoder.py; exact.py: true sums)
    table.py, figures.py, folder.py                             tables, figures and files of a study

All results except speeds depend on the codecs, the gradients and the seed alone.
"""
