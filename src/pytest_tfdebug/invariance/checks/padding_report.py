"""Run the padding check of a call and put its verdict into words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_tfdebug.invariance.diagnosis import Findings, diagnose, observations
from pytest_tfdebug.invariance.evidence import gather
from pytest_tfdebug.invariance.located import locate
from pytest_tfdebug.invariance.padding_check import Leak, PaddingCheck
from pytest_tfdebug.report.invariance import (
    render_drift,
    render_headline,
    render_output,
    render_pads,
    render_place,
    wrapped,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from pytest_tfdebug.invariance.observed import ObservedCall
    from pytest_tfdebug.invariance.outcome import Outcome
    from pytest_tfdebug.invariance.settings import PaddingSettings
    from pytest_tfdebug.records import Culprit


def check_padding(call: ObservedCall, settings: PaddingSettings) -> Outcome:
    """Repeat a call with padding and report the first change at a real token."""
    with call.restored():
        check = PaddingCheck(call, settings)
        leak = check.first_leak()
        outcome = check.outcome
        if leak is not None and not check.is_repeatable():
            outcome.repeats = 0
            outcome.skipped.append(
                f"{call.name} gives another answer each time it is called, as with dropout in training mode: call "
                "model.eval() first"
            )
        elif settings.expect == "varies":
            _judge_declared(outcome, leak, call, settings)
        elif leak is not None:
            outcome.failure = "\n".join(_report(check, leak))
    return outcome


def _judge_declared(outcome: Outcome, leak: Leak | None, call: ObservedCall, settings: PaddingSettings) -> None:
    if leak is not None:
        outcome.repeats += 1
        outcome.notes.append(f"{call.name} varies with padding as declared: {settings.reason}")
    elif outcome.repeats:
        outcome.failure = (
            f"{call.name} is declared to vary with padding ({settings.reason}) and does not: "
            f"{outcome.repeats} repeated forwards gave the same answer.\n"
            "Remove expect='varies' and reason= from the marker."
        )


def _report(check: PaddingCheck, leak: Leak) -> Iterator[str]:
    evidence, smallest = gather(check, leak)
    stream, tolerances = leak.stream, check.settings.tolerances()
    yield render_headline(check.call.name, "is not invariant to padding", smallest.label)
    if leak.mismatch.error:
        yield from render_output(None, leak.mismatch.error)
        yield from render_pads(smallest.side, evidence.failing, evidence.passing, stream.kind.unit, stream.length)
        return
    located = locate(check.call, smallest, tolerances, is_padded=True)
    check.outcome.culprit = located.culprit
    findings = Findings(
        stream, smallest, evidence, located, leak.mismatch.is_at_pads, _classes(check.call.model, located.culprit)
    )
    yield from render_place("The padding gets in", located.culprit, located.parity, located.tokens, located.reason)
    yield from render_pads(
        smallest.side, evidence.failing, evidence.passing, stream.kind.unit, stream.length if stream.is_exact else 0
    )
    yield from render_output(leak.mismatch.leaf, "")
    yield from render_drift(located.parity, located.culprit)
    told = observations(findings)
    if told:
        yield from wrapped(f"Observed: {' '.join(told)}")
    yield from wrapped(f"Diagnosis: {diagnose(findings)}")


def _classes(model: torch.nn.Module, culprit: Culprit | None) -> tuple[str, ...]:
    """Return the classes of the culprit and its direct children; a root's are not its own."""
    if culprit is None:
        return ()
    module = dict(model.named_modules()).get(culprit.path)
    children = [] if module is None or culprit.kind == "glue" else list(module.children())
    return (culprit.class_name, *(type(child).__name__ for child in children))
