"""Number formats: how a float32 becomes words that can be added."""
