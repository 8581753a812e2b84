"""Codecs that send a sketch."""
