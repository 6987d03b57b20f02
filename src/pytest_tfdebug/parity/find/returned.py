"""From a forward that lacks an output to the statement that should return it: by its text, or its one ``return``."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_tfdebug.parity.find.module_texts import texts_of
from pytest_tfdebug.parity.text.text_differences import source_file
from pytest_tfdebug.records import SourceRange

if TYPE_CHECKING:
    from pytest_tfdebug.parity.claims import Claim
    from pytest_tfdebug.parity.find.module_texts import ModuleTexts
    from pytest_tfdebug.parity.tensors.compared import Compared
    from pytest_tfdebug.parity.text.text_differences import TextDifference
    from pytest_tfdebug.values import Values

_RETURN = re.compile(r"^\s*return\b", re.MULTILINE)


def where_returned(claim: Claim, compared: Compared, recorded: Values | None) -> Claim:
    """Return the claim of an output that is gone, with the statement that should return it where that is known.

    Args:
        claim: The claim that a call lacks an output.
        compared: The calls beside the reference's.
        recorded: The reference's values, which say what file ran.
    """
    item = next((each for each in compared.calls if each.call.path == claim.path and each.is_of_one_class), None)
    own = source_file(claim.source.file) if claim.source is not None else None
    if item is None or own is None or claim.source is None:
        return claim
    texts, lines = texts_of(item, recorded), claim.source
    first = None if texts is None else _first(texts, texts.differences(lines), _name(claim))
    if first is not None:
        function = first.function if first.callers else ""
        return replace(claim, source=first.own, reference=first.reference, function=function, callers=first.callers)
    name = own.around(lines)
    ends = [unit for unit in own.units(name) if _RETURN.match(unit.text)] if name else []
    return replace(claim, source=SourceRange(own.path, ends[0].first, ends[0].last)) if len(ends) == 1 else claim


def _name(claim: Claim) -> str:
    """Return the name of the output that is gone; empty where it has none."""
    leaf = claim.divergence.comparison.leaf if claim.divergence is not None else ""
    return next(iter(re.findall(r"[^\W\d]\w*", leaf)), "")


def _first(texts: ModuleTexts, differences: list[TextDifference], name: str) -> TextDifference | None:
    """Return the difference that names an output in the reference, or else the one that returns, or the only one."""
    there = [(each, texts.reference.code(each.reference)) for each in differences]
    naming = [each for each, code in there if name and re.search(rf"\b{name}\b", code)]
    returning = [each for each, code in there if _RETURN.search(code) or _RETURN.search(texts.own.code(each.own))]
    return next(iter(naming or returning[-1:] or (differences if len(differences) == 1 else [])), None)
