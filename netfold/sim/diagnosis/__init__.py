"""The diagnosis of a stall, from the state of workers, slots and links."""
