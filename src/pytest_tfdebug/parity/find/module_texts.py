"""Two modules as texts: where the functions that one uses are not the reference's, and which lines stand for which."""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import dedent
from typing import TYPE_CHECKING

from pytest_tfdebug.parity.text.text_differences import aligned, on_disk, source_file, text_differences
from pytest_tfdebug.records import SourceRange

if TYPE_CHECKING:
    from pytest_tfdebug.parity.text.text_differences import SourceFile, TextDifference
    from pytest_tfdebug.records import CallComparison
    from pytest_tfdebug.values import Values


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
        inits = [self.own.method(name, "__init__") for name in (self.classes[0], class_of(self.forward))]
        found = [each for name in dict.fromkeys(filter(None, inits)) for each in self._of(name, self.own.whole(name))]
        naming = [each for each in found if f"self.{attribute}" in self.own.code(each.own)]
        return naming if attribute and naming else found

    def reading(self, attribute: str, lines: SourceRange) -> list[SourceRange]:
        """Return the statements of some lines, and of the functions that they use, that read an attribute."""
        return self.own.reading_in(attribute, lines)

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
        is_own = path in (class_of(self.forward), self.classes[0])
        if not is_own and name in self.reference:  # of a class that does the module's work
            return name
        of_class = self.reference.method(self.classes[1], last) if path == self.classes[0] else ""
        return of_class or self.reference.method(class_of(self.counterpart), last)


def texts_of(item: CallComparison, recorded: Values | None, ran: SourceRange | None = None) -> ModuleTexts | None:
    """Return the texts of a call and of its expected one; None where one cannot be read, or is not as recorded.

    ``ran`` are the lines of the expected one's forward, where its module is at hand.
    """
    there = ran or _source_there(item, recorded)
    if item.call.source is None or there is None:
        return None
    own, reference = source_file(item.call.source.file), source_file(there.file)
    if own is None or reference is None or not is_as_recorded(reference, there.file, recorded):
        return None
    forward, counterpart = own.around(item.call.source), reference.around(there)
    classes = item.call.class_name, item.expected.class_name if item.expected is not None else ""
    return ModuleTexts(own, reference, forward, counterpart, classes) if forward and counterpart else None


def class_of(method: str) -> str:
    """Return the name of the class of a method, ``"Llama.forward"``."""
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


def is_of_one_forward(item: CallComparison, recorded: Values | None) -> bool:
    """Tell whether a call and its expected one run the same lines: a library's, or theirs under two configurations."""
    own, there = item.call.source, _source_there(item, recorded)
    if own is None or there is None or item.expected is None:
        return False
    return on_disk(own.file) == on_disk(there.file) and item.call.class_name == item.expected.class_name


def is_as_recorded(file: SourceFile, name: str, recorded: Values | None) -> bool:
    """Tell whether a file that was not read when its forward was recorded holds what it held then."""
    if file.path == name:
        return True
    lines = {line for value in (recorded.values if recorded is not None else ()) for line in value.lines}
    own = [line for line in lines if line.file == name]
    return bool(own) and all(dedent(file.code(SourceRange(name, it.first, it.last))).startswith(it.text) for it in own)
