"""Parameters that a port holds and leaves out: the cheapest hint at a step that it lacks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_tfdebug.errors import counted

if TYPE_CHECKING:
    from pytest_tfdebug.parity.proof.forward_pair import ForwardPair

#: How many are named.
_SHOWN = 2


def told_unused(pair: ForwardPair) -> str:
    """Say of which of a port's parameters no output comes, though one of the reference's comes of the same numbers.

    Several with the same numbers, as biases of zeros and tied weights, are no matter as long as one of them is used.
    """
    partners, used, theirs = pair.weights.partners, pair.port.used, pair.reference.used
    known = {other for name in used for other in partners.get(name, ())}
    idle = [name for name, others in partners.items() if name not in used and theirs.issuperset(others)]
    idle = [name for name in idle if known.isdisjoint(partners[name])]
    if not idle:
        return ""
    named = [f"{name}, the reference's {partners[name][0]}" for name in idle[:_SHOWN]]
    more = f" and {counted(len(idle) - _SHOWN, 'parameter')} more" if len(idle) > _SHOWN else ""
    return f"No output comes of {'; of '.join(named)}{more}."
