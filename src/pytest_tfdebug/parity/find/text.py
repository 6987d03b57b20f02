"""From the range of lines that calls single out to the statement within it.

Calls know the module, and the lines of its forward between what agrees before and after. Within them three kinds of
evidence single out a statement: the values that are wrong (a frame of their stack passes through the range), the text
(the functions of the range are the reference's but for a few statements) and the attributes that these read.
A statement that is the reference's, in a function that is the reference's otherwise, is not wrong by itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import islice, takewhile
from textwrap import dedent
from typing import TYPE_CHECKING

from pytest_tfdebug.module_path import holder
from pytest_tfdebug.parity.claims import Evidence
from pytest_tfdebug.parity.closeness import AGREE
from pytest_tfdebug.parity.text.text_differences import aligned, on_disk, source_file, text_differences
from pytest_tfdebug.records import SourceRange
from pytest_tfdebug.tracing.values.slicing import branch_begin, conditions_around, is_statement, numbers_in, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_tfdebug.parity.claims import Claim
    from pytest_tfdebug.parity.find.values import Explained
    from pytest_tfdebug.parity.proof.value_graph import Side
    from pytest_tfdebug.parity.tensors.compared import Compared
    from pytest_tfdebug.parity.text.text_differences import SourceFile, TextDifference
    from pytest_tfdebug.records import Call, CallComparison
    from pytest_tfdebug.values import Value, Values


@dataclass(frozen=True)
class ModuleTexts:
    """The files of two modules, and the functions in them that are their forwards."""

    own: SourceFile  # the port's file
    reference: SourceFile
    forward: str  # name of the port's forward in its file
    counterpart: str  # name of the reference's
    classes: tuple[str, str]  # names of both modules' classes, which may have the forward of another one

    def differences(self, lines: SourceRange) -> list[TextDifference]:
        """Return where some lines of the port, and the functions that they use, are not the reference's.

        Where all these are, the statements by which the forward comes to them may be given other values.
        """
        name = self.own.around(lines)
        found = self._of(name, lines)
        for caller in () if found or not name else self._leading_to(name):
            found = found or self._of(self.own.around(caller), caller)
        return found

    def _leading_to(self, name: str) -> tuple[SourceRange, ...]:
        """Return the statements by which the forward comes to a function that it uses, innermost first."""
        reached = self.own.reached(self.forward, self.own.whole(self.forward))
        return next((callers for used, _, callers in reached if used == name), ())

    def of_init(self, attribute: str = "") -> list[TextDifference]:
        """Return likewise where the constructors differ, or their statements that name an attribute of ``self``."""
        inits = [self.own.method(name, "__init__") for name in (self.classes[0], _class_of(self.forward))]
        found = [each for name in dict.fromkeys(filter(None, inits)) for each in self._of(name, self.own.whole(name))]
        naming = [each for each in found if f"self.{attribute}" in self.own.code(each.own)]
        return naming if attribute and naming else found

    def reading(self, attribute: str, lines: SourceRange) -> list[SourceRange]:
        """Return the statements of some lines, and of the functions that they use, that read an attribute."""
        name = self.own.around(lines)
        reached = self.own.reached(name, lines) if name else ()
        return [each for used, part, _ in reached for each in self.own.reading(attribute, used, part)]

    def statements(self, lines: SourceRange) -> SourceRange:
        """Return some lines of the port without the parameters and the docstring of their function."""
        name = self.own.around(lines)
        if not name:
            return lines
        body = self.own.body(name)
        return SourceRange(lines.file, max(lines.first, body.first), lines.last)

    def beside(self, lines: SourceRange) -> SourceRange | None:
        """Return the reference's lines that stand for some of the port's; None where too little is the same."""
        name = self.own.around(lines)
        other = self._counterpart(name)
        return aligned(self.own, name, lines, self.reference, other) if other else None

    def here(self, lines: SourceRange) -> SourceRange | None:
        """Return the port's lines that stand for some of the reference's; None where it has none."""
        name = self.reference.around(lines)
        turned = ModuleTexts(self.reference, self.own, self.counterpart, self.forward, self.classes[::-1])
        return turned.beside(lines) if name else None

    def _of(self, name: str, lines: SourceRange) -> list[TextDifference]:
        found = []
        for used, part, callers in self.own.reached(name, lines) if name else ():
            other = self._counterpart(used)
            if other:
                differing = text_differences(self.own, used, part, self.reference, other)
                found += [each._replace(callers=callers) for each in differing]
        return found

    def _counterpart(self, name: str) -> str:
        """Return the reference's function that stands for one of the port's; empty where it has none."""
        if name == self.forward:
            return self.counterpart
        path, _, last = name.rpartition(".")
        if not path:
            return name if name in self.reference else ""
        is_own = path in (_class_of(self.forward), self.classes[0])
        if not is_own and name in self.reference:  # of a class that does the module's work
            return name
        of_class = self.reference.method(self.classes[1], last) if path == self.classes[0] else ""
        return of_class or self.reference.method(_class_of(self.counterpart), last)


def texts_of(item: CallComparison, recorded: Values | None, ran: SourceRange | None = None) -> ModuleTexts | None:
    """Return the texts of a call and of its expected one; None where one cannot be read, or is not as recorded.

    ``ran`` are the lines of the expected one's forward, where its module is at hand.
    """
    there = ran or _source_there(item, recorded)
    if item.call.source is None or there is None:
        return None
    own, reference = source_file(item.call.source.file), source_file(there.file)
    if own is None or reference is None or not _is_as_recorded(reference, there.file, recorded):
        return None
    forward, counterpart = own.around(item.call.source), reference.around(there)
    classes = item.call.class_name, item.expected.class_name if item.expected is not None else ""
    return ModuleTexts(own, reference, forward, counterpart, classes) if forward and counterpart else None


def _class_of(method: str) -> str:
    return method.rpartition(".")[0]


def _source_there(item: CallComparison, recorded: Values | None) -> SourceRange | None:
    """Return the lines of the reference's call: those that ran, where it ran again; a golden's may be another version.

    A golden names ``transformers/models/llama/modeling_llama.py`` as it is imported, a forward the file that it ran.
    """
    expected = item.expected
    if expected is None:
        return None
    ran = (call.source for call in (recorded.calls if recorded is not None else ()) if call.name == expected.name)
    return next(filter(None, ran), expected.source)


def _is_of_one_forward(item: CallComparison, recorded: Values | None) -> bool:
    """Tell whether a call and its expected one run the same lines: a library's, or theirs under two configurations."""
    own, there = item.call.source, _source_there(item, recorded)
    if own is None or there is None or item.expected is None:
        return False
    return on_disk(own.file) == on_disk(there.file) and item.call.class_name == item.expected.class_name


