"""Kernels of NVIDIA Warp, on CPU and CUDA."""
