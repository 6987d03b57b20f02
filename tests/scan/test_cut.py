"""The lexical cut, the quick reading of expressions and the cut of bodies, each held to libcst."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_tfdebug.scan.bodies import cut_body
from pytest_tfdebug.scan.cut import cut
from pytest_tfdebug.scan.errors import BadSourceError
from pytest_tfdebug.scan.exact import exact
from pytest_tfdebug.scan.exact_bodies import exact_body
from pytest_tfdebug.scan.facts import Class, Function, Mention
from pytest_tfdebug.scan.quick import quick
from pytest_tfdebug.scan.syntax import parse

SETTINGS = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))

NAMES = st.sampled_from(["a", "test_a", "test_b", "Base", "unittest", "flag", "has_attentions"])
DOTTED = st.builds(".".join, st.lists(NAMES, min_size=1, max_size=3))
STRINGS = st.sampled_from(
    [
        '"text"',
        "'it is'",
        '"it\'s (not"',
        "'a # b'",
        '"""long\n    class X: pass\n"""',
        "r'\\d'",
        'f"a {flag} b"',
        '"x" "y"',
        "'\\''",
        "b'#'",
    ]
)
ATOMS = st.one_of(DOTTED, STRINGS, st.sampled_from(["1", "-2.5", "None", "True", "()", "...", "[]", "{}"]))
EXPRESSIONS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.builds("{}({}, key={})".format, DOTTED, inner, inner),
        st.builds("{}(\n        {},  # why: {{\n    )".format, DOTTED, inner),
        st.builds("({}, {})".format, inner, inner),
        st.builds("[\n{},\n]".format, inner),
        st.builds("{{{}: {}}}".format, ATOMS, inner),
        st.builds("not {}".format, inner),
        st.builds("({} if {} else {})".format, inner, inner, inner),
        st.builds("{} == {}".format, ATOMS, ATOMS),
        st.builds("({} and {})".format, inner, inner),
        st.builds("(lambda: {})".format, inner),
    ),
    max_leaves=5,
)
SIMPLE = st.one_of(
    st.builds("{} = {}".format, NAMES, EXPRESSIONS),
    st.builds("{} = {} = {}".format, NAMES, NAMES, ATOMS),
    st.builds("{}: bool = {}".format, NAMES, ATOMS),
    st.builds("{}, {} = {}, {}".format, NAMES, NAMES, ATOMS, ATOMS),
    st.builds("{} += {}".format, NAMES, ATOMS),
    st.builds("{}, *{} = {}, {}".format, NAMES, NAMES, ATOMS, ATOMS),
    st.builds("[{}] = [{}]".format, NAMES, ATOMS),
    st.builds("({}, {}) = {}, {}".format, NAMES, NAMES, ATOMS, ATOMS),
    st.builds("[{}, {}] = {}, {}".format, NAMES, NAMES, ATOMS, ATOMS),
    st.builds("{}, = {},".format, NAMES, ATOMS),
    st.builds("({},) = {}".format, NAMES, ATOMS),
    st.builds("{} = 1; {} = {}".format, NAMES, NAMES, ATOMS),
    st.builds("import {} as {}".format, DOTTED, NAMES),
    st.builds("import {}, {}".format, DOTTED, DOTTED),
    st.builds("from ..{} import ({} as {},\n  {},  # and\n)".format, DOTTED, NAMES, NAMES, NAMES),
    st.builds("from . import {}".format, NAMES),
    st.builds("from {} import *".format, DOTTED),
    st.builds("{}({})".format, DOTTED, EXPRESSIONS),
    st.builds("self.{} = {}".format, NAMES, ATOMS),
    st.builds("self.skipTest({})".format, ATOMS),
    st.builds("raise unittest.SkipTest({})".format, ATOMS),
    st.builds("assert {}, \\\n    {}".format, ATOMS, ATOMS),
    st.builds('"""Doc, and\n@unittest.skip\ndef test_a(self): pass\n"""'.format),
    st.just("pass"),
    st.just("..."),
)
RETURNS = st.builds("return {}".format, EXPRESSIONS)


def indented(text):
    """Indent the lines of a statement, but not those inside a long string, whose content would change."""
    lines, inside = [], False
    for line in text.split("\n"):
        lines.append(line if inside or not line else f"    {line}")
        inside ^= line.count('"""') % 2 == 1
    return "\n".join(lines)


