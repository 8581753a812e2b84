"""Codec `count_sketch`: its options and bounds, what its workers send, and momentum."""
