"""Classes with the same bases share what they inherit, and nothing that is one's own."""

import pytest

from pytest_tfdebug.scan import scan
from pytest_tfdebug.scan.read.layout import Work, model_files
from pytest_tfdebug.scan.read.tree import DiskTree
from pytest_tfdebug.scan.scanner import Scanner

#: Classes of one mixin that answer in different ways what the mixin's tests ask.
ANSWERS = {
    "a": "",
    "b": "has_attentions = False",
    "c": "has_attentions = True",
    "d": "def test_other(self): pass",
    "e": "has_attentions = False\n    is_small = True",
    "f": "is_small = True",
    "g": "def setUp(self):\n        self.is_small = True",
    "h": "def check(self):\n        self.skipTest('own')",
    "i": "def check(self):\n        super().check()",
    "j": "def check(self):\n        super().check()\n    has_attentions = False",
    "k": "def prepare(self, count=2):\n        super().prepare(count)",
    "l": "def prepare(self, count=2):\n        super().prepare(count)\n        self.finish()",
    "m": "def finish(self):\n        self.skipTest('finished')",
    "n": "def prepare(self, count=2):\n        if count:\n            self.skipTest('prepared')",
    "o": "def prepare(self, count=2):\n        super().prepare()\n        self.finish()\n\n"
    "    def finish(self):\n        self.skipTest('both')",
    "p": "@unittest.skip('decorated')\n    def prepare(self, count=2):\n        return count",
}
MIXIN = """
import unittest

class ModelTesterMixin:
    has_attentions = True
    is_small = False

    def check(self):
        if not self.has_attentions:
            self.skipTest("checked")

    def prepare(self, count=1):
        self.finish()
        return super().prepare(count)

    def finish(self):
        assert 1

    def test_prepared(self):
        self.prepare()

    def test_attentions(self):
        if not self.has_attentions:
            self.skipTest(f"{self.__class__.__name__} has none")
        if self.is_small:
            self.skipTest("too small")

    def test_size(self):
        if self.is_small:
            self.skipTest("small")

    def test_helper(self):
        self.check()

    def test_other(self):
        if self.has_attentions:
            self.skipTest("has them")

    def test_plain(self):
        assert 1
"""


def write(root, mixin, own):
    """Write a repository: a common mixin, and for each model a class on it with a body of its own."""
    (root / "tests").mkdir()
    (root / "tests" / "test_modeling_common.py").write_text(mixin)
    for model, body in own.items():
        file = root / "tests" / "models" / model / f"test_modeling_{model}.py"
        file.parent.mkdir(parents=True)
        head = "import unittest\n\nfrom ...test_modeling_common import ModelTesterMixin\n"
        file.write_text(f"{head}\nclass MTest(ModelTesterMixin, unittest.TestCase):\n    {body}\n")


@pytest.fixture
def mixin_repo(tmp_path):
    tests = tmp_path / "tests"
    for model, body in ANSWERS.items():
        file = tests / "models" / model / f"test_modeling_{model}.py"
        file.parent.mkdir(parents=True)
        head = f"class {model.upper()}Test(ModelTesterMixin, unittest.TestCase):"
        imports = "import unittest\n\nfrom ...test_modeling_common import ModelTesterMixin\n"
        file.write_text(f"{imports}\n{head}\n    {body or 'pass'}\n")
    (tests / "test_modeling_common.py").write_text(MIXIN)
    return tmp_path


def scanner(root):
    tree = DiskTree(root)
    work = Work(str(root), tuple(model_files(tree)), None)
    return Scanner(work, tree), list(work.by_model())


def states(scanned):
    return {(cls.model, cls.name): cls.states for model in scanned.models for cls in model.classes}


@pytest.mark.parametrize("tree", ["mixin_repo", "fixture_repo"])
def test_class_has_the_states_that_it_has_alone(tree, request):
    root = request.getfixturevalue(tree)
    alone = {}
    for where in scanner(root)[1]:
        alone.update(states(scanner(root)[0].scan([where])))

    for order in (1, -1):
        whole, places = scanner(root)
        assert states(whole.scan(places[::order])) == alone


