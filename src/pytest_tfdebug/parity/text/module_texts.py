"""The functions of a module beside those of the reference's module, as text."""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import dedent
from typing import TYPE_CHECKING

from pytest_tfdebug.parity.text.text_differences import aligned, source_file, text_differences
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

    def differences(self, lines: SourceRange) -> list[TextDifference]:
        """Return where some lines of the port, and the functions that they use, are not the reference's."""
        return self._of(self.own.around(lines), lines)

    def of_init(self, attribute: str = "") -> list[TextDifference]:
        """Return likewise where the constructors differ, or their statements that name an attribute of ``self``."""
        name = self.own.method(self.forward.rpartition(".")[0], "__init__")
        found = self._of(name, self.own.whole(name)) if name else []
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
        turned = ModuleTexts(self.reference, self.own, self.counterpart, self.forward)
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
        return self.reference.method(self.counterpart.rpartition(".")[0], last)


def texts_of(item: CallComparison, recorded: Values | None) -> ModuleTexts | None:
    """Return the texts of a call and of its expected one; None where one cannot be read, or is not as recorded."""
    if item.expected is None or item.call.source is None or item.expected.source is None:
        return None
    own, reference = source_file(item.call.source.file), source_file(item.expected.source.file)
    if own is None or reference is None or not _is_as_recorded(reference, item.expected.source.file, recorded):
        return None
    forward, counterpart = own.around(item.call.source), reference.around(item.expected.source)
    return ModuleTexts(own, reference, forward, counterpart) if forward and counterpart else None


def _is_as_recorded(file: SourceFile, name: str, recorded: Values | None) -> bool:
    """Tell whether a file that was not read when its forward was recorded holds what it held then."""
    if file.path == name:
        return True
    lines = {line for value in (recorded.values if recorded is not None else ()) for line in value.lines}
    own = [line for line in lines if line.file == name]
    return bool(own) and all(dedent(file.code(SourceRange(name, it.first, it.last))).startswith(it.text) for it in own)
