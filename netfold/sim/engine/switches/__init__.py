"""Packet processing at switches: aggregation, egress, slot timers, ATP."""
