"""What can be seen of an engine: counters, tables, the event log."""
