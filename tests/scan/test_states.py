"""Source of a test class -> the state of its tests: state, form, reason, condition."""

import textwrap

import pytest

from pytest_tfdebug.scan import scan
from pytest_tfdebug.scan.cli import main

SKIPPED, CONDITIONAL = "skipped", "conditional"

#: What stands before or in ``class MTest(ModelTesterMixin, unittest.TestCase)`` for ``test_forward``.
METHODS = [
    ('@unittest.skip("why")\ndef test_forward(self): pass', (SKIPPED, "decorator", "why", "")),
    ("@unittest.skip(reason='why')\ndef test_forward(self): pass", (SKIPPED, "decorator", "why", "")),
    (
        '@unittest.skip(\n    reason="w"\n    "hy"  # and a comment\n)\ndef test_forward(self): pass',
        (SKIPPED, "decorator", "why", ""),
    ),
    (
        '@unittest.skip("it\'s \\"quoted\\" (and bracketed")\ndef test_forward(self): pass',
        (SKIPPED, "decorator", 'it\'s "quoted" (and bracketed', ""),
    ),
    (
        '@unittest.skip(f"for {WHY} and {missing.name}")\ndef test_forward(self): pass',
        (SKIPPED, "decorator", "for reasons and {missing.name}", ""),
    ),
    ('@unittest.skip("a %s" % "b")\ndef test_forward(self): pass', (SKIPPED, "decorator", "a %s", "")),
    ('@unittest.skip(WHY + "!")\ndef test_forward(self): pass', (SKIPPED, "decorator", "reasons!", "")),
    ("@unittest.skip\ndef test_forward(self): pass", (SKIPPED, "decorator", "", "")),
    ("@pytest.mark.skip\ndef test_forward(self): pass", (SKIPPED, "decorator", "", "")),
    ('@pytest.mark.skip("why")\ndef test_forward(self): pass', (SKIPPED, "decorator", "why", "")),
    ('@broken("the cache")\ndef test_forward(self): pass', (SKIPPED, "decorator", "broken: the cache", "")),
    ('@unittest.skipIf(True, "why")\ndef test_forward(self): assert 1', (SKIPPED, "decorator", "why", "")),
    ('@unittest.skipIf(False, "why")\ndef test_forward(self): assert 1', ("ran", "", "", "")),
    ('@unittest.skipUnless(OFF, "why")\ndef test_forward(self): assert 1', (SKIPPED, "decorator", "why", "")),
    (
        '@unittest.skipIf(sys.flags.dev_mode, reason="why")\ndef test_forward(self): assert 1',
        (CONDITIONAL, "decorator", "why", "sys.flags.dev_mode"),
    ),
    (
        '@unittest.skipUnless(sys.flags.dev_mode, "why")\ndef test_forward(self): assert 1',
        (CONDITIONAL, "decorator", "why", "not sys.flags.dev_mode"),
    ),
    (
        '@pytest.mark.skipif(sys.flags.dev_mode, reason="why")\ndef test_forward(self): assert 1',
        (CONDITIONAL, "decorator", "why", "sys.flags.dev_mode"),
    ),
    (
        (
            "@unittest.skipIf(\n    sys.flags.dev_mode  # it's \"slow\"\n    or sys.flags.quiet,\n    'why',\n)\n"
            "def test_forward(self): assert 1"
        ),
        (CONDITIONAL, "decorator", "why", "sys.flags.dev_mode or sys.flags.quiet"),
    ),
    (
        (
            "@slow\ndef test_forward(self):\n    for x in self.all():\n        if x.a or x.b:\n            self.skipTest('why')\n"
            "        elif x.c:\n            if x.d:\n                self.skipTest('too')"
        ),
        (CONDITIONAL, "decorator", "test is slow", "slow or for self.all() and (x.a or x.b or x.c and x.d)"),
    ),
    ("@slow\ndef test_forward(self): assert 1", (CONDITIONAL, "decorator", "test is slow", "slow")),
    ("@heavy\ndef test_forward(self): assert 1", (CONDITIONAL, "decorator", "test is slow", "heavy")),
    (
        "@require_gpu\n@slow\ndef test_forward(self): assert 1",
        (CONDITIONAL, "decorator", "test requires a GPU", "require_gpu or slow"),
    ),
    (
        '@require_at_least("2.5", strict=True)\n@require_at_least("2.6")\ndef test_forward(self): assert 1',
        (CONDITIONAL, "decorator", "", 'require_at_least("2.5", strict=True) or require_at_least("2.6")'),
    ),
    (
        "@require_nothing_known\ndef test_forward(self): assert 1",
        (CONDITIONAL, "decorator", "", "require_nothing_known"),
    ),
    ('@slow\n@unittest.skip("why")\ndef test_forward(self): pass', (SKIPPED, "decorator", "why", "")),
    ('def test_forward(self):\n    self.skipTest("why")', (SKIPPED, "body", "why", "")),
    ('def test_forward(self):\n    """Doc."""\n    pytest.skip(reason="why")', (SKIPPED, "body", "why", "")),
    ('def test_forward(self):\n    raise unittest.SkipTest("why")', (SKIPPED, "body", "why", "")),
    ("def test_forward(self):\n    raise unittest.SkipTest", (SKIPPED, "body", "", "")),
    (
        'def test_forward(self):\n    if sys.flags.dev_mode:\n        self.skipTest("why")\n    assert 1',
        (CONDITIONAL, "guard", "why", "sys.flags.dev_mode"),
    ),
    (
        'def test_forward(self):\n    if sys.flags.dev_mode:\n        return\n    self.skipTest("why")',
        (CONDITIONAL, "guard", "why", "not sys.flags.dev_mode"),
    ),
    (
        'def test_forward(self):\n    if sys.flags.dev_mode:\n        assert 1\n    else:\n        self.skipTest("why")',
        (CONDITIONAL, "guard", "why", "not sys.flags.dev_mode"),
    ),
    (
        'def test_forward(self):\n    if sys.flags.dev_mode:\n        self.skipTest("why")\n    else:\n        self.skipTest("why not")',
        (SKIPPED, "guard", "why", ""),
    ),
    (
        'def test_forward(self):\n    try:\n        import nothing\n    except ImportError:\n        self.skipTest("why")\n    assert 1',
        (CONDITIONAL, "guard", "why", "except ImportError"),
    ),
    ('def test_forward(self):\n    for name in ():\n        self.skipTest("why")\n    assert 1', ("ran", "", "", "")),
    (
        'def test_forward(self):\n    for name in sys.path:\n        self.skipTest("why")\n    assert 1',
        (CONDITIONAL, "guard", "why", "for sys.path"),
    ),
    (
        'def test_forward(self):\n    sys.flags.dev_mode or self.skipTest("why")',
        (CONDITIONAL, "guard", "why", "not sys.flags.dev_mode"),
    ),
    (
        'def test_forward(self):\n    sys.intern("a") and self.skipTest("why")',
        (CONDITIONAL, "guard", "why", 'sys.intern("a")'),
    ),
    (
        'def test_forward(self):\n    self.skipTest("why") if sys.flags.dev_mode else None',
        (CONDITIONAL, "guard", "why", "sys.flags.dev_mode"),
    ),
    ("def test_forward(self):\n    pytest.importorskip('nothing')", (CONDITIONAL, "guard", "", "no module 'nothing'")),
    (
        "def test_forward(self):\n    self.leave()\n    assert 1\n\ndef leave(self):\n    self.skipTest('why')",
        (SKIPPED, "body", "why", ""),
    ),
    ("def test_forward(self): super().test_forward()", ("ran", "", "", "")),
    ("def test_forward(self):\n    self.prepare()\n    self.assertTrue(sorted([1]))", ("ran", "", "", "")),
    (
        "def test_forward(self):\n    self.prepare()\n    needs_gpu(self)\n    assert 1",
        (CONDITIONAL, "guard", "no GPU", "not sys.flags.dev_mode"),
    ),
    ("def test_forward(self):\n    self.prepare()\n    raise NotHere('why')", (SKIPPED, "body", "why", "")),
    (
        "def test_forward(self):\n    self.prepare()\n    def leave():\n        raise NotHere('why')\n    leave()",
        (SKIPPED, "body", "why", ""),
    ),
    (
        "def test_forward(self): self.a()\ndef a(self): self.b(); self.skipTest('why')\ndef b(self): self.a(); self.skipTest('')",
        (SKIPPED, "body", "why", ""),
    ),
    (
        "has_attentions = False\n\ndef test_forward(self):\n    super().test_attentions()",
        (SKIPPED, "guard", "no attentions", ""),
    ),
    (
        "has_attentions = sys.flags.dev_mode\n\ndef test_forward(self):\n    super().test_attentions()",
        (CONDITIONAL, "guard", "no attentions", "not self.has_attentions"),
    ),
    (
        "has_attentions = False\n\ndef test_forward(self):\n    if sys.flags.dev_mode:\n        super().test_attentions()",
        (CONDITIONAL, "guard", "no attentions", "sys.flags.dev_mode"),
    ),
    (
        "has_attentions = True\n\ndef test_forward(self):\n    super().test_attentions()\n    self.skipTest('why')",
        (SKIPPED, "body", "why", ""),
    ),
    ("def test_forward(self): pass", ("empty", "empty", "", "")),
    ("def test_forward(self): ...", ("empty", "empty", "", "")),
    ("def test_forward(self): return", ("empty", "empty", "", "")),
    ('def test_forward(self):\n    r"""Only a docstring."""\n    # and a comment', ("empty", "empty", "", "")),
    ("@slow\ndef test_forward(self): pass", (CONDITIONAL, "decorator", "test is slow", "slow")),
    ("test_forward = False", ("vanished", "vanished", "test_forward = False", "")),
    (
        '@pytest.mark.parametrize("OFF", [True])\ndef test_forward(self, OFF):\n    if OFF:\n        self.skipTest("why")',
        (CONDITIONAL, "guard", "why", "OFF"),
    ),
    (
        'def test_forward(self):\n    if sys.flags.dev_mode:\n        if sys.flags.quiet:\n            return\n    self.skipTest("why")',
        (CONDITIONAL, "guard", "why", "not (sys.flags.dev_mode and sys.flags.quiet)"),
    ),
    (
        'def test_forward(self):\n    for model in self.models():\n        if model:\n            break\n    else:\n        self.skipTest("why")',
        (CONDITIONAL, "guard", "why", "not (for self.models() and model)"),
    ),
    (
        'def test_forward(self):\n    try:\n        import missing\n    except ImportError:\n        return\n    self.skipTest("why")',
        (CONDITIONAL, "guard", "why", "no ImportError"),
    ),
    (
        'def test_forward(self):\n    try:\n        import missing\n    except ImportError:\n        pass\n    else:\n        self.skipTest("why")',
        (CONDITIONAL, "guard", "why", "no exception"),
    ),
    (
        'def test_forward(self):\n    try:\n        raise ValueError\n    except ValueError:\n        self.skipTest("why")',
        (CONDITIONAL, "guard", "why", "except ValueError"),
    ),
    (
        'def test_forward(self):\n    try:\n        raise ValueError\n    except ValueError:\n        return\n    self.skipTest("why")',
        ("ran", "", "", ""),
    ),
    (
        'def test_forward(self):\n    match sys.argv:\n        case []:\n            return\n    self.skipTest("why")',
        (CONDITIONAL, "guard", "why", "not case []"),
    ),
    (
        'def test_forward(self):\n    try:\n        self.skipTest("why")\n    finally:\n        return',
        ("ran", "", "", ""),
    ),
    (
        'def test_forward(self):\n    OFF = sys.flags.quiet\n    if OFF:\n        self.skipTest("why")',
        (CONDITIONAL, "guard", "why", "OFF"),
    ),
    (
        'def test_forward(self):\n    for OFF, _ in self.pairs():\n        if OFF:\n            self.skipTest("why")',
        (CONDITIONAL, "guard", "why", "for self.pairs() and OFF"),
    ),
    (
        'def test_forward(self):\n    self.check(\n        OFF=1,\n    )\n    if not OFF:\n        self.skipTest("why")',
        (SKIPPED, "guard", "why", ""),
    ),
    (
        'kinds = {"forward": 1}\n\ndef test_forward(self):\n    if "forward" in self.kinds:\n        self.skipTest("why")',
        (SKIPPED, "guard", "why", ""),
    ),
    (
        'kinds = {"forward": sys.flags}\n\ndef test_forward(self):\n    if "backward" not in self.kinds:\n        self.skipTest("why")',
        (SKIPPED, "guard", "why", ""),
    ),
    (
        'kinds = {sys.argv[0]: 1}\n\ndef test_forward(self):\n    if "forward" in self.kinds:\n        self.skipTest("why")',
        (CONDITIONAL, "guard", "why", '"forward" in self.kinds'),
    ),
    (
        '@unittest.skip({"m": "why"}["m"])\ndef test_forward(self): pass',
        (SKIPPED, "decorator", "why", ""),
    ),
    (
        '@unittest.skip("{0[n]}".format({"m": "why"}))\ndef test_forward(self): pass',
        (SKIPPED, "decorator", '{....format({"m": "why"})}', ""),
    ),
    (
        'def test_forward(self):\n    if n := sys.argv: self.skipTest("why")',
        (CONDITIONAL, "guard", "why", "n := sys.argv"),
    ),
    (
        '@pytest.mark.parametrize("x", [pytest.param(1, marks=pytest.mark.skipif(sys.flags.quiet, reason="why"))])\ndef test_forward(self, x): pass',
        (CONDITIONAL, "decorator", "why", "for some parameters and sys.flags.quiet"),
    ),
    (
        (
            "def test_forward(self):\n    self._one()\n\ndef _one(self):\n    self._two()\n\n"  # a helper of a helper
            "def _two(self):\n    self.skipTest('why')"
        ),
        (SKIPPED, "body", "why", ""),
    ),
    (
        "async def test_forward(self):\n    await self._one()\n\nasync def _one(self):\n    self.skipTest('why')",
        (SKIPPED, "body", "why", ""),
    ),
    ("def test_forward(self):\n    needs(24)", (SKIPPED, "guard", "needs 24 GB", "")),
    ("def test_forward(self):\n    needs(4)", ("ran", "", "", "")),
    (  # a function that calls a function
        "def test_forward(self):\n    needs_much()\n    assert 1",
        (SKIPPED, "guard", "needs 24 GB", ""),
    ),
    ("def test_forward(self):\n    needs_gpu(test=self)", (CONDITIONAL, "guard", "no GPU", "not sys.flags.dev_mode")),
    ("test_forward = None", ("vanished", "vanished", "test_forward = None", "")),
    ("test_forward: bool = False", ("vanished", "vanished", "test_forward = False", "")),
    ("@property\ndef test_forward(self): return 1", ("vanished", "vanished", "", "")),
    ("test_forward = ModelTesterMixin.test_attentions", ("ran", "", "", "")),
    ('test_forward = unittest.skip("why")(ModelTesterMixin.test_forward)', (SKIPPED, "decorator", "why", "")),
    ("assert 1", ("ran", "", "", "")),
]


