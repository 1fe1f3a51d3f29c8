r"""Sines and cosines of many angles at once: without branches and calls, so that the compiler takes several per instruction.

With k the nearest whole number to 2 x / pi and the rest r = x - k pi / 2 in [-pi / 4, pi / 4], both are their Taylor series in
r, exchanged and negated according to k. pi / 2 is taken as three numbers, so that r keeps its digits for |x| < 1e7. Errors are
of the size of rounding. Tree mechanics spends a fifth of its time in the library's functions otherwise.
"""

from __future__ import annotations

from math import factorial, pi

import numpy as np

from ..engines.numba.engine import lean

QUARTER = 2.0 / pi
HIGH = float(np.float32(pi / 2))
"""pi / 2 to 24 binary digits: a product with k is exact."""
MIDDLE = pi / 2 - HIGH
LOW = 6.123233995736766e-17
"""Part of pi / 2 beyond a float64."""
S3, S5, S7, S9, S11, S13, S15, S17 = ((-1) ** k / factorial(2 * k + 1) for k in range(1, 9))
C4, C6, C8, C10, C12, C14, C16 = ((-1) ** k / factorial(2 * k) for k in range(2, 9))


@lean
def turns(x, cosine, sine):
    """cosine and sine (n,) of x (n,) [rad]."""
    for i in range(len(cosine)):
        k = np.rint(x[i] * QUARTER)
        r = ((x[i] - k * HIGH) - k * MIDDLE) - k * LOW
        z = r * r
        s = r + r * z * (S3 + z * (S5 + z * (S7 + z * (S9 + z * (S11 + z * (S13 + z * (S15 + z * S17)))))))
        c = (1.0 - 0.5 * z) + z * z * (C4 + z * (C6 + z * (C8 + z * (C10 + z * (C12 + z * (C14 + z * C16))))))
        quarter = k - 4.0 * np.floor(0.25 * k)
        odd = quarter == 1.0 or quarter == 3.0
        a, b = (s, c) if odd else (c, s)
        cosine[i] = -a if quarter == 1.0 or quarter == 2.0 else a
        sine[i] = -b if quarter >= 2.0 else b
