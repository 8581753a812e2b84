"""The engine's tables: rows, the event heap, addresses, calls of cold handlers."""
