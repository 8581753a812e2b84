"""The engine as a SimPy process, and what a network that stalls waits for."""
