"""Topologies without a run: what there are, what they measure, how they look, and files of them."""
