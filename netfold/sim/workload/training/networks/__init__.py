"""PyTorch modules of the models, initialised from PyTorch's global generator."""