NAMES = """
WHY = "reasons"
OFF = False

def needs(amount):
    if amount > 8:
        pytest.skip(f"needs {amount} GB")

def needs_much():
    needs(24)
"""


def state_of(root, test="test_forward", cls="MTest", model="m"):
    for case in scan(root)[test].cases:
        if (case.model, case.cls) == (model, cls):
            return case.state[:4]
    return None


@pytest.mark.parametrize(("method", "expected"), METHODS)
def test_method(repo, method, expected):
    indented = "\n".join(f"    {line}" for line in method.splitlines())
    root = repo(m=f"{NAMES}\nclass MTest(ModelTesterMixin, unittest.TestCase):\n{indented}\n")

    assert state_of(root) == expected


CLASSES = [
    (
        '@unittest.skip("why")\nclass MTest(ModelTesterMixin, unittest.TestCase): pass',
        (SKIPPED, "class-decorator", "why", ""),
    ),
    (
        '@unittest.skip("why")\nclass Base(ModelTesterMixin, unittest.TestCase): pass\nclass MTest(Base): pass',
        (SKIPPED, "class-decorator", "why", ""),
    ),
    (
        'class MTest(ModelTesterMixin, unittest.TestCase):\n    pytestmark = pytest.mark.skip(reason="why")',
        (SKIPPED, "class-decorator", "why", ""),
    ),
    (
        'pytestmark = [pytest.mark.skip(reason="why")]\nclass MTest(ModelTesterMixin, unittest.TestCase): pass',
        (SKIPPED, "class-decorator", "why", ""),
    ),
    *(
        (
            f"{head}\nclass MTest(ModelTesterMixin, unittest.TestCase):\n    {body}",
            (SKIPPED, "class-decorator", "why", ""),
        )
        for head, body in (
            ("", 'import pytest as pt\n    pytestmark = pt.mark.skip("why")'),
            ("", 'mark = pytest.mark.skip("why")\n    pytestmark = mark'),
            ("from ...testing_utils import skip_all", "pytestmark = skip_all"),
            ("", "from ...testing_utils import skip_all as pytestmark"),
            ("from ...testing_utils import skip_all as pytestmark", "pass"),
            ("", 'pytestmark = [pytest.mark.foo] + [pytest.mark.skip("why")]'),
        )
    ),
    (
        "@require_gpu\nclass MTest(ModelTesterMixin, unittest.TestCase): pass",
        (CONDITIONAL, "class-decorator", "test requires a GPU", "require_gpu"),
    ),
    (
        "@require_gpu\n@slow\nclass MTest(ModelTesterMixin, unittest.TestCase):\n    @slow\n    @odd\n    def test_forward(self): assert 1",
        (CONDITIONAL, "decorator", "test is slow", "slow or require_gpu"),
    ),
    (
        "@require_gpu\nclass MTest(ModelTesterMixin, unittest.TestCase):\n    def test_forward(self): pass",
        ("empty", "empty", "", "require_gpu"),
    ),
    (
        '@require_gpu\nclass MTest(ModelTesterMixin, unittest.TestCase):\n    @unittest.skip("why")\n    def test_forward(self): pass',
        (SKIPPED, "decorator", "why", ""),
    ),
    (
        '@unittest.skip("why")\nclass MTest(ModelTesterMixin, unittest.TestCase):\n    test_forward = None',
        ("vanished", "vanished", "test_forward = None", ""),
    ),
    (
        'class MTest(ModelTesterMixin, unittest.TestCase):\n    def setUp(self):\n        self.skipTest("why")',
        (SKIPPED, "body", "why", ""),
    ),
    (
        (
            "def setUpModule():\n    needs_server()\n\ndef needs_server():\n    raise unittest.SkipTest('why')\n\n"
            "class MTest(ModelTesterMixin, unittest.TestCase): pass"
        ),
        (SKIPPED, "body", "why", ""),
    ),
    (
        (
            "def setup_module(module):\n    if sys.flags.quiet:\n        pytest.skip('why')\n\n"
            "class MTest(ModelTesterMixin, unittest.TestCase): pass"
        ),
        (CONDITIONAL, "guard", "why", "sys.flags.quiet"),
    ),
    (  # pytest calls the first of the two alone
        (
            "def setup_module():\n    pytest.skip('why')\n\ndef setUpModule():\n    assert sys\n\n"
            "class MTest(ModelTesterMixin, unittest.TestCase): pass"
        ),
        ("ran", "", "", ""),
    ),
    (  # and none that is a fixture
        (
            "@pytest.fixture\ndef setup_module():\n    pytest.skip('why')\n\n"
            "class MTest(ModelTesterMixin, unittest.TestCase): pass"
        ),
        ("ran", "", "", ""),
    ),
    (
        ("setUpModule = None\n\nclass MTest(ModelTesterMixin, unittest.TestCase): pass"),
        ("ran", "", "", ""),
    ),
    ("class MTest(ModelTesterMixin, unittest.TestCase):\n    __test__ = False", None),
    ("class MTest(ModelTesterMixin): pass", None),
    (
        "Base = ModelTesterMixin if sys.flags.dev_mode else object\nclass MTest(Base, unittest.TestCase): pass",
        ("ran", "", "", ""),
    ),
    (
        "if sys.flags.dev_mode:\n    pass\nelse:\n    class MTest(ModelTesterMixin, unittest.TestCase): pass",
        ("ran", "", "", ""),
    ),
    (
        "try:\n    class MTest(ModelTesterMixin, unittest.TestCase):\n        test_forward = 0\nexcept NameError: pass",
        ("vanished", "vanished", "test_forward = 0", ""),
    ),
    ("class MTest(ModelTesterMixin, unittest.TestCase): pass\ndel MTest", None),
    (
        "class Own:\n    test_forward = None\nclass MTest(ModelTesterMixin, Own, unittest.TestCase): pass",
        ("ran", "", "", ""),
    ),
    (
        "class Own:\n    test_forward = None\nclass MTest(Own, ModelTesterMixin, unittest.TestCase): pass",
        ("vanished", "vanished", "test_forward = None", ""),
    ),
    (
        "class A(ModelTesterMixin): pass\nclass B(ModelTesterMixin):\n    test_forward = None\nclass MTest(A, B, unittest.TestCase): pass",
        ("vanished", "vanished", "test_forward = None", ""),
    ),
    ("from unittest import *\nclass MTest(ModelTesterMixin, TestCase): pass", ("ran", "", "", "")),
    ("import unittest.case as uc\nclass MTest(ModelTesterMixin, uc.TestCase): pass", ("ran", "", "", "")),
]


