"""Memory: how much is available, and how much a run takes."""
