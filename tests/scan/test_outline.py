"""A file cut into statements and read piece by piece binds what libcst finds in the whole of it."""

import libcst as cst
import pytest
from hypothesis import given
from hypothesis import strategies as st
from libcst.metadata import MetadataWrapper, PositionProvider

from pytest_tfdebug.scan.errors import BadSourceError
from pytest_tfdebug.scan.read import syntax
from pytest_tfdebug.scan.read.bindings import BoundFunction, BoundValue, Import
from pytest_tfdebug.scan.read.outline import Outline, blank, uncommented
from pytest_tfdebug.scan.read.reader import check, read

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


def cut(text):
    def refuse(error, line):
        raise error

    return read(text, refuse, lambda dotted: True)


def facts(binding):
    """Return what a binding is, as the tree of the whole file tells it too."""
    if isinstance(binding, Import):
        return ("import", binding.module, binding.name, binding.line)
    if isinstance(binding, BoundValue):
        return ("value", code(syntax.expression(binding.text)) if binding.text else "", binding.line)
    decorators = [(code(syntax.expression(each.text)), each.line) for each in binding.decorators]
    if isinstance(binding, BoundFunction):
        return ("def", binding.line, decorators, binding.is_empty, binding.params)
    bases = [code(base) for base in binding.bases]
    return ("class", binding.line, decorators, bases, {name: facts(each) for name, each in binding.members.items()})


def code(node):
    return "".join(uncommented(cst.Module([]).code_for_node(node)).split()).strip("()").removesuffix(",")


class Whole:
    """What a file binds, from the tree of all of it, with libcst's positions."""

    def __init__(self, text):
        wrapper = MetadataWrapper(cst.parse_module(text), unsafe_skip_copy=True)
        self.module, self.positions = wrapper.module, wrapper.resolve(PositionProvider)

    def line(self, node):
        return self.positions[node].start.line

    def names(self, body, names, *, weak):
        for node in body:
            if isinstance(node, (cst.FunctionDef, cst.ClassDef)):
                self.bind(names, node.name.value, self.defined(node), weak=weak)
            elif isinstance(node, cst.SimpleStatementLine):
                for small in node.body:
                    self.simple(small, names, weak=weak)
            else:
                self.compound(node, names, weak=weak)
        return names

    def suite(self, suite, names, *, weak):
        if isinstance(suite, cst.IndentedBlock):
            self.names(suite.body, names, weak=weak)
        else:
            for small in suite.body:
                self.simple(small, names, weak=weak)

    def compound(self, node, names, *, weak):
        if isinstance(node, cst.Match):
            for case in node.cases:
                self.suite(case.body, names, weak=True)
            return
        is_never = isinstance(node, cst.If) and code(node.test) == "TYPE_CHECKING"
        if not is_never:
            self.suite(node.body, names, weak=weak)
        for part in getattr(node, "handlers", ()):
            self.suite(part.body, names, weak=True)
        orelse = getattr(node, "orelse", None)
        while orelse is not None:
            self.suite(orelse.body, names, weak=weak or not is_never)
            orelse = getattr(orelse, "orelse", None)
        if getattr(node, "finalbody", None) is not None:
            self.suite(node.finalbody.body, names, weak=weak)

    @staticmethod
    def bind(names, name, fact, *, weak):
        if name not in names or not weak:
            names.pop(name, None)
            names[name] = fact

    def simple(self, node, names, *, weak):
        line = self.line(node)
        if isinstance(node, cst.Import):
            for alias in node.names:
                module, bound = alias.evaluated_name, alias.evaluated_alias
                first = module.partition(".")[0]
                self.bind(names, bound or first, ("import", module if bound else first, "", line), weak=weak)
        elif isinstance(node, cst.ImportFrom) and not isinstance(node.names, cst.ImportStar):
            base = "." * len(node.relative) + (syntax.dotted(node.module) if node.module else "")
            for alias in node.names:
                name = alias.evaluated_name
                self.bind(names, alias.evaluated_alias or name, ("import", base, name, line), weak=weak)
        elif isinstance(node, cst.AugAssign) and isinstance(node.target, cst.Name):
            self.bind(names, node.target.value, ("value", "", line), weak=weak)
        elif isinstance(node, cst.AnnAssign) and isinstance(node.target, cst.Name) and node.value:
            self.bind(names, node.target.value, ("value", code(node.value), line), weak=weak)
        for target in node.targets if isinstance(node, cst.Assign) else ():
            self.assigned(target.target, node.value, line, names, weak=weak)

    def assigned(self, target, value, line, names, *, weak):
        if isinstance(target, cst.Name):
            self.bind(names, target.value, ("value", code(value), line), weak=weak)
        elif isinstance(target, (cst.Tuple, cst.List)):
            has_star = any(isinstance(each, cst.StarredElement) for each in target.elements)
            same = isinstance(value, cst.Tuple) and len(value.elements) == len(target.elements) and not has_star
            for index, each in enumerate(target.elements):
                if isinstance(each.value, cst.Name):
                    text = code(value.elements[index].value) if same else ""
                    self.bind(names, each.value.value, ("value", text, line), weak=weak)

    def defined(self, node):
        line = self.line(node.name)
        decorators = [(code(each.decorator), self.line(each)) for each in node.decorators]
        if isinstance(node, cst.ClassDef):
            names = {}
            self.suite(node.body, names, weak=False)
            return ("class", line, decorators, [code(base.value) for base in node.bases], names)
        star = [node.params.star_arg] if isinstance(node.params.star_arg, cst.Param) else []
        kwarg = [node.params.star_kwarg] if node.params.star_kwarg else []
        params = [*node.params.posonly_params, *node.params.params, *star, *node.params.kwonly_params, *kwarg]
        return ("def", line, decorators, is_empty(node), tuple(each.name.value for each in params))


