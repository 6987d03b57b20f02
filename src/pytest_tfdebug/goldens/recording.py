"""Record a forward as a golden: run it, write what is to be kept of it, and say what became of the file."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from pytest_tfdebug.errors import GoldenSizeWarning, TFDebugError
from pytest_tfdebug.goldens.on_ranks import fingerprint_on_ranks, gathered, once
from pytest_tfdebug.goldens.paths import shown
from pytest_tfdebug.goldens.progress import Progress
from pytest_tfdebug.goldens.session import GoldenSession, Outcome
from pytest_tfdebug.goldens.store import Written, save
from pytest_tfdebug.tracing.budget import shown_size
from pytest_tfdebug.tracing.ranks import present_group
from pytest_tfdebug.tracing.selection import selection
from pytest_tfdebug.tracing.trace import recorded_forward

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from pytest_tfdebug.goldens.place import Place
    from pytest_tfdebug.goldens.port_call import PortCall
    from pytest_tfdebug.goldens.settings import CheckSettings, Kept
    from pytest_tfdebug.records import Call
    from pytest_tfdebug.tracing.trace import Trace

#: Bytes above which a golden that was written gives a warning.
_LARGE = 10_000_000


@dataclass(frozen=True)
class Target:
    """Where a golden is written.

    Args:
        place: That of the golden.
        is_pending: Whether it is written beside the golden, to be reviewed.
    """

    place: Place
    is_pending: bool

    @property
    def file(self) -> Place:
        """The place of what is written."""
        return self.place.pending if self.is_pending else self.place


def record(
    item: pytest.Item, target: Target, model: torch.nn.Module, called: PortCall, settings: CheckSettings
) -> None:
    """Record a forward as a golden, or beside it to be reviewed; nothing where that would change nothing.

    Args:
        item: The running test.
        target: Where it is written.
        model: The model that is recorded.
        called: How it is called.
        settings: What was asked for.

    Raises:
        GoldenError: If the forward showed no tensor, or the file cannot be written.
        TFDebugError: If the model cannot be run in float64, and floors are asked for.
    """
    __tracebackhide__ = True
    test = item.nodeid
    progress = Progress(item.config, test)
    seen: set[str] = set()

    def tell(recorded: Trace, call: Call) -> None:
        seen.add(call.path)
        progress.step("module", len(seen), 1 + len(recorded.modules) - len(recorded.unrecorded))

    picked = selection(settings.include, settings.exclude, settings.level)
    group = present_group()
    recorded = recorded_forward(
        model,
        called.args,
        called.kwargs,
        picked,
        tell,
        method=called.method,
        budget=settings.kept.budget if group is None else None,
        group=group,
    )
    weights = None if group is None else fingerprint_on_ranks(model, group)
    recorded = recorded if group is None else gathered(recorded, group)

    def write() -> Written:
        with target.file.staged(target.place) as file:
            made = save(file, recorded, model, test, kept=settings.kept, progress=progress, weights=weights)
        if not target.is_pending or made.status == "unchanged":
            target.place.drop_pending()
        return made

    written = once(group, write)
    is_news = not target.is_pending or written.status != "unchanged"
    if is_news:
        status = "pending" if target.is_pending else written.status
        GoldenSession.of(item.config).add(Outcome(str(target.file), test, status, written.review))
    if written.size > _LARGE:
        _warn_of_size(f"{shown(str(target.file), item.config)} takes {shown_size(written.size)}", settings.kept)


def _warn_of_size(told: str, kept: Kept) -> None:
    advice = (
        'without store="full" a golden takes about tf_golden_budget'
        if kept.budget is None
        else "the model's inputs are kept whole: smaller ones make a smaller golden"
    )
    warnings.warn(GoldenSizeWarning(f"{told}: large for a file to commit; {advice}."), stacklevel=4)


def recorded_model(
    model: torch.nn.Module, reference: torch.nn.Module | Callable[[], torch.nn.Module] | None
) -> torch.nn.Module:
    """Return the model whose forward is recorded.

    Args:
        model: The model under test.
        reference: What it is held to, or a function that builds that; None for the model itself.

    Raises:
        TFDebugError: If it is no model and builds none.
    """
    if reference is None or isinstance(reference, torch.nn.Module):
        return model if reference is None else reference
    built = reference() if callable(reference) else reference
    if not isinstance(built, torch.nn.Module):
        raise TFDebugError(
            f"reference= is a torch.nn.Module or a function that returns one; it gave {type(built).__name__}."
        )
    return built
