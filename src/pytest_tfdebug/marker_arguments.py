"""What a marker takes, or the function that does the same: checked once, in one way for all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, fields
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_tfdebug.errors import TFDebugError

if TYPE_CHECKING:
    import pytest
    from typing_extensions import Self


def argument(
    default: object, is_valid: Callable[[Any], bool], wanted: str, normal: Callable[[Any], object] | None = None
) -> Any:  # noqa: ANN401 - a field of any type
    """Return a field of an :class:`Arguments` class."""
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
    """Base of what a marker, or the function that does the same, takes: a dataclass of :func:`argument` fields."""

    def __post_init__(self) -> None:
        wrong = []
        for item in fields(self):  # type: ignore[arg-type] # every subclass is a dataclass
            value, check = getattr(self, item.name), item.metadata
            if value is item.default:
                continue
            normal = value if check["normal"] is None else check["normal"](value)
            if check["is_valid"](normal):
                object.__setattr__(self, item.name, normal)
            else:
                wrong.append(f"{item.name}={value!r} is not {check['wanted']}.")
        wrong += self.contradictions() if not wrong else []
        if wrong:
            raise TFDebugError("\n".join(wrong))

    def contradictions(self) -> list[str]:
        """Return what is wrong with values that each make sense, in sentences."""
        return []

    @classmethod
    def of(
        cls, name: str, args: Sequence[object], kwargs: Mapping[str, Any], valid: Iterable[str] | None = None
    ) -> Self:
        """Build the arguments that a user typed."""
        names = [item.name for item in fields(cls)] if valid is None else list(valid)  # type: ignore[arg-type] # as above
        wrong = list(unknown(name, names, args, kwargs))
        try:
            made = cls(**{key: value for key, value in kwargs.items() if key in names})
        except TFDebugError as error:
            wrong += [f"{name}: {line}" for line in str(error).splitlines()]
        if wrong:
            raise TFDebugError("\n".join(wrong))
        return made


def unknown(name: str, valid: Sequence[str], args: Sequence[object], kwargs: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each argument that a marker or function does not take, with those that it takes."""
    if args:
        yield f"{name} takes keyword arguments only ({', '.join(valid)}) and got {args[0]!r}."
    for key, value in kwargs.items():
        if key not in valid:
            yield f"{name} has no argument {key}={value!r}; it takes {', '.join(valid)}.{did_you_mean(key, valid)}"


def did_you_mean(word: str, valid: Iterable[str]) -> str:
    """Return the question that names the nearest valid word, with a space before it; empty if none is near."""
    near = get_close_matches(word, list(valid), n=1)
    return f" Did you mean {near[0]}?" if near else ""


_Arguments = TypeVar("_Arguments", bound=Arguments)


def marked(item: pytest.Item, name: str, kind: type[_Arguments]) -> _Arguments | None:
    """Return what the closest marker of a test was given; None for a test without it."""
    marker = item.get_closest_marker(name)
    if marker is None:
        return None
    try:
        return kind.of(name, marker.args, marker.kwargs)
    except TFDebugError as error:
        raise usage_error(item, error) from error


def usage_error(item: pytest.Item, error: TFDebugError) -> pytest.UsageError:
    """Return the error of a test whose marker makes no sense: each line of it names the test."""
    import pytest

    return pytest.UsageError("\n".join(f"{item.nodeid}: {line}" for line in str(error).splitlines()))


class MisspeltMarkers:
    """Fails each test that carries a marker nobody declared whose name is nearly one of ours."""

    def __init__(self, undeclared: Iterable[str], ours: Iterable[str]) -> None:
        near = {name: get_close_matches(name, list(ours), n=1, cutoff=0.8) for name in undeclared}
        self.meant = {name: match[0] for name, match in near.items() if match}

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Fail a test before it runs."""
        import pytest

        for name in self.meant.keys() & {marker.name for marker in item.iter_markers()}:
            told = f"{item.nodeid}: there is no marker {name}. Did you mean {self.meant[name]}?"
            raise pytest.UsageError(f"{told}\nIf {name} is a marker of your own, declare it in the ini key markers.")