def block(statements):
    return "\n".join(indented(statement) for statement in statements)


def bodies(inner):
    return st.builds(block, st.lists(inner, min_size=1, max_size=3))


def compounds(inner, *, with_return):
    statements = st.one_of(inner, RETURNS) if with_return else inner
    body = bodies(statements)
    return st.one_of(
        st.builds("if {}:\n{}".format, EXPRESSIONS, body),
        st.builds("if {}:  # a comment: (\n{}\nelif {}:\n{}\nelse:\n{}".format, ATOMS, body, ATOMS, body, body),
        st.builds("try:\n{}\nexcept {} as error:\n{}\nfinally:\n{}".format, body, DOTTED, body, body),
        st.builds("with {} as a:\n{}".format, ATOMS, body),
        st.builds("for a in {}:\n{}".format, EXPRESSIONS, body),
        st.builds("while {}: pass".format, ATOMS),
        st.builds("if {} := {}: {} = 1".format, NAMES, ATOMS, NAMES),
    )


DECORATORS = st.lists(
    st.builds("@{}  # note\n".format, st.one_of(DOTTED, st.builds("{}({})".format, DOTTED, EXPRESSIONS))), max_size=2
).map("".join)
FUNCTION_BODIES = st.recursive(
    st.one_of(SIMPLE.filter(lambda text: "import *" not in text), RETURNS),
    lambda inner: compounds(inner, with_return=True),
    max_leaves=6,
)
FUNCTIONS = st.builds(
    "{}def {}(self, a={}, *args: 'b', **kwargs) -> None:\n{}".format,
    DECORATORS,
    NAMES,
    EXPRESSIONS,
    bodies(FUNCTION_BODIES),
)
MEMBERS = st.one_of(SIMPLE.filter(lambda text: "import *" not in text), FUNCTIONS)
CLASSES = st.builds(
    "{}class {}({}, unittest.TestCase, metaclass={}):\n{}".format,
    DECORATORS,
    NAMES,
    DOTTED,
    DOTTED,
    bodies(st.one_of(MEMBERS, compounds(MEMBERS, with_return=False))),
)
MODULES = st.lists(
    st.one_of(
        SIMPLE,
        FUNCTIONS,
        CLASSES,
        compounds(st.one_of(SIMPLE, CLASSES).filter(lambda text: "import *" not in text), with_return=False),
    ),
    min_size=1,
    max_size=4,
).map(lambda parts: "\n\n".join(parts) + "\n")


def functions(names):
    for binding in names.values():
        if isinstance(binding, Function) and binding.body:
            yield binding
        elif isinstance(binding, Class):
            yield from functions(binding.members)


@SETTINGS
@given(MODULES)
def test_the_cut_of_a_file_finds_what_libcst_finds(text):
    try:
        expected = exact(text)
    except BadSourceError:  # such as a return outside a function
        return

    assert cut(text) == expected


@SETTINGS
@given(bodies(FUNCTION_BODIES))
def test_the_cut_of_a_body_finds_what_libcst_finds(body):
    text = f"def test_a(self):\n{body}\n"
    found = cut(text)
    mentions = Mention.of(found.names)

    for function in functions(found.names):
        assert cut_body(function, mentions) == exact_body(function, mentions)


