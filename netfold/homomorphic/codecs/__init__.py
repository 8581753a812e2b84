"""The codecs: a file each, named after its kind; `bird_rows` and `sign_bits` are what some of them share.

A new file is found: importing a codec's module registers it.
"""
