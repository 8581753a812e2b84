"""The index: agreeing on the union support, its kernels, and the values at its bits."""
