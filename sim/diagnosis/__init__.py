"""Why nothing moves: the cause of a stall, from what workers, slots and links show."""
