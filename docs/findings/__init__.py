"""What lossless compression does and does not hold: the tables of `docs/lossless.md`, made from seeds."""
