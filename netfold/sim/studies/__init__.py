"""Studies over many runs or without a network: sweeps, codecs, the matrix, topologies, this machine."""
