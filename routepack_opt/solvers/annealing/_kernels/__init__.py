"""Compiled kernels of the annealer: plain arrays in, plain arrays out, no Python objects.

Guarantees: integers are exact; the only floating-point operations are IEEE + - * / and comparisons, so a
chain gives the same states on every host, compiled or not; every kernel releases the GIL and allocates
nothing per proposal.
"""
