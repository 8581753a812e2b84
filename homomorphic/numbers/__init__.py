"""How float32 becomes words that can be added."""
