"""Codecs on gradients without a network: bytes, speed, errors, side by side.

    options.py   read_codecs(["packed", "lossless:load=0.7"])   what is studied
    source.py    synthetic_source(…) or file_source(…)          on which gradients
    measure.py   run_study(codecs, source, …) → Study           `homomorphic.fold` drives encoders
                                                                (probe.py: timed; exact.py: true sums)
    table.py, figures.py, folder.py                             what is printed, drawn and kept of it

Everything but speeds depends on the codecs, the gradients and the seed alone.
"""