def _is_as_recorded(file: SourceFile, name: str, recorded: Values | None) -> bool:
    """Tell whether a file that was not read when its forward was recorded holds what it held then."""
    if file.path == name:
        return True
    lines = {line for value in (recorded.values if recorded is not None else ()) for line in value.lines}
    own = [line for line in lines if line.file == name]
    return bool(own) and all(dedent(file.code(SourceRange(name, it.first, it.last))).startswith(it.text) for it in own)


_NOTHING_NARROWS = "No value, text or attribute singles out one of these lines."


def with_lines_of_both(look: Explained) -> Explained:
    """Return what values say, and of each proof whether the reference ran its lines too."""
    return replace(look, proofs=tuple(replace(each, is_of_both=_is_of_both(each, look)) for each in look.proofs))


def _is_of_both(claim: Claim, look: Explained) -> bool:
    """Tell whether the reference ran the lines of a claim too, in the same words, and holds the same that they read.

    Then nothing is wrong in them but what they are given.
    """
    lines, pair = claim.source, look.pair
    if lines is None or pair is None or not _is_run_by_both(lines, look):
        return False
    mine, theirs = (side.table.attributes.get(claim.path, {}) for side in (pair.port, pair.reference))
    read = re.findall(r"\bself\.(\w+)", text_of(lines.file, lines.first, lines.last))
    return all(mine.get(each) == theirs.get(each) for each in read)


def _is_run_by_both(lines: SourceRange, look: Explained) -> bool:
    return any(
        aligned(texts.own, texts.forward, lines, texts.reference, texts.counterpart) is not None
        for texts in _texts_around(lines, look)
    )


def _of_function(lines: SourceRange, look: Explained) -> list[TextDifference]:
    """Return where the function around some lines, and those that it uses, are not the reference's of that name."""
    found = (texts.differences(texts.own.whole(texts.forward)) for texts in _texts_around(lines, look))
    return next(filter(None, found), [])