def is_empty(node):
    nothing = (cst.SimpleString, cst.FormattedString, cst.ConcatenatedString, cst.Ellipsis)

    def does_nothing(small):
        if isinstance(small, (cst.Expr, cst.Return)):
            value = small.value
            is_none = isinstance(value, cst.Name) and value.value == "None"
            return value is None or is_none or isinstance(value, nothing)
        return isinstance(small, cst.Pass)

    lines = [each.body if isinstance(each, cst.SimpleStatementLine) else [each] for each in node.body.body]
    return all(does_nothing(small) for line in lines for small in line)


def assert_same(text):
    whole = Whole(text)
    found = cut(text)

    assert {name: facts(each) for name, each in found.names.items()} == whole.names(whole.module.body, {}, weak=False)


@given(MODULES)
def test_file_read_in_pieces_binds_what_the_whole_binds(text):
    try:
        cst.parse_module(text)
    except cst.ParserSyntaxError:
        return

    assert_same(text)


@given(bodies(FUNCTION_BODIES))
def test_statements_of_a_function_have_the_lines_that_they_stand_on(body):
    text = f"class A:\n    x = 1\n    def test_a(self):\n{indented(body)}\n"
    try:
        whole = Whole(text)
    except cst.ParserSyntaxError:
        return
    function = cut(text).names["A"].members["test_a"]

    def leaving(tree, line):
        return [line(node) for node in syntax.walk(tree) if isinstance(node, (cst.Return, cst.Raise, cst.For, cst.Try))]

    expected = sorted(leaving(whole.module, whole.line))
    assert sorted(leaving(function.body.suite, lambda node: function.body.lines[id(node)])) == expected


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
def test_source_that_is_laid_out_oddly(text):
    assert_same(text)


@pytest.mark.parametrize(
    "text",
    ["x = 'a\n", "x = (1\n", "class :\n    pass\n", "def (a): pass\n", "class A(B:\n    pass\n", "if x\n    y = 1\n"],
)
def test_source_that_is_cut_wrong_is_refused(text):
    with pytest.raises(BadSourceError):
        check(text)


@pytest.mark.parametrize(
    ("text", "starts"),
    [
        ("a = 'it''s'\nb = 1\n", [1, 2]),
        ('a = """x\ny"""\nb = \'"""\'\nc = 1\n', [1, 3, 4]),
        ("a = 'x\\\ny'\nb = 1\n", [1, 3]),
        ("a = 1 + \\\n    2\n\n# (\nb = [  # ]\n1]\n", [1, 5]),
        ("f('', \"'\", '\\'')\nb = 1\n", [1, 2]),
        ("a = '''it's \\''' '''\nb = 1\n", [1, 2]),
    ],
)
def test_where_logical_lines_begin(text, starts):
    outline = Outline(text)

    assert [outline.line(index) for index in range(len(outline))] == starts


def test_text_without_its_strings_and_comments():
    assert blank("a = 'b' # c\nd = '''e\nf'''") == "a = " + " " * 7 + "\nd = " + " " * 9
    assert uncommented("a = '#' # c\nb") == "a = '#' \nb"
