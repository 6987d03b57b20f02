"""What live classes say of test items: the model and common test of an item, and which decorators skip it."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_tfdebug.scan.read.layout import ModelTestFile


class Row(NamedTuple):
    """What happened to one test item; plain values, so that an xdist worker can send it.

    ``is_run`` is True for an item that was run, and False for one of which only its decorators are known.
    """

    nodeid: str
    model: str
    cls: str
    test: str
    name: str
    origin: str
    state: str
    form: str = ""
    reason: str = ""
    file: str = ""
    line: int = 0
    is_run: bool = False

    @property
    def node(self) -> str:
        """The node id of the item's class."""
        return self.nodeid.partition("[")[0].rpartition("::")[0]


def row_of(item: pytest.Item) -> Row | None:
    """Return the row of an item that is a common test of a model, before it runs."""
    cls = getattr(item, "cls", None)
    where = place_of(relative_to(str(item.path), item.config.rootpath))
    if cls is None or where is None or item.parent is None:
        return None
    name = getattr(item, "originalname", None) or item.name.partition("[")[0]
    test = _base(cls, name)
    origin = _origin(cls, test, name, item.config.rootpath)
    if not origin:
        return None
    form = _form(item, cls, name)
    return Row(item.nodeid, where.model, item.parent.name, test, item.name, origin, "collected", form)


def place_of(path: str) -> ModelTestFile | None:
    """Return which model a file tests, or None where it is no model test file."""
    from pytest_tfdebug.scan.read.layout import place

    return place(path)


def _base(cls: type, name: str) -> str:
    """Return the name of a test before ``parameterized.expand`` gave it a suffix."""
    for base in cls.__mro__:
        original = getattr(vars(base).get(name), "place_as", None)
        if original is not None and name.startswith(f"{original.__name__}_"):
            return str(original.__name__)
    return name


def _origin(cls: type, test: str, name: str, root: Path) -> str:
    """Return the mixin at the root of those outside the models that define a test; empty where there is none."""
    from pytest_tfdebug.scan.result import ORIGINS

    found = [base for base in cls.__mro__ if _defines(base, test, name) and not _is_of_a_model(base, root)]
    return ORIGINS.get(found[-1].__name__, found[-1].__name__) if found and test.startswith("test_") else ""


def _defines(cls: type, test: str, name: str) -> bool:
    """Tell whether a class itself defines a test, or the variants that ``expand`` made of it."""
    own = vars(cls)
    if any(inspect.isfunction(own.get(found)) for found in (test, name)):
        return True
    return test in own and any(
        getattr(value, "place_as", None) and _base(cls, key) == test for key, value in own.items()
    )


def _is_of_a_model(cls: type, root: Path) -> bool:
    """Tell whether a class stands in a file that belongs to one model."""
    from pytest_tfdebug.scan.read.layout import models_dir_of, named

    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    relative = relative_to(file, root) if file is not None else ""
    if not relative or place_of(relative) is not None:
        return bool(relative)
    models = models_dir_of(relative)
    is_below = bool(models) and "/" in relative.removeprefix(f"{models}/")
    return is_below and any(named(path.name)[0] for path in Path(file or "").parent.glob("test_modeling_*.py"))


def _form(item: pytest.Item, cls: type, name: str) -> str:
    """Return which kind of decorator could skip an item, or nothing where only its body could."""
    function = getattr(cls, name, None)
    if getattr(cls, "__unittest_skip__", False):
        return "class-decorator"
    if getattr(function, "__unittest_skip__", False):
        return "decorator"
    marks = [(node, mark) for kind in ("skip", "skipif") for node, mark in item.iter_markers_with_node(kind)]
    return "" if not marks else "decorator" if marks[0][0] is item else "class-decorator"


def marked(item: pytest.Item, row: Row) -> Row:
    """Return the row of an item that is collected and not run, of which only the decorators are known."""
    from _pytest.skipping import evaluate_skip_marks

    cls: Any = getattr(item, "cls", None)
    function = getattr(cls, row.name.partition("[")[0], None)
    try:
        mark = evaluate_skip_marks(item)
    except pytest.fail.Exception:  # a condition that raises, or a mark without a reason for one
        return row
    if mark is not None:
        return row._replace(state="skipped", reason=mark.reason)
    for skipped in (cls, function):
        is_heeded = skipped is function or hasattr(cls, "countTestCases")
        if getattr(skipped, "__unittest_skip__", False) and is_heeded:
            return row._replace(state="skipped", reason=str(getattr(skipped, "__unittest_skip_why__", "")))
    return row


def vanished(root: Path, node: str, model: str, cls: type) -> Iterator[Row]:
    """Yield a row for each common test, or variant of one, that a class binds to something that is not a function."""
    for base in cls.__mro__[1:]:
        if _is_of_a_model(base, root):
            continue
        for name, value in vars(base).items():
            bound = getattr(cls, name, None)
            if not name.startswith("test_") or not inspect.isfunction(value) or callable(bound):
                continue
            test = _base(cls, name)
            origin = _origin(cls, test, name, root)
            is_plain = bound is None or isinstance(bound, (bool, int, float, str, tuple))
            reason = f"{name} = {bound!r}" if is_plain else f"{name} is a {type(bound).__name__}"
            place = node.rpartition("::")[2]
            yield Row(f"{node}::{name}", model, place, test, name, origin, "vanished", "vanished", reason)


def relative_to(file: str, root: Path) -> str:
    """Return the posix path of a file from a directory; as it is where it lies elsewhere."""
    path = Path(file)
    return path.relative_to(root).as_posix() if path.is_absolute() and path.is_relative_to(root) else path.as_posix()
