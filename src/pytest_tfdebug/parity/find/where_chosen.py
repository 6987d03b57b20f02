"""Where a change that mends a port was chosen: the line that is changed may only use what another one set or made.

Before: ``x * self.scale`` of a forward, which is right for any scale. After: ``Spec(scale=0.1)`` of the function that
reads a configuration. So it is with modules of torch, with tables of constructors, with functions and with flags.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING

from pytest_tfdebug.frames import is_installed
from pytest_tfdebug.module_path import holder, name_of
from pytest_tfdebug.parity.find.values import lines_of, made_as_buffer, told_use
from pytest_tfdebug.parity.proof.known_operands import MEANT
from pytest_tfdebug.parity.text.chosen_at import choice_before, chosen_at, function_chosen_at, handed_on_at
from pytest_tfdebug.parity.text.handed_on import chooses, is_equal, set_before
from pytest_tfdebug.parity.text.text_differences import source_file

if TYPE_CHECKING:
    from pytest_tfdebug.parity.claims import Claim
    from pytest_tfdebug.parity.find.counterparts import Finding
    from pytest_tfdebug.parity.find.proved_changes import ProofPlace
    from pytest_tfdebug.parity.proof.changes import Change
    from pytest_tfdebug.parity.proof.value_graph import Side
    from pytest_tfdebug.records import Call, SourceRange
    from pytest_tfdebug.values import Value


def at_lines(claim: Claim, lines: SourceRange | None) -> Claim:
    """Return a claim as one on other lines, those of another function without the calls that led to its own."""
    file = None if lines is None or not claim.function else source_file(lines.file)
    if lines is None or file is None or name_of(file.around(lines)) == claim.function:
        return replace(claim, source=lines)
    return moved_to(lines, claim)


def moved_to(place: SourceRange, claim: Claim) -> Claim:
    """Return a claim as one on another place, which says where that is used."""
    used = told_use(claim) if claim.source != place else ""
    return replace(claim, source=place, why=f"{used} {claim.why}".strip(), function="", callers=())


def where_begun(operand: Value, uses: int, side: Side) -> SourceRange | None:
    """Return where an operand begins that is made of no input: a table of a constructor, or positions.

    If some of its uses are right, it is not made wrongly.
    """
    made = made_as_buffer(operand, side)
    if made is not None:
        return made
    origins = {side.values[each].origin for each in side.ancestors(operand.index)}
    is_begun = operand.operator and operand.lines and origins.isdisjoint({"input", "parameter", "buffer"})
    is_for_these = len(side.users.get(operand.index, ())) <= uses
    return lines_of(operand.lines[0]) if is_begun and is_for_these else None


def where_made_with(claim: Claim, call: Call, side: Side) -> Claim | None:
    """Return a claim on a number of a library's module as one on the line that makes it; None for other modules.

    ``nn.Upsample(scale_factor=2)`` chooses ``align_corners``, and who calls it hands on nothing of that.
    """
    made = None if call.parent is None or call.source is not None else made_at(side, call)
    if made is None or is_installed(made.file):
        return None
    return moved_to(made, claim)


def where_function_set(claim: Claim, place: ProofPlace, side: Side) -> Claim:
    """Return a claim on another function as one on where that is chosen, ``self.act = ACTIVATIONS[name]``."""
    path = "" if place.finding.call.parent is None else place.finding.call.path
    modules = {name_of(each) for each in side.table.modules if holder(each) == path}
    made = [lines for each in side.around(place.finding.call.index) if (lines := made_at(side, each)) is not None]
    chosen = None if place.lines is None else function_chosen_at(place.lines, modules, made)
    return claim if chosen is None or is_installed(chosen.file) else moved_to(chosen, claim)


def where_set(claim: Claim, place: ProofPlace, side: Side) -> Claim:
    """Return a claim on the use of a number as one on the statement of a constructor that chooses it, or names it.

    What a library's constructor sets may have been changed since: there the use is what is known.
    """
    at, call, old = place.at, place.finding.call, place.mends[0].change.old
    file = None if at is None else source_file(at.file)
    function = None if at is None or file is None else file.around(at)
    if at is None or file is None or function is None:
        return claim
    for name, text in side.table.attributes.get("" if call.parent is None else call.path, {}).items():
        if is_equal(text, old) and any(file.reading(name, function, at)):
            made = file.made_at(function.rpartition(".")[0], name)
            if made is None:
                continue
            begin = chosen_at(made, old)
            chosen = begin if begin is not None or not chooses(made, old) else made
            if chosen is not None and not is_installed(chosen.file):
                told = f"It is {name}={text}, which is used at {PurePath(at.file).name}:{at.first}."
                return replace(claim, source=chosen, why=f"{told} {claim.why}".strip(), function="", callers=())
            given = chosen_at(made)
            more = "" if given is None else f", which {PurePath(given.file).name}:{given.first} gives it"
            told = f"It is {name}={text}, set at {PurePath(made.file).name}:{made.first}{more}."
            return replace(claim, why=f"{told} {claim.why}".strip())
    return claim


def set_at(side: Side, change: Change, finding: Finding) -> SourceRange | None:
    """Return the statement before a line that sets the number, or chooses the value, which it should not use."""
    value = finding.values[0]
    if (
        finding.fault != "proved"
        or change.kind not in ("number", "operand", MEANT)
        or len(value.lines) <= finding.depth
    ):
        return None
    line = value.lines[finding.depth]
    if change.kind == "number":
        ran = side.lines_that_ran
        return set_before(change.old, line, ran) or _handed_on_at(lines_of(line), finding, change, side)
    return choice_before(line, side.lines_that_ran)


def _handed_on_at(lines: SourceRange, finding: Finding, change: Change, side: Side) -> SourceRange | None:
    """Return where a number is chosen that a function hands on to an operator; None where a line chooses it."""
    held = side.table.attributes.get("" if finding.call.parent is None else finding.call.path, {})
    if finding.depth or is_installed(lines.file) or chooses(lines, change.old, held):
        return None
    return handed_on_at(lines, change.old, side.lines_that_ran)


def made_at(side: Side, call: Call) -> SourceRange | None:
    """Return the statement of a constructor that makes the module of a call; None where none is found."""
    for around in side.with_code(call.parent):
        path, lines = "" if around.parent is None else f"{around.path}.", around.source
        file = source_file(lines.file) if lines is not None else None
        if lines is not None and file is not None and call.path.startswith(path):
            class_name = file.around(lines).rpartition(".")[0]
            made = file.made_at(class_name, call.path.removeprefix(path).partition(".")[0])
            return made and (file.making_of(call.class_name, made) or made)
    return None
