"""Aggregation protocols, one file each: registers and what one packet does to them."""
