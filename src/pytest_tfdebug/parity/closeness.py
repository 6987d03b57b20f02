"""How near is near: the distances up to which two fingerprints count as those of one value.

A distance is the greatest difference of two fingerprints' numbers as a share of the tensor's size (see
:func:`pytest_tfdebug.values.distance`), so the numbers have no unit.

| name | number | source | where it is used |
|---|---|---|---|
| ``ROUNDING`` | 3e-7 | five roundings of a float32: a distance below it is no information | growth of a distance |
| ``SAME_WEIGHT`` | 1e-6 | weights are copied: only the sums over them are rounded | pairing of weights |
| ``SAME`` | 4e-6 | float32 is within 1.1e-6 of float64, a runtime within 1.7e-6 | open values, pieces, arrays |
| ``AGREE`` | 2e-5 | half of the smallest bug of ``fixtures/bugs.py``, 4e-5 | outputs, operands, proofs |
| ``ORDER`` | 1e-4 | elements of both signs add up to less than the size | order of elements |
| ``CAST`` | 4e-3 | half a step of bfloat16 | weights that were stored in half precision |
| ``REACH`` | 1e-2 | two tensors further apart are not looked at as one | candidates of a match |
"""

from __future__ import annotations

ROUNDING = 3e-7
SAME_WEIGHT = 1e-6
SAME = 4e-6
AGREE = 2e-5
ORDER = 1e-4
CAST = 4e-3
REACH = 1e-2

#: Distances at which two forwards are held to each other, the least first, until one tells where they part.
LADDER = (SAME, AGREE, 1e-4, 5e-4, 2e-3)


def number_of(text: str) -> float | None:
    """Return the number that a text is; None for another text."""
    try:
        return float(text)
    except ValueError:
        return None
