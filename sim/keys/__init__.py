"""What the keys of a scenario file are made of: sections, types of values, and the places of errors."""
