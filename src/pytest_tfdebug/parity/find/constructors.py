"""Where a module is made otherwise than the reference's: in its own constructor, or in those of what holds it."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from pytest_tfdebug.tracing.values.slicing import numbers_in, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_tfdebug.parity.find.module_texts import ModuleTexts
    from pytest_tfdebug.parity.text.text_differences import TextDifference
    from pytest_tfdebug.records import Call


class Constructors:
    """The constructor of a module and those of what holds it, beside the reference's.

    Args:
        path: Path of the module.
        texts: Its text beside the reference's; None where it has none.
        makers: The calls around it with their texts, the innermost first.
        held: What the reference's module holds that is no tensor, by the names of the attributes.
    """

    def __init__(
        self, path: str, texts: ModuleTexts | None, makers: Sequence[tuple[Call, ModuleTexts]], held: Mapping[str, str]
    ) -> None:
        self._path, self._texts, self._makers, self._held = path, texts, makers, held

    def differences(self, attribute: str = "") -> list[TextDifference]:
        """Return where the constructors of the culprit, and the one that makes it, are not the reference's."""
        own = self._texts.of_init(attribute) if self._texts is not None else []
        if attribute:
            own = [each for each in own if self._is_explained(attribute, each)]
        return own or next(filter(None, self._of_makers()), [])

    def made_by(self) -> list[TextDifference]:
        """Return where what made the culprit is not the reference's, or the one place of a constructor further out.

        What a module is given goes through the constructors of all that hold it.
        """
        far = (texts.of_init() for _, texts in self._makers[1:])
        return next(filter(None, self._of_makers()), []) or next((found for found in far if len(found) == 1), [])

    def is_choice(self, classes: set[str]) -> bool:
        """Tell whether a file that makes the module names all of some classes, on both sides."""
        return any(classes <= at.own.classes & at.reference.classes for _, at in self._makers)

    def _of_makers(self) -> Iterator[list[TextDifference]]:
        """Yield where the statements that made what holds the culprit are not the reference's, the innermost first."""
        for call, texts in self._makers:
            around = f"{call.path}." if call.parent is not None else ""
            name = self._path.removeprefix(around).partition(".")[0]
            yield [each for each in texts.of_init(name) if f"self.{name}" in texts.own.code(each.own)]
        yield from (texts.of_init() for _, texts in islice(self._makers, 1))

    def _is_explained(self, attribute: str, made: TextDifference) -> bool:
        """Tell whether what a constructor does otherwise can be why an attribute is another one.

        Another default that the reference's module was not made with explains nothing: who made it gave the number.
        """
        mine, theirs = (text_of(at.file, at.first, at.last) for at in (made.own, made.reference))
        defaults = numbers_in(theirs) - numbers_in(mine) if theirs.startswith("def ") else set()
        held = numbers_in(self._held.get(attribute, ""))
        return not defaults or not held or not held.isdisjoint(numbers_in(theirs))
