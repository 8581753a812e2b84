"""Codec `auto`: an encoding for each bucket, chosen by counts, costs, and a record of earlier rounds."""
