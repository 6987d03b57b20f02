"""What sees each operator of a block below autograd, whoever calls it."""

from __future__ import annotations

import sys
from abc import abstractmethod
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import torch
from torch._ops import HigherOrderOperator
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode, _pop_mode, _push_mode
from typing_extensions import Self

if TYPE_CHECKING:
    from collections.abc import Iterator


class OperatorMode(TorchDispatchMode):  # type: ignore[no-untyped-call] # of torch
    """Hands each operator to :meth:`on`, in a block.

    An operator that runs others, as ``flex_attention`` and compiled code do, is one too: what it runs is not seen.
    """

    #: Without this torch refuses to run such an operator in a block.
    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Keep torch from importing its compiler, a second's work, to keep it out of this mode."""
        return False

    def __init_subclass__(cls, **kwargs: Any) -> None:  # noqa: ANN401
        super().__init_subclass__(**kwargs)  # type: ignore[no-untyped-call]
        _not_compiled(cls.on)

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._blocks = list[AbstractContextManager[object]]()

    def __enter__(self) -> Self:
        self._blocks.append(_attention_not_compiled())
        self._blocks[-1].__enter__()
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        self._blocks.pop().__exit__(None, None, None)

    @abstractmethod
    def on(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401
        """Run an operator, and return what it gives."""

    def above(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401
        """Run an operator that runs others, and return what it gives."""
        return func(*args, **kwargs)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
        """Run whatever is called."""
        run = self.above if isinstance(func, HigherOrderOperator) else self.on
        return run(func, args, kwargs or {})


@contextmanager
def unseen() -> Iterator[None]:
    """Run a block out of sight of the modes that see each operator: they would be asked of what only looks on."""
    modes = []
    try:
        while isinstance(_get_current_dispatch_mode(), OperatorMode):
            modes.append(_pop_mode())
        with torch._C.DisableTorchFunction():  # noqa: SLF001 - what torch's own modes use
            yield
    finally:
        for mode in reversed(modes):
            _push_mode(mode)


def _attention_not_compiled() -> AbstractContextManager[object]:
    """Let ``flex_attention`` in a block do without the compiler, which cannot work where each operator is looked at."""
    place = sys.modules.get("torch.nn.attention.flex_attention")
    name = "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG"  # torch's own name for it; earlier versions have none
    return patch.object(place, name, True) if hasattr(place, name) else nullcontext()  # noqa: FBT003


def _not_compiled(function: Any) -> None:  # noqa: ANN401
    """Keep torch's compiler, where somebody uses it, out of a function and what that calls."""
    with suppress(AttributeError, TypeError):  # its names are not public
        of = torch._C._dynamo.eval_frame  # noqa: SLF001
        of.set_code_exec_strategy(function.__code__, of._FrameExecStrategy(of._FrameAction.SKIP, of._FrameAction.SKIP))  # noqa: SLF001


_not_compiled(OperatorMode.__torch_dispatch__)
