"""Weights that the reference holds nowhere, where all else that a wrong value is made of is right.

Before: ``self.packed(x)`` computes what the reference never does, where ``x`` is right. After: the line that makes
``packed.weight``, which holds queries scaled by something, keys and values. Such a weight may be right, as one into
which a norm is folded; so nothing of this is certain.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_tfdebug.parity.closeness import AGREE
from pytest_tfdebug.parity.find.values import where_loaded

if TYPE_CHECKING:
    from pytest_tfdebug.parity.find.values import Explained


def with_unknown_weights(look: Explained) -> Explained:
    """Return what values say, with the line that loads weights that may be wrong, not the one that uses them."""
    finding, pair, claim = look.finding, look.pair, look.claim
    if finding is None or pair is None or claim is None or look.proofs or not finding.values:
        return look
    value, port = finding.values[0], pair.port
    if port.parameter(value.index):  # a view of it
        value = next(port.uses(value.index), value)
    names = pair.weights.unknown.intersection(port.parameters_of(value))
    given = [made for made in value.producers if not port.parameter(made)]
    is_given_right = bool(given) and all(pair.matches.within(made, AGREE) for made in given)
    if finding.fault not in ("unknown", "replaced") or not names or not is_given_right:
        return look
    weights = tuple(name for name in port.table.parameters if name in names)
    why = f"{claim.why} {pair.weights.told(weights)}".lstrip()
    told = where_loaded(replace(claim, weights=weights, why=why), pair)
    faults = look.faults
    if faults is not None:  # which tell that place as well
        claims = tuple(
            replace(each, source=told.source) if each.source == claim.source else each for each in faults.claims
        )
        faults = faults._replace(claims=claims)
    return replace(look, claim=told, faults=faults)