@pytest.mark.parametrize(("source", "expected"), CLASSES)
def test_class(repo, source, expected):
    other = "\nclass OtherTest(ModelTesterMixin, unittest.TestCase): pass\n"
    root = repo(m=f"{source}\n{other}")

    assert state_of(root) == expected


GUARDS = [
    ("has_attentions = False", (SKIPPED, "guard", "no attentions", "")),
    ("has_attentions = True", ("ran", "", "", "")),
    ("has_attentions = not True", (SKIPPED, "guard", "no attentions", "")),
    ("has_attentions = ()", (SKIPPED, "guard", "no attentions", "")),
    ("has_attentions = sys.flags.dev_mode", (CONDITIONAL, "guard", "no attentions", "not self.has_attentions")),
    (
        "if sys.flags.dev_mode:\n        has_attentions = False",
        (CONDITIONAL, "guard", "no attentions", "not self.has_attentions"),
    ),
    (
        "has_attentions = False\n    def setUp(self):\n        self.has_attentions = True",
        (CONDITIONAL, "guard", "no attentions", "not self.has_attentions"),
    ),
    (
        "@property\n    def has_attentions(self): return False",
        (CONDITIONAL, "guard", "no attentions", "not self.has_attentions"),
    ),
]


@pytest.mark.parametrize(("attribute", "expected"), GUARDS)
def test_guard_on_an_attribute(repo, attribute, expected):
    root = repo(m=f"class MTest(ModelTesterMixin, unittest.TestCase):\n    {attribute}\n")

    assert state_of(root, "test_attentions") == expected


