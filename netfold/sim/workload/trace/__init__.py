"""Recordings as workloads: of netfold's own capture with values, and Chakra execution traces without."""
