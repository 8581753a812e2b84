"""Files: reading those of other programs, and writing ours so that they are complete or absent."""
