"""Codecs that send some of the elements, or some of the blocks."""
