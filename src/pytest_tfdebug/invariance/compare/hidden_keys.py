"""See whether a module hides every key from real tokens: a softmax then weighs all keys alike, pads too."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode

from pytest_tfdebug.errors import counted
from pytest_tfdebug.tracing.record.masks import hidden

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pytest_tfdebug.invariance.calls.alignment import Alignment
    from pytest_tfdebug.invariance.calls.observed_call import ObservedCall

_SOFTMAX, _ATTENTION = "softmax", "scaled_dot_product_attention"


class _Softmaxes(TorchFunctionMode):
    """Looks at the scores of every softmax that runs while it is told to."""

    def __init__(self, real: torch.Tensor) -> None:
        self.real = real  # real tokens, `(rows, length)`, bool
        self.looks = False
        self.hidden = 0  # most of them without a key, in any softmax

    def __torch_function__(
        self, func: Callable[..., Any], _types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:  # noqa: ANN401 - whatever the function returns
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "") if self.looks else ""
        if name == _SOFTMAX:
            self._look(args[0] if args else kwargs.get("input"))
        elif name == _ATTENTION:
            self._look(args[3] if len(args) > 3 else kwargs.get("attn_mask"))  # noqa: PLR2004 - query, key, value, mask
        return func(*args, **kwargs)

    def _look(self, scores: object) -> None:
        """Count the real queries whose keys are all hidden, by scores or a mask ``(rows or 1, ..., length, keys)``."""
        rows, length = self.real.shape
        is_table = isinstance(scores, torch.Tensor) and scores.dim() > 2  # noqa: PLR2004 - as above
        if not is_table or scores.shape[-2] != length or scores.shape[0] not in (1, rows):  # type: ignore[attr-defined]
            return
        assert isinstance(scores, torch.Tensor)  # noqa: S101 - as above
        by_query = hidden(scores).all(-1).reshape(len(scores), -1, length).any(1).cpu()
        self.hidden = max(self.hidden, int((by_query & self.real).sum()))


def told_hidden_keys(call: ObservedCall, inputs: Mapping[str, Any], path: str, at: Alignment) -> str:
    """Return from how many real tokens a module hides every key, as a sentence without its stop; empty for none.

    Args:
        call: The call; inside ``call.restored()``.
        inputs: Its inputs without added pads.
        path: Path of the module; any other is the root.
        at: Where its real tokens lie.
    """
    count = at.batch if at.rows is None else len(at.rows)
    real = torch.ones(count, at.real, dtype=torch.bool) if at.mask is None else at.mask.cpu()
    seen, module = _Softmaxes(real), dict(call.model.named_modules()).get(path, call.model)

    def look(*, is_on: bool) -> None:
        seen.looks = is_on

    with ExitStack() as stack:
        for hook in (
            module.register_forward_pre_hook(lambda *_: look(is_on=True)),
            module.register_forward_hook(lambda *_: look(is_on=False), always_call=True),
        ):
            stack.callback(hook.remove)
        stack.enter_context(seen)
        call.again(inputs)
    if not seen.hidden:
        return ""
    told = f"every key is hidden from {seen.hidden} of {counted(int(real.sum()), 'real token')}"
    return f"{told}: a softmax then weighs all keys alike, pads too, as with a window of 0"
