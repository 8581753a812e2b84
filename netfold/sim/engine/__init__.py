"""The packet engine: loop, links, senders, switches, schedules, and the tables that they share."""
