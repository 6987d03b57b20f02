"""What the live objects of a failure say beyond its text: one reader for each question, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_tfdebug.triage.facts import files, names, tensors

if TYPE_CHECKING:
    import re
    from collections.abc import Callable

    from pytest_tfdebug.triage.rules import Facts, Failure, Link

#: Name in a rule, ``auto classes``, -> reader, ``read_auto_classes``; it returns None when the rule does not apply.
READERS: dict[str, Callable[[Failure, Link, re.Match[str]], Facts | None]] = {
    name.removeprefix("read_").replace("_", " "): reader
    for module in (files, names, tensors)
    for name, reader in vars(module).items()
    if name.startswith("read_")
}
