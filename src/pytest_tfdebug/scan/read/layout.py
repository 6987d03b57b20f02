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
_TESTS = frozenset({"test", "tests"})


class _Form(NamedTuple):
    """What stands around the model in the name of a file, and whether the directory of the file is the model's."""

    start: str
    end: str = ".py"
    has_directory: bool = False
    no_models: frozenset[str] = frozenset({"auto", "common"})


#: Files of models in a directory of models.
_FORMS: tuple[_Form, ...] = (
    _Form("test_modeling_", has_directory=True, no_models=frozenset()),
    _Form("test_models_"),
    _Form("test_model_"),
)
#: Files of models anywhere in the tests: an older transformers, adapters, peft.
_FLAT: tuple[_Form, ...] = (_Form("test_modeling_", has_directory=True, no_models=frozenset({"common"})),)
_LOOSE: tuple[_Form, ...] = (_Form("test_on_"), _Form("test_", "_model.py"), _Form("test_", KINDS))


#: Model test files up to which every file is read whole, so that syntax errors inside functions are found too.
CHECKED = 24


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
    """Return which model a file tests, or None where it is no model test file.

    The models directory is any ``tests/models`` where it is not given.
    """
    models = models_dir or _models_dir(path)
    below = path.removeprefix(f"{models}/")
    if not models or below == path:
        return None
    *directory, name = below.split("/")
    form, model = _named(name, forms)
    if form is None:
        return None
    if form.has_directory and directory:
        return ModelTestFile(path, models, directory[-1], f"{path.rpartition('/')[0]}/")
    return None if model == "common" else ModelTestFile(path, models, model, path)


def _named(name: str, forms: tuple[_Form, ...]) -> tuple[_Form | None, str]:
    """Return the form of a file's name and the model in it; None where it names none."""
    for form in forms:
        if not (name.startswith(form.start) and name.endswith(form.end)):
            continue
        model = name[len(form.start) : -len(form.end)]
        if model.replace("_", "a").isalnum() and model not in form.no_models:
            return form, model
    return None, ""


def _models_dir(path: str, *, is_anywhere: bool = False) -> str:
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
    return is_below and any(_named(name, _FLAT)[0] for name in siblings)


def model_files(tree: Tree, models_dir: str = "") -> list[ModelTestFile]:
    """Return the model test files of a repository, by path; their directory is found where it is not given.

    Raises:
        ScanError: If there are none.
    """
    models_dir = models_dir.strip("/").removeprefix("./")
    if models_dir:
        if not tree.is_dir(models_dir):
            raise ScanError(f"--models-dir {models_dir} is no directory of the repository.")
        for forms in (_FORMS, _LOOSE):
            if places := _places(((path, models_dir) for path in tree.files(models_dir)), forms):
                return places
        raise ScanError(f"No model tests in {models_dir}: no file such as {models_dir}/bert/test_modeling_bert.py.")
    for under in ("tests/models", "tests", ""):
        if (not under or tree.is_dir(under)) and (places := _places((path, "") for path in tree.files(under))):
            return places
    every = list(tree.files(""))
    if places := _places((path, _models_dir(path, is_anywhere=True)) for path in every):
        return places
    for forms in (_FLAT, _LOOSE):
        if places := _places(_directories(every, forms), forms):
            return places
    raise ScanError(
        "No model tests here: no file such as tests/models/bert/test_modeling_bert.py. Run in the root of a "
        "repository, name it with --repo, or name the directory of its models' tests with --models-dir."
    )


def _directories(paths: Iterable[str], forms: tuple[_Form, ...]) -> Iterator[tuple[str, str]]:
    """Yield each test file of a model with the directory of the models: its own, or the one above that."""
    by_directory: dict[str, list[str]] = {}
    for path in paths:
        directory, _, name = path.rpartition("/")
        if not _TESTS.isdisjoint(directory.split("/")) and _named(name, forms)[0] is not None:
            by_directory.setdefault(directory, []).append(path)
    for directory, found in by_directory.items():
        above, _, last = directory.rpartition("/")
        is_own = any(_named(path.rpartition("/")[2], forms)[1].endswith(last) for path in found)
        yield from ((path, above if is_own else directory) for path in found)


def _places(paths: Iterable[tuple[str, str]], forms: tuple[_Form, ...] = _FORMS) -> list[ModelTestFile]:
    """Return the model test files among paths, each given with its models directory."""
    return sorted(found for path, models in paths if (found := place(path, models, forms)) is not None)
