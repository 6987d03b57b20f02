"""The inputs and outputs of an MLX model's modules, in the order of computation."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def arrays(model: Any, *args: Any, **kwargs: Any) -> list[tuple[str, Any]]:  # noqa: ANN401 - MLX's classes and inputs
    """Call an MLX model once and return what each of its modules was given and returned.

    Args:
        model: An ``mlx.nn.Module``.
        *args: Its positional inputs.
        **kwargs: Its keyword inputs.

    Returns:
        ``(label, array)`` pairs; the label is the module's path, with ``input`` for what it was given.
    """
    import mlx.core as mx

    found: list[tuple[str, Any]] = []

    def keep(label: str, held: object) -> None:
        if isinstance(held, mx.array):
            found.append((label, mx.stop_gradient(held)))  # an array of its own: x *= y changes x
        elif isinstance(held, (list, tuple)):
            for each in held:
                keep(label, each)
        elif isinstance(held, dict):
            for key, each in held.items():
                keep(f"{label}.{key}", each)

    mx.disable_compile()  # a compiled function is called with tracers the first time, and not at all afterwards
    try:
        with _watched(model, keep):
            model(*args, **kwargs)
            mx.eval([array for _, array in found])
    finally:
        mx.enable_compile()
    return found


@contextmanager
def _watched(model: Any, keep: Callable[[str, object], None]) -> Iterator[None]:  # noqa: ANN401
    """Have the calls of a model's modules seen: Python looks ``__call__`` up in the class, so it is replaced there."""
    paths = {id(module): path or "output" for path, module in model.named_modules()}
    callers: set[Any] = {
        next(base for base in type(module).__mro__ if "__call__" in vars(base)) for module in model.modules()
    }
    originals = {base: base.__call__ for base in callers}

    def watched(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            path = paths.get(id(self))
            if path is None:
                return original(self, *args, **kwargs)
            keep(f"{path} input", [*args, *kwargs.values()])
            result = original(self, *args, **kwargs)
            keep(path, result)
            return result

        return call

    try:
        for base, original in originals.items():
            base.__call__ = watched(original)
        yield
    finally:
        for base, original in originals.items():
            base.__call__ = original
