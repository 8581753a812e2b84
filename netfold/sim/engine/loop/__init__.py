"""The event loop and the handlers it calls."""
