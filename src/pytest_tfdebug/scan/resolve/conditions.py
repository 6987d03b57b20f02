"""What skips come to: the text of their condition, from the guards on each way to a skip, and the state of a test."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


#: What must hold for a skip to be reached, the outermost guard first; nothing for one that is always reached.
Guards: TypeAlias = tuple[str, ...]

#: How a guard begins that is not an expression -> its text when it does not hold.
_OPPOSITES = {
    "for ": "the loop over {} ends",
    "while ": "the loop over {} ends",
    "except ": "no {}",
    "no exception": "except",
    "no ": "except {}",
    "case ": "not case {}",
}
#: Names of decorators that are a condition, in the repository or out of it, and how others begin.
_CONDITIONS = frozenset({"slow", "nightly", "tooslow"})
_CONDITION_PREFIXES = ("require_", "requires_", "skip_", "skipif", "skipunless")


def is_condition(name: str) -> bool:
    """Tell whether a decorator of this name is a condition: ``slow``, ``require_torch``, ``skip_if_ci``."""
    return name in _CONDITIONS or (name.startswith(_CONDITION_PREFIXES) and not name.endswith("_"))


class GuardedSkip(NamedTuple):
    """A skip: unconditional where there are no ``guards``, also where it stands under one that always holds.

    ``kind`` is ``"unittest"`` or ``"pytest"``: whose skip it is, which decides whether a plain class heeds it.
    """

    reason: str
    guards: Guards
    path: str
    line: int
    kind: str = "unittest"
    is_guarded: bool = False


class Condition(str):
    """The text of a condition, with the guards of each way to the skip."""

    __slots__ = ("ways",)
    ways: tuple[Guards, ...]

    @classmethod
    def of(cls, ways: Iterable[Guards]) -> Condition:
        """Return the condition that at least one of these ways to a skip is open."""
        kept = tuple(dict.fromkeys(ways))
        found = cls(_any_of(kept))
        found.ways = kept
        return found


@cache
def negated(test: str) -> str:
    """Return the condition that a test is false."""
    text = " ".join(test.split())
    for start, opposite in _OPPOSITES.items():
        if text.startswith(start):
            return opposite.format(text[len(start) :])
    match text.split():
        case ["except"]:
            return "no exception"
        case ["not", plain] if _is_name(plain.removesuffix("()")):
            return plain
        case [item, "in", items] if _is_name(item) and _is_name(items):
            return f"{item} not in {items}"
        case [item, "not", "in", items] if _is_name(item) and _is_name(items):
            return f"{item} in {items}"
    return f"not {text}" if _is_name(text.removesuffix("()")) else f"not ({text})"


def _is_name(text: str) -> bool:
    return bool(text) and all(mark.isalnum() or mark in "_." for mark in text)


def alternatives(condition: str) -> list[str]:
    """Return the parts of a condition of which any is enough."""
    parts: list[str] = []
    for piece in condition.split(" or "):
        if parts and sum(map(parts[-1].count, "([{")) > sum(map(parts[-1].count, ")]}")):
            parts[-1] += f" or {piece}"
        else:
            parts.append(piece)
    return parts


class _Branch:
    """The ways that begin with the same guards.

    Attributes:
        following: The guards that come next; none where a way ends here.
        needless: The guards that only say that an earlier way is closed.
    """

    def __init__(self) -> None:
        self.following: dict[str, _Branch] = {}
        self.needless: set[str] = set()
        self.is_end = False

    def add(self, way: Guards) -> None:
        """Add a way, without guards that another makes needless."""
        branch = self
        for at, guard in enumerate(way, 1):
            if branch.is_end:  # the way is open anyhow
                return
            if guard in branch.needless and at < len(way):
                continue
            if at == len(way):
                branch.needless.add(negated(guard))
            branch = branch.following.setdefault(guard, _Branch())
        branch.is_end = True
        branch.following.clear()

    def __str__(self) -> str:
        is_one = len(self.following) == 1
        return " or ".join(
            rest.after(guard) if not rest.is_end else guard if is_one else _bracketed(guard, is_under_and=False)
            for guard, rest in self.following.items()
        )

    def after(self, guard: str) -> str:
        """Return a guard and what must hold besides."""
        text = str(self)
        if len(self.following) > 1:
            text = f"({text})"
        elif next(iter(self.following.values())).is_end:
            text = _bracketed(text, is_under_and=True)
        return f"{_bracketed(guard, is_under_and=True)} and {text}"


@cache  # classes differ little
def _any_of(ways: tuple[Guards, ...]) -> str:
    """Return ``a and (b or c)`` for the ways ``a, b`` and ``a, c``."""
    root = _Branch()
    for way in ways:
        root.add(way)
    return str(root)


def _bracketed(guard: str, *, is_under_and: bool) -> str:
    """Return a guard, in brackets where its operator binds less tightly than the ``or`` or ``and`` beside it."""
    depth, outside = 0, ""
    for mark in guard:
        depth += (mark in "([{") - (mark in ")]}")
        outside += mark if depth == 0 else ""
    words = outside.replace(":", " ").split()
    is_loose = not {"if", "lambda"}.isdisjoint(words) or ":=" in outside or (is_under_and and "or" in words)
    return f"({guard})" if is_loose else guard


#: The condition of a skip that depends on nothing.
UNCONDITIONAL = Condition.of(())


class State(NamedTuple):
    """The state of a test in a class, and where and why; empty strings where that is not known or not so."""

    state: str
    form: str = ""
    reason: str = ""
    condition: Condition = UNCONDITIONAL
    file: str = ""
    line: int = 0

    @property
    def is_skipped(self) -> bool:
        """Whether the test never runs, as it is skipped."""
        return self.state == "skipped"

    @property
    def is_partial(self) -> bool:
        """Whether a part of the test's parameters is skipped."""
        return self.state == "conditional" and self.condition.startswith("only ")