def _texts_around(lines: SourceRange, look: Explained) -> Iterator[ModuleTexts]:
    """Yield the texts of the function around some lines beside each that the reference ran under its name."""
    own, pair = source_file(lines.file), look.pair
    name = own.around(lines) if own is not None else ""
    if own is None or pair is None or not name:
        return
    for file in look.reference_files(name.rpartition(".")[2]):
        there = source_file(file)
        if there is not None and name in there and _is_as_recorded(there, file, pair.reference.table):
            yield ModuleTexts(own, there, name, name, (_class_of(name), _class_of(name)))


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
        self._seen = look.seen if _passes(look, lines, paired) else None
        self._called = {item.call.path for item in compared.calls}
        around = _around(named, compared)
        recorded = look.pair.reference.table if look.pair is not None else None
        self._own = next((item for item in around if item.call.path == named.path), None)
        with_text = [item for item in around if item.call.source is not None]
        # what both run of one file is right: what was made of it may be wrong
        with_text = [item for item in with_text if not _is_of_one_forward(item, recorded)] or with_text
        self._item = next(iter(with_text), None)
        self._texts = texts_of(self._item, recorded) if self._item is not None else None
        outer = (item for item in with_text if item.call.index < (self._own or around[0]).call.index)
        self._makers = [(item.call, texts) for item in outer if (texts := texts_of(item, recorded)) is not None]

    def claim(self) -> Claim:
        """Return the claim with its statement, and with both sides' lines."""
        chosen = self._by_choice()
        if chosen is not None:
            return chosen
        differences = self._texts.differences(self._lines) if self._texts is not None else []
        differences = differences or self._differences_elsewhere()
        suspects = [each for each in differences if not self._is_right(each)]
        # of several lines that mend the port, the one that is not the reference's
        in_port = [each for each in self._look.in_port if not each.is_of_both]
        proved = (each for each in in_port if any(_meet(each.source, other.own) for other in suspects))
        seen = next(proved, self._seen)
        at_value = [each for each in suspects if seen is not None and _meet(seen.source, each.own)]
        if at_value and seen is not None:
            return self._told(self._at(at_value[0], Evidence.STATEMENT), seen.wrong, seen.why)
        read = self._by_attributes([seen.source, *seen.callers] if seen is not None and seen.source is not None else [])
        leading = [each for each in suspects if self._leads_to_seen(each)]
        own = self._own
        is_of_one_class = own is None or own.is_of_one_class or own.call.source is None  # torch is right: it was chosen
        # of a module of another class the constructor differs as it is, and tells nothing where values do
        constructors = self._constructors() if self._seen is None or is_of_one_class else []
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
        found = (_of_function(at, self._look) for at in places if on_disk(at.file) != own)
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
        before = [each for each in differences if self._seen is None or _is_not_after(each.own, self._seen.source)]
        before = [each for each in before if each.is_left_out or self._values_in(each.own)] or before  # what ran
        first = before[-1] if before and self._seen is not None else differences[0]
        others = [each for each in differences if each is not first]
        does = "leaves out a statement of the reference" if first.is_left_out else "has another statement here"
        why = f"the rest of {first.function} is the reference's text."
        if others:
            why += f" So do {', '.join(str(each.own) for each in others)}: it is not known which of them is wrong."
        evidence = Evidence.STATEMENTS if others or self._is_right(first) else Evidence.STATEMENT
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
        is_named = any(classes <= at.own.classes & at.reference.classes for _, at in self._makers)
        is_choice = is_of_torch or is_named or is_beside
        made = self._made_by() if is_choice else []
        if not made:
            return None
        at = self._at(made[0], Evidence.STATEMENT if len(made) == 1 else Evidence.STATEMENTS)
        if own is not self._own:
            at = replace(at, path=own.call.path, kind="module", class_name=own.call.class_name)
        return self._told(at, "is made here", f"the reference makes a {own.expected.class_name}.")

    def _by_attributes(self, lines: Sequence[SourceRange]) -> Claim | None:
        """Blame the attributes of the culprit that are not the reference's and that some lines read.

        Of a module whose text is not known, such as one of torch's, every attribute counts.
        """
        mine, theirs = self._attributes(self._own)
        texts = self._texts if self._own is self._item else None
        read: dict[str, SourceRange] = {}
        for name in (name for name in mine if name in theirs and mine[name] != theirs[name]):
            reading = [at for each in lines for at in texts.reading(name, each)] if texts is not None else [self._lines]
            if reading:
                read[name] = self._of_those(reading)
        if not read:
            return None
        first = next(iter(read.values()))
        made = [each for name in read for each in self._constructors(name)] or self._made_by()
        beside = texts.beside(first) if texts is not None else None
        evidence = Evidence.ATTRIBUTE if len(read) == 1 else Evidence.ATTRIBUTES
        at = replace(self._named, source=first, reference=beside, evidence=evidence)
        at = self._at(made[0], evidence) if made else at
        told = ", ".join(f"{name} {mine[name]}" for name in read)
        there = ", ".join(theirs[name] for name in read)
        return self._told(at, f"has {told}", f"the reference has {there}.")

    def _attributes(self, own: CallComparison | None) -> tuple[dict[str, str], dict[str, str]]:
        """Return what the module of a call holds that is no tensor, and what the reference's holds."""
        pair = self._look.pair
        if own is None or own.expected is None or pair is None:
            return {}, {}
        paths = ("", "") if own.call.parent is None else (own.call.path, own.expected.path)
        return pair.port.table.attributes.get(paths[0], {}), pair.reference.table.attributes.get(paths[1], {})

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
                    lines = self._of_those(reading)
                    at = replace(self._named, source=lines, reference=self._texts.beside(lines), weights=(name,))
                    return self._told(at, "uses another parameter", f"{told[:1].lower()}{told[1:]}")
        return None

    def _of_those(self, statements: Sequence[SourceRange]) -> SourceRange:
        """Return the statement that computed a value, or else the last before the one whose value is wrong."""
        values = self._look.pair.port.values if self._look.pair is not None else []
        lines = {(line.file, line.line) for value in values for line in value.lines}
        ran = [each for each in statements if any((each.file, at) in lines for at in range(each.first, each.last + 1))]
        seen = self._seen
        places = [] if seen is None else [place for place in (seen.source, *seen.callers) if place is not None]
        before = [each for each in statements if any(_is_not_after(each, place) for place in places[-1:])]
        return (ran or before[::-1] or statements)[0]

    def _constructors(self, attribute: str = "") -> list[TextDifference]:
        """Return where the constructors of the culprit, and the one that makes it, are not the reference's."""
        own = self._texts.of_init(attribute) if self._texts is not None and self._own is self._item else []
        if attribute:
            own = [each for each in own if self._is_explained(attribute, each)]
        return own or next(filter(None, self._of_makers()), [])

    def _of_makers(self) -> Iterator[list[TextDifference]]:
        """Yield where the statements that made what holds the culprit are not the reference's, the innermost first."""
        for call, texts in self._makers:
            around = f"{call.path}." if call.parent is not None else ""
            name = self._named.path.removeprefix(around).partition(".")[0]
            yield [each for each in texts.of_init(name) if f"self.{name}" in texts.own.code(each.own)]
        yield from (texts.of_init() for _, texts in islice(self._makers, 1))

    def _is_explained(self, attribute: str, made: TextDifference) -> bool:
        """Tell whether what a constructor does otherwise can be why an attribute is another one.

        Another default that the reference's module was not made with explains nothing: who made it gave the number.
        """
        mine, theirs = (text_of(at.file, at.first, at.last) for at in (made.own, made.reference))
        defaults = numbers_in(theirs) - numbers_in(mine) if theirs.startswith("def ") else set()
        held = numbers_in(self._attributes(self._own)[1].get(attribute, ""))
        return not defaults or not held or not held.isdisjoint(numbers_in(theirs))

    def _made_by(self) -> list[TextDifference]:
        """Return where what made the culprit is not the reference's, or the one place of a constructor further out.

        What a module is given goes through the constructors of all that hold it.
        """
        far = (texts.of_init() for _, texts in self._makers[1:])
        return next(filter(None, self._of_makers()), []) or next((found for found in far if len(found) == 1), [])

    def _by_values(self) -> Claim | None:
        """Blame the statement whose value is wrong, with its condition, as far as these are lines that calls name."""
        seen, texts = self._seen, self._texts
        if seen is None or seen.source is None:
            return None
        lines, function, callers = self._not_of_both(seen.source, seen.function, seen.callers)
        lines = self._not_run(seen) or lines
        if _meet(lines, self._lines):
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
        return None if found is None or self._values_in(found) else found

    def _not_of_both(
        self, source: SourceRange, function: str, callers: tuple[SourceRange, ...]
    ) -> tuple[SourceRange, str, tuple[SourceRange, ...]]:
        """Step out of another file where the reference runs the same: what the lines are given may be wrong."""
        while callers and source.file != self._lines.file and _is_run_by_both(source, self._look):
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
        mine, theirs = self._attributes(self._item)
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

    def _is_right(self, difference: TextDifference) -> bool:
        """Tell whether what a statement computes, itself and by its calls, is what the reference computes too.

        Numbers, flags and masks are not known to be, nor is the order of elements.
        """
        if difference.is_left_out or not self._values_in(difference.own):
            return False
        return all(_is_known(*each) for each in self._values_in(difference.own, by_calls=True))

    def _leads_to_seen(self, difference: TextDifference) -> bool:
        """Tell whether the value that is wrong was computed from what a statement computed, if that is any value."""
        pair, finding, values = self._look.pair, self._look.finding, self._values_in(difference.own)
        if pair is None or finding is None or not values:
            return True
        before = pair.port.ancestors(*(value.index for value in finding.values[:1]))
        return any(value.index in before for value, _ in values)

    def _values_in(self, lines: SourceRange, *, by_calls: bool = False) -> list[tuple[Value, float]]:
        """Return what some lines computed in the call that is to blame, and how far the reference's is.

        With ``by_calls`` what was computed in the calls that it made counts too.
        """
        item, pair = self._item, self._look.pair
        if item is None or pair is None:
            return []
        port, name = pair.port, (item.call.path, item.call.call)
        call = next((call for call in port.table.calls if (call.path, call.call) == name), port.root)
        return [
            (value, pair.matches.distance(value.index))
            for value in port.values
            if port.is_within(value.call, call)
            and any(
                lines.holds(at.file, at.line)
                for at in port.places(value, _below(port, value, call) if by_calls else ())
            )
        ]


