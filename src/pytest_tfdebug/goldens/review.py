"""``python -m pytest_tfdebug.review``: accept or reject what ``pytest --tf-golden=pending`` would change."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, TextIO

from pytest_tfdebug.errors import GoldenError, counted, printable
from pytest_tfdebug.goldens.pending import Pending, find_pending

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: What may be typed instead of an answer's name.
_SHORT = {"a": "accept", "r": "reject", "s": "skip", "q": "quit"}
_ANSWERS = (*_SHORT.values(), "all")
_QUESTION = "accept (a), reject (r), skip (s), accept all that are left (all), quit (q)? "
_TO_DECIDE = "To decide, run it in a terminal, or with --accept GLOB or --reject GLOB (a path or a node id)."


def main(arguments: Sequence[str] | None = None) -> int:
    """Go through the goldens that wait to be reviewed; return the exit status: 0, or 2 where something went wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m pytest_tfdebug.review",
        description="Review the goldens that pytest --tf-golden=pending wrote beside those in use. In a terminal it "
        "asks for each; elsewhere it lists them.",
    )
    parser.add_argument("where", nargs="*", default=["."], help="directories, files or URLs (default: this directory)")
    parser.add_argument(
        "--accept", metavar="GLOB", action="append", default=[], help="accept those of this path or test"
    )
    parser.add_argument(
        "--reject", metavar="GLOB", action="append", default=[], help="delete those of this path or test"
    )
    parser.add_argument("--list", action="store_true", help="list them and what they change, and ask nothing")
    options = parser.parse_args(arguments)
    try:
        found = [pending for where in options.where for pending in find_pending(where)]
        if options.accept or options.reject:
            return _decide_by_globs(found, options.accept, options.reject)
    except GoldenError as error:
        _say(f"error: {error}", sys.stderr)
        return 2
    if not found:
        _say(f"No golden waits to be reviewed in {', '.join(options.where)}. pytest --tf-golden=pending writes them.")
        return 0
    if options.list or not (sys.stdin.isatty() and sys.stdout.isatty()):
        for pending in found:
            _show(pending)
        _say(f"{counted(len(found), 'golden')} to be reviewed. {_TO_DECIDE}")
        return 0
    return _ask_for_each(found)


def _decide_by_globs(found: Sequence[Pending], accept: Sequence[str], reject: Sequence[str]) -> int:
    """Accept and reject the goldens that globs name; raise before anything is done if both name one, or a glob none."""
    named = {glob: [pending for pending in found if _is_named(pending, glob)] for glob in (*accept, *reject)}
    for glob, those in named.items():
        if not those:
            among = "".join(f"\n  {pending.place}" for pending in found)
            raise GoldenError(f"{glob!r} names none of the {counted(len(found), 'golden')} to be reviewed.{among}")
    accepted, rejected = (list(dict.fromkeys(it for glob in globs for it in named[glob])) for globs in (accept, reject))
    both = next((pending for pending in accepted if pending in rejected), None)
    if both is not None:
        raise GoldenError(f"{both.place} is to be accepted and to be rejected.")
    return _summarize([*(_decide("accept", it) for it in accepted), *(_decide("reject", it) for it in rejected)])


def _is_named(pending: Pending, glob: str) -> bool:
    names = [str(pending.place)]
    with suppress(GoldenError):  # it is damaged, and can still be rejected by its path
        names.append(pending.test())
    escaped = glob.replace("[", "[[]")  # a parameter id stands in brackets
    return any(fnmatchcase(name, pattern) for name in names for pattern in (glob, escaped))


def _ask_for_each(found: Sequence[Pending]) -> int:
    done: list[str] = []
    for number, pending in enumerate(found, 1):
        _say(f"\n{number} of {len(found)}")
        _show(pending)
        answer = _ask()
        if answer == "all":
            done += [_decide("accept", left) for left in found[number - 1 :]]
        if answer in ("all", "quit"):
            break
        done.append(_decide(answer, pending))
    return _summarize([*done, *(["left"] * (len(found) - len(done)))])


def _ask() -> str:
    while True:
        try:
            answer = input(_QUESTION).strip().lower()
        except (EOFError, KeyboardInterrupt):
            _say("")
            return "quit"
        answer = _SHORT.get(answer, answer)
        if answer in _ANSWERS:
            return answer


def _decide(answer: str, pending: Pending) -> str:
    """Carry out an answer and return what became of the golden."""
    try:
        if answer == "accept":
            pending.accept()
        elif answer == "reject":
            pending.reject()
    except GoldenError as error:
        _say(f"error: {error}", sys.stderr)
        return "failed"
    return {"accept": "accepted", "reject": "rejected", "skip": "skipped"}[answer]


def _summarize(done: Sequence[str]) -> int:
    _say(", ".join(f"{count} {what}" for what, count in Counter(done).items()))
    return 2 if "failed" in done else 0


def _show(pending: Pending) -> None:
    _say(str(pending.place))
    for line in _lines(pending):
        _say(f"  {line}")


def _lines(pending: Pending) -> Iterator[str]:
    try:
        yield from pending.changes()
    except GoldenError as error:
        yield f"cannot be read, and only be rejected: {error}"


def _say(line: str, stream: TextIO | None = None) -> None:
    (stream or sys.stdout).write(printable(line, keep="\n") + "\n")