EXPANDED = """
    from parameterized import parameterized

    class ModelTesterMixin:
        @parameterized.expand([("a",), ("b",)])
        def test_forward(self, name):
            assert name
"""
VARIANTS = [
    ("pass", ("ran", "", "", "")),
    (
        '@unittest.skip("why")\n    def test_forward_1_b(self): pass',
        (CONDITIONAL, "decorator", "why", "only test_forward_1_b"),
    ),
    ("test_forward_0_a = test_forward_1_b = None", ("vanished", "vanished", "test_forward_0_a = None", "")),
    (
        '@parameterized.expand([("a",), ("b",)])\n    @unittest.skip("why")\n    def test_forward(self, name): pass',
        (SKIPPED, "decorator", "why", ""),
    ),
    ('@unittest.skip("why")\n    def test_forward(self): pass', (CONDITIONAL, "decorator", "why", "only test_forward")),
    (
        '@parameterized.expand([("c",)])\n    @unittest.skip("why")\n    def test_forward(self, name): pass',
        (CONDITIONAL, "decorator", "why", "only test_forward_0_c"),
    ),
]


@pytest.mark.parametrize(("body", "expected"), VARIANTS)
def test_expanded_test(repo, body, expected):
    root = repo(EXPANDED, m=f"class MTest(ModelTesterMixin, unittest.TestCase):\n    {body}\n")

    assert state_of(root) == expected
    assert list(scan(root)) == ["test_forward"]


