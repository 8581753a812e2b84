"""Dense gradients: words for every element. One codec, and other names for some of its settings."""
