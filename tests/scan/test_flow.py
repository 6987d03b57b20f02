"""Bodies that branch and leave: what a scan says of them is what unittest does, whatever the conditions are."""

import itertools
import unittest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_tfdebug.scan import scan

NAMES = "pqrs"
CALLS = st.sampled_from([f"self.{name}()" for name in NAMES])
TESTS = st.recursive(
    CALLS,
    lambda tests: st.one_of(
        tests.map(lambda test: f"not ({test})"),
        st.builds("{} {} {}".format, tests, st.sampled_from(["and", "or"]), tests),
        st.builds("({} if {} else {})".format, tests, tests, tests),
    ),
    max_leaves=3,
)
SIMPLE = st.sampled_from([["self.skipTest('why')"], ["return"], ["self.count = 1"], ["self.maybe_skip()"]])


def indented(lines):
    return [f"    {line}" for line in lines]


def compound(blocks):
    """Return statements with blocks in them."""

    def branches(tests, bodies):
        heads = [f"if {tests[0]}:", *(f"elif {test}:" for test in tests[1:]), "else:"]
        return [line for head, body in zip(heads, bodies, strict=False) for line in (head, *indented(body))]

    def attempt(body, handler, orelse):
        head = ["try:", *indented(["self.raise_if_s()", *body]), "except LookupError:", *indented(handler)]
        return [*head, "else:", *indented(orelse)]

    def search(test, body, orelse):
        return ["for _ in (1, 2):", f"    if {test}:", "        break", *indented(body), "else:", *indented(orelse)]

    return st.one_of(
        st.builds(branches, st.lists(TESTS, min_size=1, max_size=3), st.lists(blocks, min_size=1, max_size=4)),
        blocks.map(lambda body: ["with self.subTest():", *indented(body)]),
        blocks.map(lambda body: ["try:", *indented(body), "finally:", "    self.count = 1"]),
        st.builds(attempt, blocks, blocks, blocks),
        st.builds(lambda body, last: ["for _ in (1,):", *indented(body), "else:", *indented(last)], blocks, blocks),
        st.builds(search, TESTS, blocks, blocks),
    )


STATEMENTS = st.recursive(
    SIMPLE,
    lambda one: compound(st.lists(one, min_size=1, max_size=3).map(lambda parts: list(itertools.chain(*parts)))),
    max_leaves=8,
)
BODIES = st.lists(STATEMENTS, min_size=1, max_size=4).map(lambda parts: list(itertools.chain(*parts)))
SOURCE = """
import unittest


class ModelTesterMixin:
    def maybe_skip(self):
        if self.p() or self.q():
            self.skipTest("maybe")

    def raise_if_s(self):
        if self.s():
            raise LookupError

    def test_body(self):
"""
MODEL = "from ...test_modeling_common import *\n\nclass MTest(ModelTesterMixin, unittest.TestCase):\n    pass\n"


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("flow")


def state(root, source):
    for path, text in {"test_modeling_common.py": source, "models/m/test_modeling_m.py": MODEL}.items():
        file = root / "tests" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    [case] = scan(root)["test_body"].cases
    return case.state


def is_skipped(case):
    result = unittest.TestResult()
    case.run(result)
    return bool(result.skipped)


def says_skipped(found, case, values):
    """Tell whether a state says that a test is skipped where the conditions have these values."""
    if found.state != "conditional":
        return found.state == "skipped"
    text = found.condition.replace("no LookupError", "not self.s()").replace("except LookupError", "self.s()")
    text = text.replace("no exception", "not self.s()").replace("except", "self.s()")
    return bool(eval(text, {"self": case}))  # noqa: S307 - the tests above


@given(body=BODIES)
def test_body_is_skipped_where_the_scan_says_so(root, body):
    source = SOURCE + "\n".join(indented(indented(body))) + "\n"
    found = state(root, source)
    names = {}
    exec(source, names)  # noqa: S102 - the statements above
    for values in itertools.product([False, True], repeat=len(NAMES)):
        answers = {name: lambda _, value=value: value for name, value in zip(NAMES, values, strict=True)}
        case = type("Case", (names["ModelTesterMixin"], unittest.TestCase), answers)("test_body")
        assert says_skipped(found, case, values) is is_skipped(case), (str(found.condition), answers)
