"""The checks at the end of every variant, each a statement that can be false, and what is the bottleneck."""