def _below(port: Side, value: Value, call: Call) -> Iterator[Call]:
    """Yield the calls around a value that were made under another one."""
    return takewhile(lambda each: each.index != call.index, port.around(value.call))


def _of_line(evidence: Evidence) -> Evidence:
    """Return what speaks for a line in a module that calls name, from what speaks for the value that is wrong there."""
    suspects = Evidence.VALUE, Evidence.FAINT_VALUE, Evidence.STEP, Evidence.ODD_WEIGHT
    return Evidence.LINE_OF_VALUE if evidence in suspects else evidence


def _is_known(value: Value, distance: float) -> bool:
    fingerprint = value.print
    is_telling = value.tells and fingerprint.finite == fingerprint.elements
    return is_telling and not value.is_moved and distance <= AGREE


def _around(named: Claim, compared: Compared) -> list[CallComparison]:
    """Return the paired calls of a culprit's module and of those around it, innermost first; of each the wrong one."""
    path, found = named.path, []
    roots = [item for item in compared.calls if item.call.parent is None]
    while path:
        here = [item for item in compared.calls if item.call.path == path and item.expected is not None]
        found += [item for item in here if any(leaf.problem for leaf in item.made)][:1] or here[:1]
        path = holder(path)
    return [*found, *(root for root in roots[:1] if root.expected is not None and root not in found)]


def _passes(look: Explained, lines: SourceRange, paired: set[str]) -> bool:
    """Tell whether the values that are wrong came about in some lines, or in what these called and was not compared."""
    if look.finding is None or look.pair is None:
        return False
    if look.seen is not None and _meet(look.seen.source, lines):
        return True
    port = look.pair.port
    return any(
        lines.holds(place.file, place.line)
        for value in look.finding.values
        for place in port.places(value, takewhile(lambda call: call.path not in paired, port.around(value.call)))
    )


def _is_not_after(lines: SourceRange, other: SourceRange | None) -> bool:
    return other is not None and lines.file == other.file and lines.first <= other.first


def _meet(one: SourceRange | None, other: SourceRange) -> bool:
    return one is not None and one.file == other.file and one.first <= other.last and other.first <= one.last
