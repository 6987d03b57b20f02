"""``tf_trace``: record forwards inside a test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from pytest_tfdebug.errors import TFDebugError
from pytest_tfdebug.tracing.state import preserved
from pytest_tfdebug.tracing.trace import Trace, record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import pytest

    from pytest_tfdebug.tracing.selection import Level


def tracer(item: pytest.Item) -> Callable[..., Trace]:
    """Return :func:`pytest_tfdebug.trace` for a test: a forward that raises leaves its calls in the test's report."""

    def tf_trace(
        model: torch.nn.Module,
        /,
        *args: Any,  # noqa: ANN401 - the model's own inputs
        include: str | Iterable[str] = (),
        exclude: str | Iterable[str] = (),
        level: Level = "all",
        **kwargs: Any,  # noqa: ANN401
    ) -> Trace:
        __tracebackhide__ = True
        if not isinstance(model, torch.nn.Module):
            raise TFDebugError(f"tf_trace needs a torch.nn.Module and got {type(model).__name__}.")
        with (
            preserved(model),
            torch.no_grad(),
            record(model, include=include, exclude=exclude, level=level) as recorded,
        ):
            try:
                model(*args, **kwargs)
            except Exception:
                item.add_report_section("call", "tfdebug trace", f"Calls before the error:\n{recorded}")
                raise
        return recorded

    return tf_trace
