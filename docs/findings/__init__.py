"""The tables of `docs/systems/lossless.md` on what lossless compression guarantees, computed from seeds."""
