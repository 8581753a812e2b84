"""Files: reading those of other programs, writing ours so that they are whole or absent."""
