"""The inputs and outputs of an MLX model's modules, in the order of computation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


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
    from mlx.utils import tree_flatten

    found: list[tuple[str, Any]] = []

    def keep(label: str, held: object) -> None:
        leaves = (leaf for _, leaf in tree_flatten(held) if isinstance(leaf, mx.array))
        found.extend((label, mx.stop_gradient(leaf)) for leaf in leaves)  # an array of its own: x *= y changes x

    paths = {id(module): path or "output" for path, module in model.named_modules()}
    # Python looks __call__ up in the class, so it is replaced there
    bases = {next(base for base in type(module).__mro__ if "__call__" in vars(base)) for module in model.modules()}
    originals: dict[Any, Any] = {base: base.__call__ for base in bases}
    mx.disable_compile()  # a compiled function is called with tracers the first time, and not at all afterwards
    try:
        for base, original in originals.items():
            base.__call__ = _watched(original, paths, keep)
        model(*args, **kwargs)
        mx.eval([array for _, array in found])
    finally:
        for base, original in originals.items():
            base.__call__ = original
        mx.enable_compile()
    return found


def _watched(original: Callable[..., Any], paths: dict[int, str], keep: Callable[[str, object], None]) -> Any:  # noqa: ANN401
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        if id(self) not in paths:
            return original(self, *args, **kwargs)
        keep(f"{paths[id(self)]} input", [*args, *kwargs.values()])
        result = original(self, *args, **kwargs)
        keep(paths[id(self)], result)
        return result

    return call
