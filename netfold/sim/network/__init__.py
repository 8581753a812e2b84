"""The network in simulated time: the engine as a SimPy process, and the compute time of hosts."""
