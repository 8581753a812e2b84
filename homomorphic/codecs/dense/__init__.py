"""Dense gradients: words for every element; one codec, and the names of some of its settings."""
