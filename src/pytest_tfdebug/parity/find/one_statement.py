"""From the range of lines that calls single out to the statement within it.

Calls know the module, and the lines of its forward between what agrees before and after. Within them three kinds of
evidence single out a statement: the values that are wrong (a frame of their stack passes through the range), the text
(the functions of the range are the reference's but for a few statements) and the attributes that these read.
A statement that is the reference's, in a function that is the reference's otherwise, is not wrong by itself.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_tfdebug.module_path import holder
from pytest_tfdebug.parity.claims import Evidence
from pytest_tfdebug.parity.find.constructors import Constructors
from pytest_tfdebug.parity.find.lines_of_both import differences_around, is_run_by_both
from pytest_tfdebug.parity.find.made_with import where_made_otherwise
from pytest_tfdebug.parity.find.module_texts import is_of_one_forward, texts_of
from pytest_tfdebug.parity.find.values_of_lines import ValuesOfLines, is_not_after, meet, passes
from pytest_tfdebug.parity.text.text_differences import on_disk, source_file
from pytest_tfdebug.records import SourceRange
from pytest_tfdebug.tracing.record.modules import modules_by_path
from pytest_tfdebug.tracing.values.slicing import branch_begin, conditions_around, is_statement

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_tfdebug.parity.claims import Claim
    from pytest_tfdebug.parity.find.values import Explained
    from pytest_tfdebug.parity.tensors.compared import Compared
    from pytest_tfdebug.parity.text.text_differences import TextDifference
    from pytest_tfdebug.records import CallComparison


_NOTHING_NARROWS = "No value, text or attribute singles out one of these lines."


def one_statement(named: Claim, compared: Compared, look: Explained) -> Claim:
    """Return the claim of the calls with the statement that is wrong, and with both sides' lines."""
    if named.source is None:
        return named
    return replace(_StatementSearch(named, named.source, compared, look).claim(), narrows=named)


