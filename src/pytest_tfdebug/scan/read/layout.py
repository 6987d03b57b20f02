"""Which files of a repository are model tests, and of which model.

Two layouts are known: a directory for each model (``tests/models/bert/test_modeling_bert.py``, as transformers has
it) and a file for each model (``tests/models/unets/test_models_unet_2d.py``, as diffusers has it).
"""

from __future__ import annotations

from functools import cache
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from pytest_tfdebug.scan.errors import ScanError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_tfdebug.scan.read.tree import Tree

_MODELING, _SUFFIX = "test_modeling_", ".py"
_TESTS = frozenset({"test", "tests"})
#: Names that follow ``test_model_`` or ``test_models_`` in files of no model.
_NO_MODELS = frozenset({"auto", "common"})


#: Model test files up to which every file is read whole, so that syntax errors inside functions are found too.
CHECKED = 24


class Place(NamedTuple):
    """A model test file: its path, its models directory, its model, and the path that belongs to the model alone."""

    path: str
    models: str
    model: str
    owned: str


class Work(NamedTuple):
    """What is to be scanned: the root, its model test files, and one test or all (None)."""

    root: str
    places: tuple[Place, ...]
    test: str | None
    is_strict: bool = False

    @property
    def is_checked(self) -> bool:
        """Whether every file is read whole."""
        return self.is_strict or len(self.places) <= CHECKED

    def by_model(self) -> dict[str, list[Place]]:
        """Return the test files of each model."""
        places = sorted(self.places, key=attrgetter("model", "path"))
        return {model: list(found) for model, found in groupby(places, attrgetter("model"))}


@cache
def place(path: str, models_dir: str = "") -> Place | None:
    """Return which model a file tests, or None where it is no model test file.

    The models directory is any ``tests/models`` where it is not given.
    """
    models = models_dir or _models_dir(path)
    below = path.removeprefix(f"{models}/")
    if not models or below == path:
        return None
    *directory, name = below.split("/")
    modeling = _after(name, _MODELING)
    if modeling:
        if directory:
            return Place(path, models, directory[-1], f"{path.rpartition('/')[0]}/")
        return None if modeling == "common" else Place(path, models, modeling, path)
    model = _after(name, "test_models_") or _after(name, "test_model_")
    return Place(path, models, model, path) if model and model not in _NO_MODELS else None


def _models_dir(path: str, *, is_anywhere: bool = False) -> str:
    """Return the models directory of a path, right below that of the tests or anywhere there; nothing without one."""
    parts = path.split("/")
    for at in range(len(parts) - 2, 0, -1):
        above = parts[:at] if is_anywhere else parts[at - 1 : at]
        if parts[at] == "models" and not _TESTS.isdisjoint(above):
            return "/".join(parts[: at + 1])
    return ""


def _after(name: str, start: str) -> str:
    """Return what stands between the start of a file's name and its suffix, or nothing where it begins otherwise."""
    if not (name.startswith(start) and name.endswith(_SUFFIX)):
        return ""
    found = name[len(start) : -len(_SUFFIX)]
    return found if found.replace("_", "a").isalnum() else ""


@cache
def is_owned(path: str, owned: frozenset[str]) -> bool:
    """Tell whether a file belongs to one model, so that what it defines is no common test."""
    parts = path.split("/")
    prefixes = {"/".join(parts[:count]) + "/" for count in range(1, len(parts))}
    prefixes.add(path)
    return not prefixes.isdisjoint(owned)


def is_model_file(path: str, siblings: Iterable[str]) -> bool:
    """Tell whether a file belongs to one model, from its path and the names of the model tests beside it."""
    if place(path) is not None:
        return True
    models = _models_dir(path)
    is_below = bool(models) and "/" in path.removeprefix(f"{models}/")
    return is_below and any(_after(name, _MODELING) for name in siblings)


def model_files(tree: Tree, models_dir: str = "") -> list[Place]:
    """Return the model test files of a repository, by path; their directory is found where it is not given.

    Raises:
        ScanError: If there are none.
    """
    models_dir = models_dir.strip("/").removeprefix("./")
    if models_dir:
        if not tree.is_dir(models_dir):
            raise ScanError(f"--models-dir {models_dir} is no directory of the repository.")
        if places := _places((path, models_dir) for path in tree.files(models_dir)):
            return places
        raise ScanError(f"No model tests in {models_dir}: no file such as {models_dir}/bert/test_modeling_bert.py.")
    for under in ("tests/models", "tests", ""):
        if (not under or tree.is_dir(under)) and (places := _places((path, "") for path in tree.files(under))):
            return places
    elsewhere = ((path, _models_dir(path, is_anywhere=True)) for path in tree.files(""))
    if places := _places((path, models) for path, models in elsewhere if models):
        return places
    raise ScanError(
        "No model tests here: no file such as tests/models/bert/test_modeling_bert.py; "
        "run in the root of a repository or name it with --repo."
    )


def _places(paths: Iterable[tuple[str, str]]) -> list[Place]:
    """Return the model test files among paths, each given with its models directory."""
    return sorted(found for path, models in paths if (found := place(path, models)) is not None)
