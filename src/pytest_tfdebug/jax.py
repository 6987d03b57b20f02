"""Every value that a JAX function computes, with the line of its own source that asked for it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

#: Primitives that call another jaxpr once, and the parameter that holds it: their insides are looked at.
_CALLS = ("jaxpr", "call_jaxpr", "fun_jaxpr")
#: Primitives that call one any number of times, or on parts: looked at from outside.
_LOOPS = frozenset({"scan", "while", "cond", "shard_map", "pallas_call"})


def arrays(function: Callable[..., Any], *args: Any, **kwargs: Any) -> list[tuple[str, Any]]:  # noqa: ANN401 - any inputs
    """Evaluate a JAX function one operation at a time and return the result of each.

    Args:
        function: A function, jitted or not: ``model.apply`` of Flax, a closure over parameters.
        *args: Its positional inputs.
        **kwargs: Its keyword inputs.

    Returns:
        ``(label, array)`` pairs in the order of computation; the label is ``file.py:line operation``.
    """
    import jax

    closed = jax.make_jaxpr(function)(*args, **kwargs)
    found: list[tuple[str, Any]] = []
    _evaluate(closed.jaxpr, closed.consts, jax.tree.leaves((args, kwargs)), found)
    return found


def _evaluate(jaxpr: Any, consts: Any, given: Any, found: list[tuple[str, Any]]) -> list[Any]:  # noqa: ANN401
    """Evaluate a jaxpr, add what each equation computes to a list, and return its outputs."""
    known = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *given], strict=True))

    def read(atoms: Any) -> list[Any]:  # noqa: ANN401
        return [atom.val if hasattr(atom, "val") else known[atom] for atom in atoms]

    for equation in jaxpr.eqns:
        inner = next((equation.params[name] for name in _CALLS if name in equation.params), None)
        if inner is not None and equation.primitive.name not in _LOOPS:
            inside = getattr(inner, "jaxpr", inner), getattr(inner, "consts", ())
            results = _evaluate(*inside, read(equation.invars), found)
        else:
            made = equation.primitive.bind(*read(equation.invars), **equation.params)
            results = list(made) if equation.primitive.multiple_results else [made]
            found += [(_label(equation), result) for result in results]
        known.update(zip(equation.outvars, results, strict=True))
    return read(jaxpr.outvars)


def _label(equation: Any) -> str:  # noqa: ANN401
    from jax._src import source_info_util  # it has no public name

    frame = source_info_util.user_frame(equation.source_info.traceback)
    where = f"{Path(frame.file_name).name}:{frame.start_line} " if frame else ""
    return f"{where}{equation.primitive}"