def test_body_indented_with_tabs_of_which_a_part_is_left_out(repo):
    body = """
	def test_forward(self):
		if OFF:
			x = 1
		elif sys.flags.quiet:
			self.skipTest("why")
"""
    root = repo(m=f"OFF = bool(sys.flags.quiet)\nclass MTest(ModelTesterMixin, unittest.TestCase):{body}")

    [case] = scan(root)["test_forward"].cases

    assert (case.state.state, case.state.reason) == ("conditional", "why")


def test_class_imported_from_another_model_is_collected_again(repo):
    root = repo(
        m='class MTest(ModelTesterMixin, unittest.TestCase):\n    @unittest.skip("why")\n    def test_forward(self): pass\n',
        n="from ..m.test_modeling_m import MTest as Base\nclass NTest(Base): pass\n",
    )

    report = scan(root)["test_forward"].to_dict()
    assert report["models_skipped"] == ["m", "n"]
    assert {(entry["model"], entry["class"]) for entry in report["tests"]} == {
        ("m", "MTest"),
        ("n", "Base"),
        ("n", "NTest"),
    }
    assert {entry["file"] for entry in report["tests"]} == {"tests/models/m/test_modeling_m.py"}


def test_what_a_model_defines_for_itself_is_no_common_test(repo):
    root = repo(m="class MTest(ModelTesterMixin, unittest.TestCase):\n    def test_own(self): pass\n")

    assert set(scan(root)) == {"test_attentions", "test_forward"}


