"""Workloads from a user's files: NumPy arrays and archives, safetensors, PyTorch."""