@SETTINGS
@given(EXPRESSIONS)
def test_a_quick_reading_means_what_libcst_says(text):
    form = quick(text)

    assert form is None or form == parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "any(a.b for a in c)",
        "any (a for a in c)",
        "any((a for a in c))",
        "(any)(\n    a\n    for a in c\n)",
        "f(*a, b, key=c, **d)",
        "f(key=b, *a)",
        "f((1, 2), ((a)), é='ü')",
        "a[1:]",
        "a.b[0].c(1)[d]",
        "a or b or (c or d) and not -1",
        "-2 ** 2",
        "a < b is not c not in d",
        "f'{a}' ''",
        "'' f'{a.b[0].c!r:>3} of' ' two'",
        "f'{len(a)} {{}}'",
        "{**a, 'b': 1}",
        "[*a, {1, 2}, {}]",
        "1j",
        "(yield)",
        "0x10 + 1_000.5e-3",
        "lambda a, *b: a if b else ...",
        "(A, b.C,) if f() else ()",
        "(A) if a.f() else []",
        "(\n    (A, B)\n    if f()\n    else ()\n)",
        "{'a-b': A, \"c\": b.C,} if f() else {}",
        "(\n    {\n        'a': A\n    }\n    if f()\n    else None\n)",
        "(None, True) if f() else ()",
        "(A, B) if None() else ()",
        "{'a': None} if f() else {}",
        "(A, B) if f(1) else ()",
        "((A, B), C) if f() else ()",
        "A, B if f() else ()",
        "((A, B) if f() else (), 1)",
    ],
)
def test_a_quick_reading_knows_all_kinds_of_expressions(text):
    assert quick(text) == parse(text)


SPACES = st.sampled_from(["", " ", "\n    "])
ITEMS = st.one_of(DOTTED, st.builds("'{}'{}:{}{}".format, NAMES, SPACES, SPACES, DOTTED))
CHOICES = st.builds(
    "{}{}{}{}{}{} if {}(){} else {}{}".format,
    st.sampled_from(["(", "{", "((", "(\n{", "["]),
    SPACES,
    st.lists(ITEMS, min_size=1, max_size=3).map(" , ".join),
    st.sampled_from(["", ",", " ,"]),
    SPACES,
    st.sampled_from([")", "}", "]"]),
    DOTTED,
    SPACES,
    st.sampled_from(["()", "[]", "{}", "None", "A"]),
    st.sampled_from(["", ")", "\n)"]),
)


@SETTINGS
@given(CHOICES)
def test_a_quick_reading_of_a_choice_means_what_libcst_says(text):
    form = quick(text)

    assert form is None or form == parse(text)


@pytest.mark.parametrize("text", ["a[b, c]", "f'{ a+b }'", "a b"])
def test_a_quick_reading_gives_up_on_what_only_libcst_tells(text):
    assert quick(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "x = (\n1,\n)\ny = 2\n",
        "class A(\nB,\n):\n    x = [\n1\n]\n    y = 1\n",
        "x = 'a' \\\n    'b'\nclass A: pass\n",
        'x = """\nclass B:\n    y = 1\n"""\n',
        "class A:\n\n    # comment\n\n    @a\n\n    # another\n    def test_a(self): pass\n    x = 1\n",
        "if a: x = 1\nelse: x = 2\n",
        "class A[T](B[T]):\n    x: int\n    y: int = 1\n",
        "match = 1\ncase = match\n",
        "match a:\n    case 1:\n        x = 1\n    case _:\n        x = 2\n",
        "async def test_a(self):\n    self.skipTest('a')\n",
        "def f(a, /, b, *, c): return skip(a)\n",
        "class A:\n\tx = 1\n\tdef test_a(self):\n\t\tself.skipTest('tab')\n",
        "x = {'a': [1, (2, '}')]}\ny = f'{x[\"a\"]}'\n",
        "from a import (  # (\n    b,  # )\n    c as d,\n)\n",
        "def test_a(self):\n    '''\n    doc'''\n",
        "test_a = lambda self: self.skipTest('x')\n",
        "class A: test_a = None; test_b = 1\n",
        "a.b = c.d[0] = 1\n",
        "x: 'int' = 1\nx.y: int = 2\n",
        "if TYPE_CHECKING:\n    from a import b\nelse:\n    b = 1\n",
        "def test_a(self):\n    self.skipTest('a')\n\ntest_a = skip(test_a)\ntest_a = slow(test_a)\n",
    ],
)
def test_the_cut_of_source_that_is_laid_out_oddly(text):
    assert cut(text) == exact(text)


@pytest.mark.parametrize(
    "text",
    ["x = 'a\n", "x = (1\n", "class :\n    pass\n", "def (a): pass\n", "class A(B:\n    pass\n", "if x\n    y = 1\n"],
)
def test_source_that_is_cut_wrong_is_refused(text):
    with pytest.raises(BadSourceError):
        cut(text)
    with pytest.raises(BadSourceError):
        exact(text)
