"""Views of an engine: counters, tables, the event log."""