def test_models_of_a_test_by_what_they_do_with_it(repo):
    test = "class {0}Test(ModelTesterMixin, unittest.TestCase):\n    {1}\n"
    skip = '@unittest.skip("why")\n    def test_forward(self): pass'
    root = repo(
        always=test.format("A", skip),
        vanish=test.format("V", "test_forward = None"),
        both=test.format("B", skip) + test.format("C", "test_forward = None"),
        part=test.format("P", skip) + test.format("Q", "pass"),
        slowly=test.format("S", "@slow\n    def test_forward(self): assert 1"),
        hollow=test.format("H", "def test_forward(self): pass"),
        runs=test.format("R", "pass"),
        none="class NTest(unittest.TestCase): pass\n",
    )

    report = scan(root)["test_forward"].to_dict()
    assert {key: value for key, value in report.items() if key != "tests"} == {
        "origin": "common",
        "models_ran": ["hollow", "part", "runs", "slowly"],
        "models_skipped": ["always", "both", "vanish"],
        "skipped_proportion": 0.4286,
        "reasons_skipped": ["always: why", "both: why", "both: test_forward = None", "vanish: test_forward = None"],
        "models_partially_skipped": ["part"],
        "models_conditional": ["slowly"],
        "models_vanished": ["both", "vanish"],
        "models_empty": ["hollow"],
    }
    assert report["tests"][0] == {
        "model": "always",
        "class": "ATest",
        "state": "skipped",
        "form": "decorator",
        "reason": "why",
        "condition": "",
        "file": "tests/models/always/test_modeling_always.py",
        "line": 8,
    }


