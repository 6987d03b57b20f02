"""See the forwards that a test makes without being handed its models.

A marked test calls whatever models it likes. For the length of a ``with`` block ``torch.nn.Module.__call__`` is
replaced by a function that passes every call on and tells of the outermost ones: modules that no module called.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    #: Called with module, positional and keyword inputs, and a function that runs the call; returns the output.
    Interceptor = Callable[[torch.nn.Module, tuple[Any, ...], dict[str, Any], Callable[[], Any]], Any]


@contextmanager
def intercept_outermost(interceptor: Interceptor) -> Iterator[None]:
    """Hand every outermost module call of the block to ``interceptor``, in whichever thread it is made.

    Calls that the interceptor makes itself are not handed to it again. Modules inside a call cost one extra Python
    call each.
    """
    original = torch.nn.Module.__call__
    inside = threading.local()

    def call(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        __tracebackhide__ = True  # a failure inside a call is shown as it would be without us
        if getattr(inside, "a_call", False) or torch.compiler.is_compiling():
            return original(module, *args, **kwargs)
        inside.a_call = True
        try:
            return interceptor(module, args, kwargs, partial(original, module, *args, **kwargs))
        finally:
            inside.a_call = False

    torch.nn.Module.__call__ = call  # type: ignore[method-assign] # put back below
    try:
        yield
    finally:
        torch.nn.Module.__call__ = original  # type: ignore[method-assign]
