"""Kernels of Numba, on CPU."""
