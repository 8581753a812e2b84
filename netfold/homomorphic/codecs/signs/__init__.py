"""Codecs that send a sign for each element."""