def test_file_for_each_model_and_a_mixin_in_the_models_directory(repo):
    root = repo(
        m="",
        extra={
            "tests/models/testing_utils/common.py": "class ModelTesterMixin:\n    def test_config(self): assert 1\n",
            "tests/models/unets/test_models_unet_2d.py": "import pytest\nfrom ..testing_utils.common import ModelTesterMixin\n\nclass TestUNet(ModelTesterMixin):\n    @pytest.mark.skip('why')\n    def test_config(self): pass\n",
        },
    )

    assert scan(root)["test_config"].models_skipped == ["unet_2d"]


def test_nested_tests_directory(repo):
    root = repo(
        extra={
            "tests/transformers/tests/test_modeling_common.py": "class ModelTesterMixin:\n    def test_config(self): assert 1\n",
            "tests/transformers/tests/models/m/test_modeling_m.py": "import unittest\nfrom ...test_modeling_common import ModelTesterMixin\n\nclass MTest(ModelTesterMixin, unittest.TestCase):\n    test_config = None\n",
        },
    )

    assert scan(root)["test_config"].models_skipped == ["m"]


def test_unknown_base_is_reported_and_a_well_known_one_is_not(repo):
    root = repo(
        m="from elsewhere import Strange\nfrom transformers.testing_utils import TestCasePlus\nclass MTest(ModelTesterMixin, Strange, TestCasePlus): pass\n"
    )

    result = scan(root)
    assert result.unresolved_bases == ["tests/models/m/test_modeling_m.py:9: Strange, a base of MTest"]
    assert result["test_forward"].models_ran == ["m"]


WEAK = [
    "try:\n    import missing\nexcept ImportError:\n    OFF = False",
    "with contextlib.suppress(ImportError):\n    import missing\n    OFF = True",
    "if sys.flags.quiet:\n    OFF = False",
    "if sys.flags.quiet:\n    pass\nelse:\n    OFF = False",
]


@pytest.mark.parametrize("again", WEAK)
def test_constant_that_may_be_bound_again_decides_nothing(repo, again):
    method = "    @unittest.skipIf(OFF, 'why')\n    def test_forward(self): pass\n"
    root = repo(m=f"OFF = True\n{again}\n\nclass MTest(ModelTesterMixin, unittest.TestCase):\n{method}")

    assert state_of(root) == (CONDITIONAL, "decorator", "why", "OFF")


def test_attribute_that_a_method_sets_on_the_class_decides_nothing(repo):
    setup = "    @classmethod\n    def setUpClass(cls):\n        cls.has_attentions = sys.flags.quiet\n"
    root = repo(m=f"class MTest(ModelTesterMixin, unittest.TestCase):\n{setup}")

    assert state_of(root, "test_attentions") == (CONDITIONAL, "guard", "no attentions", "not self.has_attentions")


def test_set_up_of_a_class_that_is_no_testcase_is_not_called(repo):
    setup = "    def setUp(self):\n        self.skipTest('why')\n"
    root = repo(
        m=f"class TestM(ModelTesterMixin):\n{setup}\nclass MTest(ModelTesterMixin, unittest.TestCase):\n{setup}"
    )

    assert state_of(root, cls="TestM") == ("ran", "", "", "")
    assert state_of(root) == (SKIPPED, "body", "why", "")


