"""Annealing of one layer's placement against the rows of a packing; see :mod:`._kernels`."""