RAN = State("ran")


class Applied(NamedTuple):
    """The skips of one kind that apply to a test, and the form to report them under."""

    form: str
    skips: tuple[GuardedSkip, ...]


NOTHING = Applied("decorator", ())


def of_body(skips: Sequence[GuardedSkip], *, is_skipped: bool) -> Applied:
    """Return the skips of a body, or only the one that always ends it."""
    if is_skipped:
        always = next((skip for skip in skips if not skip.guards), None)
        skips = [always or skips[0]._replace(guards=(), is_guarded=True)]
    is_guarded = any(skip.guards or skip.is_guarded for skip in skips)
    return Applied("guard" if is_guarded else "body", tuple(skips))


def judged(*applied: Applied) -> State | None:
    """Return the state of a test from its skips, the nearest first; None if it has none."""
    found = [(form, skip) for form, skips in applied for skip in skips]
    if not found:
        return None
    form, first = next((each for each in found if not each[1].guards), found[0])
    if not first.guards:
        return State("skipped", form, first.reason, UNCONDITIONAL, first.path, first.line)
    reason = next((skip.reason for _, skip in found if skip.reason), "")
    return State("conditional", form, reason, Condition.of(skip.guards for _, skip in found), first.path, first.line)


def of_variants(states: Sequence[tuple[str, State]]) -> State:
    """Return the state of a test of which a class has several variants, from the name and state of each."""
    if len(states) == 1:
        return states[0][1]
    stopped = [each for kind in ("skipped", "vanished") for each in states if each[1].state == kind]
    if stopped and len(stopped) < len(states):
        names = ", ".join(name for name, _ in stopped)
        return stopped[0][1]._replace(state="conditional", condition=Condition.of([(f"only {names}",)]))
    order = ("skipped", "vanished", "conditional", "ran", "empty")
    return min((state for _, state in states), key=lambda state: order.index(state.state), default=RAN)
