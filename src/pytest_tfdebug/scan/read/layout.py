"""Which files of a repository are model tests, and of which model.

The name of a file says so, in a directory of models. That is ``tests/models``, else a ``models`` further below the
tests, else any directory of tests with such files: as transformers, diffusers, adapters and peft have them, and forks
of older versions.
"""

from __future__ import annotations

from functools import cache
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from pytest_tfdebug.scan.errors import ScanError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_tfdebug.scan.read.tree import Tree

#: How a file is called that tests one kind of models: what its tests have in common is their names.
KINDS = "_models.py"
#: Model test files up to which every file is read whole, so that syntax errors inside functions are found too.
CHECKED = 24
_TESTS = frozenset({"test", "tests"})


class _Form(NamedTuple):
    """What stands around the model in the name of a file, and whether the directory of the file is the model's."""

    start: str
    end: str = ".py"
    has_directory: bool = False
    no_models: frozenset[str] = frozenset({"auto", "common"})


#: Files of models in a directory of models, and anywhere in the tests: an older transformers, then adapters and peft.
_FORMS: tuple[_Form, ...] = (
    _Form("test_modeling_", has_directory=True, no_models=frozenset()),
    _Form("test_models_"),
    _Form("test_model_"),
)
_FLAT: tuple[_Form, ...] = (_Form("test_modeling_", has_directory=True, no_models=frozenset({"common"})),)
_LOOSE: tuple[_Form, ...] = (_Form("test_on_"), _Form("test_", "_model.py"), _Form("test_", KINDS))


class ModelTestFile(NamedTuple):
    """A model test file: its path, its models directory, its model, and the path that belongs to the model alone."""

    path: str
    models: str
    model: str
    owned: str


class Work(NamedTuple):
    """What is to be scanned: the root, its model test files, and one test or all (None)."""

    root: str
    places: tuple[ModelTestFile, ...]
    test: str | None
    is_strict: bool = False

    @property
    def is_checked(self) -> bool:
        """Whether every file is read whole."""
        return self.is_strict or len(self.places) <= CHECKED

    @property
    def is_by_name(self) -> bool:
        """Whether a test is common because several kinds of models have it under one name, and no mixin brings it."""
        return any(where.path.endswith(KINDS) for where in self.places)

    def by_model(self) -> dict[str, list[ModelTestFile]]:
        """Return the test files of each model."""
        places = sorted(self.places, key=attrgetter("model", "path"))
        return {model: list(found) for model, found in groupby(places, attrgetter("model"))}


@cache
def place(path: str, models_dir: str = "", forms: tuple[_Form, ...] = _FORMS) -> ModelTestFile | None:
    """Return which model a file tests, if any, in a models directory, which is any ``tests/models`` if not given."""
    models = models_dir or models_dir_of(path)
    below = path.removeprefix(f"{models}/")
    *directory, name = below.split("/")
    form, model = named(name, forms)
    if not models or below == path or form is None:
        return None
    if form.has_directory and directory:
        return ModelTestFile(path, models, directory[-1], f"{path.rpartition('/')[0]}/")
    return None if model == "common" else ModelTestFile(path, models, model, path)


def named(name: str, forms: tuple[_Form, ...] = _FLAT) -> tuple[_Form | None, str]:
    """Return the form of a file's name and the model in it; None where it names none."""
    for form in forms:
        model = name[len(form.start) : -len(form.end)]
        is_name = model.replace("_", "a").isalnum() and model not in form.no_models
        if is_name and name.startswith(form.start) and name.endswith(form.end):
            return form, model
    return None, ""


def models_dir_of(path: str, *, is_anywhere: bool = False) -> str:
    """Return the models directory of a path, right below that of the tests or anywhere there; nothing without one."""
    parts = path.split("/")
    for at in range(len(parts) - 2, 0, -1):
        above = parts[:at] if is_anywhere else parts[at - 1 : at]
        if parts[at] == "models" and not _TESTS.isdisjoint(above):
            return "/".join(parts[: at + 1])
    return ""


@cache
def is_owned(path: str, owned: frozenset[str]) -> bool:
    """Tell whether a file belongs to one model, so that what it defines is no common test."""
    above = (path[: at + 1] for at, mark in enumerate(path) if mark == "/")
    return path in owned or not owned.isdisjoint(above)


def model_files(tree: Tree, models_dir: str = "") -> list[ModelTestFile]:
    """Return the model test files of a repository, whose directory is found if not given; ScanError if it has none."""
    models_dir = models_dir.strip("/").removeprefix("./")
    if models_dir and not tree.is_dir(models_dir):
        raise ScanError(f"--models-dir {models_dir} is not a directory of the repository.")
    for found in _found(tree, models_dir):
        if places := sorted(place for place in found if place is not None):
            return places
    if models_dir:
        raise ScanError(f"No model tests in {models_dir}: no file such as {models_dir}/bert/test_modeling_bert.py.")
    raise ScanError(
        "No model tests here: no file such as tests/models/bert/test_modeling_bert.py. Run in the root of a "
        "repository, name it with --repo, or name the directory of its models' tests with --models-dir."
    )


def _found(tree: Tree, models_dir: str) -> Iterator[Iterable[ModelTestFile | None]]:
    """Yield the model test files of each layout; the first that has any is that of the repository."""
    for forms in (_FORMS, _LOOSE) if models_dir else ():
        yield (place(path, models_dir, forms) for path in tree.files(models_dir))
    if models_dir:
        return
    for under in ("tests/models", "tests", ""):
        yield map(place, tree.files(under) if not under or tree.is_dir(under) else ())
    every = list(tree.files(""))
    yield (place(path, models_dir_of(path, is_anywhere=True)) for path in every)
    for forms in (_FLAT, _LOOSE):
        yield (place(path, models, forms) for path, models in _directories(every, forms))


def _directories(paths: Iterable[str], forms: tuple[_Form, ...]) -> Iterator[tuple[str, str]]:
    """Yield each test file of a model with the directory of the models: its own, or the one above that."""
    by_directory: dict[str, list[str]] = {}
    for path in paths:
        directory, _, name = path.rpartition("/")
        if not _TESTS.isdisjoint(directory.split("/")) and named(name, forms)[0] is not None:
            by_directory.setdefault(directory, []).append(path)
    for directory, found in by_directory.items():
        above, _, last = directory.rpartition("/")
        is_own = any(named(path.rpartition("/")[2], forms)[1].endswith(last) for path in found)
        yield from ((path, above if is_own else directory) for path in found)
