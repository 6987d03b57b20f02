"""Lines that the reference ran too, in the same words: nothing is wrong in them but what they are given."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_tfdebug.parity.find.module_texts import ModuleTexts, class_of, is_as_recorded
from pytest_tfdebug.parity.text.text_differences import aligned, source_file
from pytest_tfdebug.tracing.values.slicing import text_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_tfdebug.parity.claims import Claim
    from pytest_tfdebug.parity.find.values import Explained
    from pytest_tfdebug.parity.text.text_differences import TextDifference
    from pytest_tfdebug.records import SourceRange


def with_lines_of_both(look: Explained) -> Explained:
    """Return what values say, and of each proof whether the reference ran its lines too."""
    return replace(look, proofs=tuple(replace(each, is_of_both=_is_of_both(each, look)) for each in look.proofs))


def _is_of_both(claim: Claim, look: Explained) -> bool:
    """Tell whether the reference ran the lines of a claim too, in the same words, and holds the same that they read.

    Then nothing is wrong in them but what they are given.
    """
    lines, pair = claim.source, look.pair
    if lines is None or pair is None or not is_run_by_both(lines, look):
        return False
    mine, theirs = (side.table.attributes.get(claim.path, {}) for side in (pair.port, pair.reference))
    read = re.findall(r"\bself\.(\w+)", text_of(lines.file, lines.first, lines.last))
    return all(mine.get(each) == theirs.get(each) for each in read)


def is_run_by_both(lines: SourceRange, look: Explained) -> bool:
    """Tell whether the reference ran some lines of the port too, in the same words."""
    return any(
        aligned(texts.own, texts.forward, lines, texts.reference, texts.counterpart) is not None
        for texts in _texts_around(lines, look)
    )


def differences_around(lines: SourceRange, look: Explained) -> list[TextDifference]:
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
        if there is not None and name in there and is_as_recorded(there, file, pair.reference.table):
            yield ModuleTexts(own, there, name, name, (class_of(name), class_of(name)))
