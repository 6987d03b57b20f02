"""``tf_trace``: record forwards inside a test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from pytest_tfdebug.report.tables import render_tree
from pytest_tfdebug.tracing.record.state import preserved
from pytest_tfdebug.tracing.trace import Trace, check_model, record

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest


def tracer(item: pytest.Item) -> Callable[..., Trace]:
    """Return :func:`pytest_tfdebug.trace` for a test: a forward that raises leaves its calls in the test's report."""

    def tf_trace(model: torch.nn.Module, /, *args: Any, **kwargs: Any) -> Trace:  # noqa: ANN401 - the model's own inputs
        __tracebackhide__ = True
        own: dict[str, Any] = {name: kwargs.pop(name) for name in ("include", "exclude", "level") if name in kwargs}
        check_model(model, own, "tf_trace")
        with preserved(model), torch.no_grad(), record(model, **own) as recorded:
            try:
                model(*args, **kwargs)
            except Exception:
                item.add_report_section("call", "tfdebug trace", f"Calls before the error:\n{_text(recorded)}")
                raise
        return recorded

    return tf_trace


def _text(recorded: Trace) -> str:
    try:
        return str(recorded)
    except RuntimeError:  # after an error on a device no tensor there can be read
        return "\n".join(render_tree(recorded.calls, recorded.notes))
