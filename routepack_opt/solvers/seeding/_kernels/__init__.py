"""Compiled kernels of the seeds: plain arrays and named tuples of arrays, integers only.

Guarantees: no floating point, no random source of their own (callers pass random words), ties by lowest
index; so a kernel returns the same integers on every host, compiled or not.
"""
