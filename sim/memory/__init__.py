"""Memory: how much there is, and how much a run takes."""