def test_helpers_that_call_each_other(tmp_path):
    mixin = """
class ModelTesterMixin:
    def one(self, depth=0):
        self.two(depth)
        super().one()

    def two(self, depth=0):
        self.one(depth)
        super().two()

    def test_calls(self):
        self.one()
"""
    own = {
        "a": "pass",
        "b": "def two(self):\n        super().two()",
        "c": "def two(self):\n        self.skipTest('own')",
    }
    write(tmp_path, mixin, own)

    for order in (1, -1):
        whole, places = scanner(tmp_path)
        found = {
            model.model: cls.states["test_calls"]
            for model in whole.scan(places[::order]).models
            for cls in model.classes
        }
        assert [found[model].state for model in "abc"] == ["ran", "ran", "skipped"]


def test_each_class_of_a_mixin_has_its_own_answers(mixin_repo):
    whole, places = scanner(mixin_repo)
    found = {
        cls.model: {test: state.reason for test, state in cls.states.items()}
        for model in whole.scan(places).models
        for cls in model.classes
    }

    assert [found[model]["test_attentions"] for model in "abcef"] == [
        "",
        "BTest has none",
        "",
        "ETest has none",
        "too small",
    ]
    assert [found[model]["test_helper"] for model in "abhij"] == ["", "checked", "own", "", "checked"]
    assert [found[model]["test_prepared"] for model in "aklmnop"] == [
        "",
        "",
        "",
        "finished",
        "prepared",
        "both",
        "decorated",
    ]
    assert [found[model]["test_other"] for model in "abcd"] == ["has them", "", "has them", ""]
    assert [found[model]["test_size"] for model in "abefg"] == ["", "", "small", "small", "small"]


SETUPS = """
import sys
import unittest

class ModelTesterMixin:
    @classmethod
    def setUpClass(cls):
        {}

    def setUp(self):
        {}

    def test_forward(self):
        assert 1
"""


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("raise unittest.SkipTest('never')", "self.ready = 1", ("skipped", "never")),
        ("pass", "self.skipTest('not now')", ("skipped", "not now")),
        ("if sys.flags.quiet: raise unittest.SkipTest('quiet')", "self.ready = 1", ("conditional", "quiet")),
    ],
)
def test_each_setup_of_a_class_may_skip(repo, first, second, expected):
    root = repo(SETUPS.format(first, second), m="class MTest(ModelTesterMixin, unittest.TestCase): pass\n")

    [case] = scan(root)["test_forward"].cases

    assert (case.state.state, case.state.reason) == expected


def test_setup_that_many_classes_share_skips_once(repo):
    classes = "".join(f"class M{at}Test(ModelTesterMixin, unittest.TestCase): pass\n" for at in range(40))
    root = repo(SETUPS.format("pass", "if sys.flags.quiet: self.skipTest('quiet')"), m=classes)

    cases = scan(root)["test_forward"].cases

    assert len(cases) == 40
    assert {case.state.condition for case in cases} == {"sys.flags.quiet"}


def names_in_the_order_of_asking():
    """Return two attributes that a set of what a class was asked for holds in the order in which it was asked."""
    for number in range(10_000):
        pair = ("value", "low"), ("value", f"high_{number}")
        if [*frozenset(dict.fromkeys(pair))] != [*frozenset(dict.fromkeys(pair[::-1]))]:
            return "low", f"high_{number}"
    raise AssertionError("there are no such names")


def test_classes_share_an_outcome_in_whatever_order_they_were_asked(tmp_path):
    low, high = names_in_the_order_of_asking()
    mixin = f"""
class ModelTesterMixin:
    def test_less(self):
        if self.{high} < self.{low}:
            self.skipTest("too low")

    def test_more(self):
        if self.{low} > self.{high}:
            self.skipTest("too low")
"""
    own = {
        "a": f"{low}, {high} = 1, 2",
        "b": f"{low}, {high} = 2, 1\n    def test_less(self): assert 1",
        "c": f"{low}, {high} = 2, 1\n    def test_more(self): assert 1",
    }
    write(tmp_path, mixin, own)

    found = scan(tmp_path)

    assert {test: found[test].models_skipped for test in found} == {"test_less": ["c"], "test_more": ["b"]}