def test_skip_on_what_a_test_calls_is_where_it_stands(repo):
    common = """
        class ModelTesterMixin:
            def test_forward(self):
                assert True

            def test_again(self):
                self.test_forward()
    """
    method = "    @unittest.skip('why')\n    def test_forward(self): pass\n"
    root = repo(common=common, m=f"class MTest(ModelTesterMixin, unittest.TestCase):\n{method}")

    [case] = scan(root)["test_again"].cases
    assert case.state.reason == "why"
    assert case.state.file == "tests/models/m/test_modeling_m.py"


def test_class_or_function_in_a_reason_reads_as_its_source(repo):
    method = "    @unittest.skip(f'{Own} and {own} of {WHY}')\n    def test_forward(self): pass\n"
    root = repo(
        m=f"WHY = 'x'\nclass Own: pass\ndef own(): pass\n\nclass MTest(ModelTesterMixin, unittest.TestCase):\n{method}"
    )

    assert state_of(root) == (SKIPPED, "decorator", "{Own} and {own} of x", "")


_HIDING = {
    "no classes": ("all_model_classes = ()", "all_model_classes is empty"),
    "caught": (
        """
        all_model_classes = (int,)
        def test_classes(self):
            try:
                super().test_classes()
            except Exception:
                pass
        """,
        "what its super method raises is caught",
    ),
    "expected failure": (
        """
        all_model_classes = (int,)
        @unittest.expectedFailure
        def test_classes(self):
            super().test_classes()
        """,
        "unittest.expectedFailure",
    ),
    "expected error": (
        """
        all_model_classes = (int,)
        def test_classes(self):
            with self.assertRaises(Exception):
                super().test_classes()
        """,
        "its super method is expected to fail",
    ),
}
_COMMON_CLASSES = """
    class ModelTesterMixin:
        all_model_classes = ()
        def test_classes(self):
            for each in self.all_model_classes:
                assert each
"""


def _hiding(body):
    head = "import unittest\nfrom ...test_modeling_common import ModelTesterMixin\n"
    return (
        f"{head}class MTest(ModelTesterMixin, unittest.TestCase):\n{textwrap.indent(textwrap.dedent(body), '    ')}\n"
    )


@pytest.mark.parametrize("how", _HIDING)
def test_test_that_cannot_fail_is_empty_and_says_why(written, how):
    body, reason = _HIDING[how]
    root = written(
        {
            "tests/test_modeling_common.py": _COMMON_CLASSES,
            "tests/models/m/test_modeling_m.py": _hiding(body),
            "tests/models/n/test_modeling_n.py": _hiding("all_model_classes = (int,)").replace("MTest", "NTest"),
        }
    )

    cases = {case.model: case.state for case in scan(root)["test_classes"].cases}

    assert (cases["m"].state, cases["m"].reason) == ("empty", reason)
    assert cases["n"].state == "ran"


@pytest.mark.parametrize(
    "body",
    [
        "try:\n    super().test_classes()\nexcept ValueError:\n    pass",
        "try:\n    super().test_classes()\nexcept Exception:\n    raise",
        "try:\n    super().test_classes()\nexcept Exception as error:\n    self.assertIn('x', str(error))",
        "with self.assertRaises(ValueError):\n    self.run_it(None)",
        "with self.subTest():\n    super().test_classes()",
    ],
)
def test_test_that_can_fail_is_not_empty(written, body):
    method = "all_model_classes = (int,)\ndef test_classes(self):\n" + textwrap.indent(body, "    ")
    root = written(
        {
            "tests/test_modeling_common.py": _COMMON_CLASSES,
            "tests/models/m/test_modeling_m.py": _hiding(method),
        }
    )

    assert [case.state.state for case in scan(root)["test_classes"].cases] == ["ran"]


@pytest.mark.parametrize("line", ["globals()[name] = type(name, (), {})", 'Make("m", not_supported=["test_classes"])'])
def test_what_makes_tests_when_it_runs_is_named_and_fails_under_strict(written, capsys, line):
    root = written(
        {
            "tests/test_modeling_common.py": _COMMON_CLASSES,
            "tests/models/m/test_modeling_m.py": _hiding("all_model_classes = (int,)") + line + "\n",
        }
    )

    assert main(["--repo", str(root), "--no_cache"]) == 0
    assert f"  tests/models/m/test_modeling_m.py:5: {line}" in capsys.readouterr().err
    assert main(["--repo", str(root), "--strict"]) == 2
    assert "1 line(s) that could not be read, named above, with --strict." in capsys.readouterr().err
