"""Random numbers of one chain: xoshiro256** on a uint64[4] array, and the Metropolis threshold.

Guarantees: the same stream and the same thresholds on every host, compiled or not.
"""

from typing import Any

import numpy as np

from routepack_opt.solvers.annealing._kernels.compile import inlined

_FIVE, _NINE = np.uint64(5), np.uint64(9)
_S7, _S17, _S19, _S45, _S57 = (np.uint64(k) for k in (7, 17, 19, 45, 57))
_S32, _S12 = np.uint64(32), np.uint64(12)
_LN2 = 0.6931471805599453
LARGEST = 38.0  # above -ln of the smallest draw


@inlined
def next_word(rng: Any) -> Any:
    """Advance the generator and return 64 random bits."""
    product = rng[1] * _FIVE
    result = ((product << _S7) | (product >> _S57)) * _NINE
    shifted = rng[1] << _S17
    rng[2] ^= rng[0]
    rng[3] ^= rng[1]
    rng[1] ^= rng[2]
    rng[0] ^= rng[3]
    rng[2] ^= shifted
    rng[3] = (rng[3] << _S45) | (rng[3] >> _S19)
    return result


@inlined
def below(rng: Any, limit: int) -> Any:
    """Return a whole number in [0, limit), limit < 2^31."""
    return np.int64(((next_word(rng) >> _S32) * np.uint64(limit)) >> _S32)


@inlined
def unit(rng: Any) -> float:
    """Return a number strictly between 0 and 1, an odd multiple of 2^-53.

    52 bits and a half are exact in a double; one bit more and the largest word would round up to 1.
    """
    return (np.float64(np.int64(next_word(rng) >> _S12)) + 0.5) * 2.220446049250313e-16


@inlined
def exponential(rng: Any) -> float:
    """Return -ln(u) for u uniform in (0, 1): a move is accepted when Delta / T is below it (Algorithm 3).

    The logarithm is ours, because library logarithms differ in the last bit between hosts: u = m 2^-k with m
    in [1/2, 1), and ln m = -2 atanh((1 - m) / (1 + m)) by its series, whose 14 terms reach double precision.
    """
    u = unit(rng)
    halvings = 0
    while u < 0.5:
        u *= 2.0
        halvings += 1
    z = (1.0 - u) / (1.0 + u)
    square = z * z
    power, total = z, 0.0
    for k in range(14):
        total += power / (2 * k + 1)
        power *= square
    return 2.0 * total + halvings * _LN2
