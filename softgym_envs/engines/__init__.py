"""How a batch of rows is stepped: Warp, Numba, MuJoCo; caches of compiled kernels."""