class _StatementSearch:
    """The search for a statement within the lines of a culprit."""

    def __init__(self, named: Claim, lines: SourceRange, compared: Compared, look: Explained) -> None:
        self._named, self._lines, self._look = named, lines, look
        paired = {item.call.path for item in compared.calls if item.expected is not None}
        self._seen = look.seen if passes(look, lines, paired) else None
        self._called = {item.call.path for item in compared.calls}
        around = _around(named, compared)
        recorded = look.pair.reference.table if look.pair is not None else None
        self._own = next((item for item in around if item.call.path == named.path), None)
        with_text = [item for item in around if item.call.source is not None]
        # what both run of one file is right: what was made of it may be wrong
        with_text = [item for item in with_text if not is_of_one_forward(item, recorded)] or with_text
        self._item = next(iter(with_text), None)
        self._texts = texts_of(self._item, recorded) if self._item is not None else None
        outer = (item for item in with_text if item.call.index < (self._own or around[0]).call.index)
        makers = [(item.call, texts) for item in outer if (texts := texts_of(item, recorded)) is not None]
        own_texts = self._texts if self._own is self._item else None
        self._made = Constructors(named.path, own_texts, makers, _attributes(self._own, look)[1])
        self._values = ValuesOfLines(self._item, look, self._seen)

    def claim(self) -> Claim:
        """Return the claim with its statement, and with both sides' lines."""
        chosen = self._by_choice()
        if chosen is not None:
            return chosen
        differences = self._texts.differences(self._lines) if self._texts is not None else []
        differences = differences or self._differences_elsewhere()
        suspects = [each for each in differences if not self._values.is_right(each)]
        # of several lines that mend the port, the one that is not the reference's
        in_port = [each for each in self._look.in_port if not each.is_of_both]
        proved = (each for each in in_port if any(meet(each.source, other.own) for other in suspects))
        seen = next(proved, self._seen)
        at_value = [each for each in suspects if seen is not None and meet(seen.source, each.own)]
        if at_value and seen is not None:
            return self._told(self._at(at_value[0], Evidence.STATEMENT), seen.wrong, seen.why)
        read = self._by_attributes([seen.source, *seen.callers] if seen is not None and seen.source is not None else [])
        leading = [each for each in suspects if self._values.leads_to_wrong(each)]
        own = self._own
        is_of_one_class = own is None or own.is_of_one_class or own.call.source is None  # torch is right: it was chosen
        # of a module of another class the constructor differs as it is, and tells nothing where values do
        constructors = self._made.differences() if self._seen is None or is_of_one_class else []
        made = constructors if len(constructors) == 1 else []
        is_text_plain = len(leading) == 1 or (made and not suspects)  # what runs is the reference's text
        tried = self._by_values() if in_port and not is_text_plain else None
        return (
            read
            or tried  # a change that mends the port outranks texts that differ in several places
            or self._by_text(suspects)
            or self._by_attributes([self._lines])
            or self._by_weights()
            or self._by_text(made)
            or self._by_values()
            or self._by_text(differences)
            or self._whole()
        )

    def _differences_elsewhere(self) -> list[TextDifference]:
        """Return where functions of other files that lead to the value that is wrong are not the reference's."""
        seen, own = self._seen, self._texts.own.path if self._texts is not None else ""
        places = [] if seen is None else [at for at in (seen.source, *seen.callers) if at is not None]
        found = (differences_around(at, self._look) for at in places if on_disk(at.file) != own)
        return next(filter(None, found), [])

    def _at(self, difference: TextDifference, evidence: Evidence) -> Claim:
        return replace(
            self._named,
            source=difference.own,
            reference=difference.reference,
            evidence=evidence,
            function=difference.function if difference.callers else "",
            callers=difference.callers,
        )

    def _by_text(self, differences: Sequence[TextDifference]) -> Claim | None:
        """Blame the statement whose text is not the reference's."""
        if not differences:
            return None
        before = [each for each in differences if self._seen is None or is_not_after(each.own, self._seen.source)]
        before = [each for each in before if each.is_left_out or self._values.of(each.own)] or before  # what ran
        first = before[-1] if before and self._seen is not None else differences[0]
        others = [each for each in differences if each is not first]
        does = "leaves out a statement of the reference" if first.is_left_out else "has another statement here"
        why = f"the rest of {first.function} is the reference's text."
        if others:
            why += f" So do {', '.join(str(each.own) for each in others)}: it is not known which of them is wrong."
        evidence = Evidence.STATEMENTS if others or self._values.is_right(first) else Evidence.STATEMENT
        return self._told(self._at(first, evidence), does, why)

    def _by_choice(self) -> Claim | None:
        """Blame where a module is made as one of another class, although both sides have both classes.

        They have where the files that make the module name both, or the one with the port's class has the other, too.
        """
        own = self._own or self._item  # of a call on one side only, what makes it
        if own is None or own.expected is None or own.call.class_name == own.expected.class_name:
            return None
        classes = {own.call.class_name, own.expected.class_name}
        is_of_torch = own.call.source is None and own.expected.source is None
        with_class = source_file(own.call.source.file) if own.call.source is not None else None
        is_beside = with_class is not None and classes <= with_class.classes
        is_named = self._made.is_choice(classes)
        is_choice = is_of_torch or is_named or is_beside
        made = self._made.made_by() if is_choice else []
        if not made:
            return None
        at = self._at(made[0], Evidence.STATEMENT if len(made) == 1 else Evidence.STATEMENTS)
        if own is not self._own:
            at = replace(at, path=own.call.path, kind="module", class_name=own.call.class_name)
        return self._told(at, "is made here", f"the reference makes a {own.expected.class_name}.")

    def _by_attributes(self, lines: Sequence[SourceRange]) -> Claim | None:
        """Blame the attributes of the culprit that are not the reference's and that some lines read.

        Of a module whose text is not known, such as one of torch's, every attribute counts. That of the reference need
        not be known, which a golden of another version does not have.
        """
        mine, theirs = _attributes(self._own, self._look)
        is_readable = self._own is self._item
        texts, own = (self._texts, source_file(self._lines.file)) if is_readable else (None, None)
        read: dict[str, SourceRange] = {}
        for name in (name for name in mine if name in theirs and mine[name] != theirs[name]):
            reading = [self._lines] if own is None else [at for each in lines for at in own.reading_in(name, each)]
            if reading:
                read[name] = self._values.first_that_ran(reading)
        if not read:
            return None
        first = next(iter(read.values()))
        made = [each for name in read for each in self._made.differences(name)] or self._made.made_by()
        beside = texts.beside(first) if texts is not None else None
        evidence = Evidence.ATTRIBUTE if len(read) == 1 else Evidence.ATTRIBUTES
        at = replace(self._named, source=first, reference=beside, evidence=evidence)
        at = self._at(made[0], evidence) if made else self._where_made(at, next(iter(read)))
        told = ", ".join(f"{name} {mine[name]}" for name in read)
        there = ", ".join(theirs[name] for name in read)
        return self._told(at, f"has {told}", f"the reference has {there}.")

    def _where_made(self, claim: Claim, name: str) -> Claim:
        """Return a claim on an attribute at the lines that make its module so: a function of no class may."""
        own, again = self._own, self._look.again
        if own is None or own.expected is None or again is None:
            return claim
        paths = ("", "") if own.call.parent is None else (own.call.path, own.expected.path)
        both = [modules_by_path(side.model).get(path) for side, path in zip(again, paths, strict=True)]
        found = None if both[0] is None or both[1] is None else where_made_otherwise(both[0], both[1], name)
        return claim if found is None else replace(claim, source=found[0], reference=found[1])

    def _by_weights(self) -> Claim | None:
        """Blame the parameters of a module within that is not called: these lines use them themselves."""
        own, pair = self._own, self._look.pair
        if own is None or own.expected is None or pair is None or self._texts is None:
            return None
        inside = (holder(name) for name in pair.port.table.parameters)
        for path in dict.fromkeys(path for path in inside if path.startswith(f"{own.call.path}.")):
            part = path.removeprefix(own.call.path)
            wrong = {} if path in self._called else pair.wrong_weights(path, own.expected.path + part)
            for name, told in wrong.items():
                reading = self._texts.reading(name.removeprefix(f"{own.call.path}."), self._lines)
                if reading:
                    lines = self._values.first_that_ran(reading)
                    at = replace(self._named, source=lines, reference=self._texts.beside(lines), weights=(name,))
                    return self._told(at, "uses another parameter", f"{told[:1].lower()}{told[1:]}")
        return None

    def _by_values(self) -> Claim | None:
        """Blame the statement whose value is wrong, with its condition, as far as these are lines that calls name."""
        seen, texts = self._seen, self._texts
        if seen is None or seen.source is None:
            return None
        lines, function, callers = self._not_of_both(seen.source, seen.function, seen.callers)
        lines = self._not_run(seen) or lines
        if meet(lines, self._lines):
            begin = max(branch_begin(lines.file, lines.first), self._lines.first)
            lines = SourceRange(lines.file, begin, min(lines.last, self._lines.last))
        beside = texts.beside(lines) if texts is not None else None
        is_whole = lines == self._lines and is_statement(lines)
        evidence = self._named.evidence if is_whole else _of_line(seen.evidence)
        found = replace(self._named, source=lines, reference=seen.reference or beside, evidence=evidence)
        return self._told(replace(found, function=function, callers=callers), seen.wrong, seen.why)

    def _not_run(self, seen: Claim) -> SourceRange | None:
        """Return the statement of the port that does what is left out, and does not run."""
        is_left_out = self._look.finding is not None and self._look.finding.fault == "left-out"
        found = self._texts.here(seen.reference) if is_left_out and self._texts and seen.reference else None
        return None if found is None or self._values.of(found) else found

    def _not_of_both(
        self, source: SourceRange, function: str, callers: tuple[SourceRange, ...]
    ) -> tuple[SourceRange, str, tuple[SourceRange, ...]]:
        """Step out of another file where the reference runs the same: what the lines are given may be wrong."""
        while callers and source.file != self._lines.file and is_run_by_both(source, self._look):
            source, function, callers = callers[0], "", callers[1:]
        return source, function, callers

    def _told(self, found: Claim, wrong: str, why: str) -> Claim:
        """Prepend what the statement does to what calls say; of a call on one side only, keep the text of the calls."""
        named = self._named
        if found.kind in ("not-called", "extra-call"):
            why = f"{named.why}{self._flags(found)}"
            return replace(found, wrong=named.wrong, why=why, evidence=named.evidence)
        return replace(found, wrong=wrong, why=f"{why} {named.explanation}".lstrip())

    def _flags(self, found: Claim) -> str:
        """Return the attributes of the caller that decide whether a call is made, where the two sides' differ."""
        mine, theirs = _attributes(self._item, self._look)
        places = [at for at in (found.source, found.reference) if at is not None]
        tests = {test for at in places for test in conditions_around(at.file, at.last)}
        read = {name for test in tests for name in re.findall(r"\bself\.(\w+)", test)}
        decide = (name for name in mine if name in read and name in theirs and mine[name] != theirs[name])
        return "".join(
            f" The condition reads self.{name}, which is {mine[name]} here and {theirs[name]} in the reference."
            for name in decide
        )

    def _whole(self) -> Claim:
        """Return the claim with its whole range, and say why nothing narrows it."""
        beside = self._texts.beside(self._lines) if self._texts is not None else None
        lines = self._texts.statements(self._lines) if self._texts is not None else self._lines
        named = replace(self._named, source=lines)
        at = self._look.seen.source if self._look.seen is not None else None
        if is_statement(self._lines) or named.evidence is not Evidence.CALLS:
            return replace(named, reference=beside)
        is_behind = at is not None and at.file == lines.file and at.first > lines.last
        why = _NOTHING_NARROWS if at is None or is_behind else f"The first value that differs is computed at {at}."
        return replace(named, reference=beside, why=f"{named.why} {why}")


