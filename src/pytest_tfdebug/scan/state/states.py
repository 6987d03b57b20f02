"""The state of a test in a class, from the skips that apply to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pytest_tfdebug.scan.resolve.conditions import UNCONDITIONAL, Condition, GuardedSkip

if TYPE_CHECKING:
    from collections.abc import Sequence


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
