"""The published systems, each from its description, in plain Python."""
