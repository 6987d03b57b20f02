"""The changes of a proof as data, and the sentence that tells them."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, NamedTuple

from pytest_tfdebug.parity.proof.changes import LENGTHENED, SHORTENED
from pytest_tfdebug.records import ChangeRecord

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_tfdebug.parity.find.counterparts import Finding
    from pytest_tfdebug.parity.proof.prove import Proof
    from pytest_tfdebug.parity.proof.search import Mend
    from pytest_tfdebug.records import ChangeKind, SourceRange

#: Kind of a change of the search -> what it is of.
_KINDS: dict[str, ChangeKind] = {
    "number": "number",
    "scaled": "number",
    "form": "operand",
    "operand": "operand",
    "added": "operand",
    "exchanged": "order",
    "order": "order",
    "parts": "order",
    "sizes": "order",
    "order of elements": "order",
    "function": "call",
    "activated": "call",
    "activation": "call",
    "made otherwise": "call",
    "given": "operand",
    "meant": "operand",
    "bias": "left out",
    "left out": "left out",
    "call left out": "left out",
    "exchange": "weights",
    "in turn": "weights",
    "weights": "weights",
    "converted": "weights",
    "table": "weights",
}
#: Changes that are told where several cannot be told apart.
_TOLD = 2


class ProofPlace(NamedTuple):
    """Changes of one line that mend a forward."""

    mends: list[Mend]  # the changes, the likeliest first
    finding: Finding  # what the first says
    at: SourceRange | None  # the line that the first changes
    lines: SourceRange | None  # the lines to blame; None where there are none


def changes_of(places: Sequence[ProofPlace], *, is_reverse: bool) -> Iterator[ChangeRecord]:
    """Yield the likeliest change of each line that mends a forward."""
    for place in places:
        first, at = place.mends[0], place.at or place.lines
        change = first.change
        kind = _KINDS[change.kind]
        old = "" if change.kind in LENGTHENED else change.old
        new = "" if kind == "left out" else change.new or change.text
        file, line = ("", 0) if at is None else (at.file, at.first)
        yield ChangeRecord("reference" if is_reverse else "port", file, line, kind, old, new, first.times)


def held_sentence(proof: Proof, places: Sequence[ProofPlace]) -> str:
    """Return what mends a forward, and whether on inputs that were not searched as well."""
    told = sentence(places, is_reverse=proof.is_reverse)
    if proof.holds is False:
        return f"{told}, for this input alone{proof.narrow.partition(' for this input alone')[2]}"
    more = ", also on inputs that were not searched" if proof.holds else ""
    return f"{told}{more}{f'; in the port {proof.narrow}' if proof.narrow else ''}"


def sentence(places: Sequence[ProofPlace], *, is_reverse: bool, lacks: str = "your port lacks") -> str:
    """Return what mends a forward: "with eps 1e-06 instead of 1e-05 at my_bert.py:88 every output agrees".

    ``lacks`` begins what is said of a step that the reference alone does; empty to say it of the reference.
    """
    more = f" (and {len(places) - _TOLD} other ways)" if len(places) > _TOLD else ""
    first = places[0].mends[0].change
    if lacks and is_reverse and first.kind in {*SHORTENED, "bias"} and places[0].at is not None:
        return f"{lacks} {_lacking(places[0])}"
    told = ", or with ".join(map(told_change, places[:_TOLD])) + more
    if is_reverse:
        return f"the reference gives every output of this with {told}"
    return f"with {told} every output agrees"


def _lacking(place: ProofPlace) -> str:
    """Return what a port does not do, by the line of the reference that does it."""
    first, at = place.mends[0], place.at
    change, where = first.change, "" if at is None else f"{PurePath(at.file).name}:{at.first}"
    places = f" (in {first.times} places)" if first.times > 1 else ""
    if change.call is not None:
        return f"{change.old}, called at {where}{places}"
    is_range = change.old.startswith("all ")
    return f"{change.old} at {where}{places}" if is_range else f"the {change.old.strip('_')} of {where}{places}"


def told_change(place: ProofPlace) -> str:
    """Return what a change is, and where: ``factor 0.2, as the reference has, instead of 0.25 at my_port.py:52``."""
    at, count = place.at, place.mends[0].times
    where = f" at {PurePath(at.file).name}:{at.first}" if at is not None else ""
    return f"{_numbers(place)}{where}{f' ({count} times)' if count > 1 else ''}"


def _numbers(place: ProofPlace) -> str:
    """Return what a change is, with all numbers that mend the forward: "eps 1e-12 or eps 0 instead of 1"."""
    first = place.mends[0].change
    if first.kind != "number" or ", " in first.text:  # what the other side has needs no other number beside it
        return first.text
    same = [mend.change for mend in place.mends if (mend.change.kind, mend.change.place) == (first.kind, first.place)]
    new, _, old = first.text.partition(" instead of ")
    alike = [each.text.partition(" instead of ")[0] for each in same if each.text.endswith(f" instead of {old}")]
    return f"{' or '.join(dict.fromkeys([new, *alike]))} instead of {old}"
