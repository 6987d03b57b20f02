"""What a marker takes, or the function that does the same: checked once, in one way for all of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field, fields
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_tfdebug.errors import TFDebugError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pytest
    from typing_extensions import Self


def argument(
    default: object, is_valid: Callable[[Any], bool], wanted: str, normal: Callable[[Any], object] | None = None
) -> Any:  # noqa: ANN401 - a field of any type
    """Return a field of an :class:`Arguments` class.

    Args:
        default: Its default, which is not checked.
        is_valid: Whether a given value, in its normal form, makes sense.
        wanted: What a valid value is, as the end of "lengths=0 is not ...".
        normal: Brings any value into the form that the field keeps; must not raise.
    """
    return field(default=default, metadata={"is_valid": is_valid, "wanted": wanted, "normal": normal})


def one_of(default: str, *valid: str) -> Any:  # noqa: ANN401 - a field
    """Return a field of an :class:`Arguments` class that takes one of several words."""
    return argument(default, lambda value: value in valid, f"one of {', '.join(map(repr, valid))}")


def is_number(value: object) -> bool:
    """Tell whether a value is a number >= 0; True is no number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0


def is_whole_number(value: object, least: int = 0) -> bool:
    """Tell whether a value is a whole number, and not below the least one; True is no number."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def several(value: object) -> tuple[Any, ...]:
    """Return the items of what may be one or several: a text is one."""
    return tuple(value) if isinstance(value, Iterable) and not isinstance(value, (str, bytes)) else (value,)


class Arguments:
    """Base of what a marker, or the function that does the same, takes: frozen dataclasses of :func:`argument` fields.

    Raises:
        TFDebugError: If a value makes no sense; the message quotes it and says what is valid.
    """

    def __post_init__(self) -> None:
        for item in fields(self):  # type: ignore[arg-type] # every subclass is a dataclass
            value, check = getattr(self, item.name), item.metadata
            if value is item.default:
                continue
            normal = value if check["normal"] is None else check["normal"](value)
            if not check["is_valid"](normal):
                raise TFDebugError(f"{item.name}={value!r} is not {check['wanted']}.")
            object.__setattr__(self, item.name, normal)

    @classmethod
    def of(cls, name: str, args: Sequence[object], kwargs: Mapping[str, Any]) -> Self:
        """Build the arguments that a user typed.

        Args:
            name: The marker or function, for the message.
            args: The positional arguments: there is no place for them.
            kwargs: The keyword arguments.

        Raises:
            TFDebugError: If an argument is positional or unknown, or its value makes no sense.
        """
        refuse_unknown(name, [item.name for item in fields(cls)], args, kwargs)  # type: ignore[arg-type] # as above
        try:
            return cls(**kwargs)
        except TFDebugError as error:
            raise TFDebugError(f"{name}: {error}") from error


def refuse_unknown(name: str, valid: Sequence[str], args: Sequence[object], kwargs: Mapping[str, Any]) -> None:
    """Refuse arguments that a marker or function does not take.

    Raises:
        TFDebugError: If an argument is positional or unknown; the message quotes it and lists the valid ones.
    """
    if args:
        raise TFDebugError(f"{name} takes keyword arguments only ({', '.join(valid)}) and got {args[0]!r}.")
    for key, value in kwargs.items():
        if key not in valid:
            from difflib import get_close_matches

            near = get_close_matches(key, valid, n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise TFDebugError(f"{name} has no argument {key}={value!r}; it takes {', '.join(valid)}.{hint}")


_Arguments = TypeVar("_Arguments", bound=Arguments)


def marked(item: pytest.Item, name: str, kind: type[_Arguments], **defaults: object) -> _Arguments | None:
    """Return what the closest marker of a test was given; None for a test without it.

    Raises:
        pytest.UsageError: If an argument is positional or unknown, or its value makes no sense.
    """
    marker = item.get_closest_marker(name)
    if marker is None:
        return None
    try:
        return kind.of(name, marker.args, {**defaults, **marker.kwargs})
    except TFDebugError as error:
        import pytest

        raise pytest.UsageError(f"{item.nodeid}: {error}") from error