def _attributes(own: CallComparison | None, look: Explained) -> tuple[dict[str, str], dict[str, str]]:
    """Return what the module of a call holds that is no tensor, and what the reference's holds."""
    pair = look.pair
    if own is None or own.expected is None or pair is None:
        return {}, {}
    paths = ("", "") if own.call.parent is None else (own.call.path, own.expected.path)
    return pair.port.table.attributes.get(paths[0], {}), pair.reference.table.attributes.get(paths[1], {})


def _of_line(evidence: Evidence) -> Evidence:
    """Return what speaks for a line in a module that calls name, from what speaks for the value that is wrong there."""
    suspects = Evidence.VALUE, Evidence.FAINT_VALUE, Evidence.STEP, Evidence.ODD_WEIGHT
    return Evidence.LINE_OF_VALUE if evidence in suspects else evidence


def _around(named: Claim, compared: Compared) -> list[CallComparison]:
    """Return the paired calls of a culprit's module and of those around it, innermost first; of each the wrong one."""
    path, found = named.path, []
    roots = [item for item in compared.calls if item.call.parent is None]
    while path:
        here = [item for item in compared.calls if item.call.path == path and item.expected is not None]
        found += [item for item in here if any(leaf.problem for leaf in item.made)][:1] or here[:1]
        path = holder(path)
    return [*found, *(root for root in roots[:1] if root.expected is not None and root not in found)]
