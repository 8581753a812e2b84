"""Building blocks of scenario keys: sections, value types, and the locations that errors point to."""
