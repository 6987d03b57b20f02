from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_tfdebug import TFDebugError
from pytest_tfdebug.goldens.place import directory_of, golden_name, shown

ROOT = Path("/project")


def item(name, *, file="tests/test_model.py", classes=()):
    config = SimpleNamespace(invocation_params=SimpleNamespace(dir=ROOT), rootpath=ROOT)
    nodeid = "::".join([file, *classes, name])
    return SimpleNamespace(nodeid=nodeid, name=name, path=ROOT / file, config=config)


def golden_path(test, golden_dir, name):
    return directory_of(test.path, test.config, golden_dir) / golden_name(test, name)


@pytest.mark.parametrize(
    ("test", "name", "expected"),
    [
        (item("test_a"), None, "test_a"),
        (item("test_a"), "long", "test_a.long"),
        (item("test_a[cpu-1.5]"), None, "test_a[cpu-1.5]"),
        (item("test_a", classes=("TestOuter", "TestInner")), None, "TestOuter.TestInner.test_a"),
        (item("test_ä[größe]"), None, "test_ä[größe]"),
    ],
)
def test_plain_test_has_a_golden_of_its_name(test, name, expected):
    assert golden_path(test, None, name) == ROOT / "tests/goldens/test_model" / f"{expected}.safetensors"


@given(st.text(min_size=1, max_size=400))
def test_parameter_id_never_leads_out_of_the_directory_or_a_file_name(text):
    path = golden_path(item(f"test_a[{text}]"), None, None)

    assert path.parent == ROOT / "tests/goldens/test_model"
    assert path.name not in ("", ".", "..")
    assert not path.name.startswith(".")
    assert len(path.name.encode()) <= 255
    assert not set(path.name) & set('/\\:*?"<>|\0')


@given(st.text(max_size=8), st.text(max_size=8))
def test_different_tests_have_different_goldens(one, other):
    paths = {golden_path(item(f"test_a[{text}]"), None, None) for text in (one, other)}

    assert len(paths) == len({one, other})


@pytest.mark.parametrize(
    ("one", "other"),
    [("a::b", "a.b"), ("../x", ".._x"), ("x" * 300, "x" * 301), ("漢" * 200, "漢" * 201), ("a/b", "a\\b")],
)
def test_ids_that_look_alike_once_cleaned_are_told_apart(one, other):
    assert golden_path(item(f"test[{one}]"), None, None) != golden_path(item(f"test[{other}]"), None, None)


def test_hidden_name_is_shown():
    assert golden_path(item(".test"), None, None).name.startswith("test-")


@pytest.mark.parametrize("name", ["", "a/b", "..", "../x", "a\\b", ".hidden", "a:b", "a\n", 3])
def test_name_that_is_no_file_name_is_refused(name):
    with pytest.raises(TFDebugError) as caught:
        golden_path(item("test_a"), None, name)
    assert (
        str(caught.value) == f"name={name!r} of a golden is made of letters, digits and -_=,+@[] (no path separators)."
    )


def test_directory_is_beside_the_test_file_or_the_one_asked_for():
    assert directory_of(ROOT / "tests/test_model.py", item("test_a").config, None) == ROOT / "tests/goldens"
    assert directory_of(ROOT / "tests/test_model.py", item("test_a").config, "stored") == ROOT / "stored"
    assert directory_of(ROOT / "tests/test_model.py", item("test_a").config, "/elsewhere") == Path("/elsewhere")


def test_path_is_shown_as_it_is_typed():
    config = item("test_a").config

    assert shown(ROOT / "tests/goldens/x", config) == "tests/goldens/x"
    assert shown(Path("/elsewhere/x"), config) == "/elsewhere/x"
