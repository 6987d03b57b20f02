"""The text of what changes of a port a test catches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_tfdebug.errors import counted, listed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_tfdebug.check_record import KillRecord

_SHOWN = 10


def kill_answer(kills: KillRecord) -> str:
    """Return the answer in a line: ``183 of 190 changes of llama_port.py are caught by this test; 7 are not: ...``."""
    blind = kills.blind
    real, file = kills.caught + len(blind), listed(kills.files, 2)
    if not real:
        return f"No change of {file} says anything of this test: {kills.raised} of {kills.tried} raise."
    told = f"{kills.caught} of {counted(real, 'change')} of {file} are caught by this test"
    if not blind:
        return told
    lines = dict.fromkeys(f"line {each.line} ({each.shown_by} shows it)" for each in blind)
    return f"{told}; {len(blind)} {'is' if len(blind) == 1 else 'are'} not: {listed([*lines], 3)}"


def kill_lines(kills: KillRecord) -> Iterator[str]:
    """Yield a line for each change that was not caught and is one, and what else was tried."""
    for each in kills.blind[:_SHOWN]:
        yield f"line {each.line}: {each.before}  ->  {each.after}  ({each.shown_by} shows it)"
    if len(kills.blind) > _SHOWN:
        yield f"and {len(kills.blind) - _SHOWN} more"
    others = len(kills.survivors) - len(kills.blind)
    if others:
        told = (
            f"{counted(others, 'change')} {'alters' if others == 1 else 'alter'} nothing in any variant that was tried"
        )
        yield f"{told} ({listed(kills.variants, 5)})."
    yield f"{kills.tried} of {kills.known} changes tried; {kills.raised} raise, and say nothing."
