"""Merged words against the words that were sent, by kind of merge: `words.py` picks the check."""
