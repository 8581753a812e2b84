"""The tables of `docs/lossless.md` on what lossless compression guarantees, computed from seeds."""
