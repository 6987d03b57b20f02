"""Where a function of a port is the reference's but for a few statements."""

import re
from textwrap import dedent

import pytest

from pytest_tfdebug.parity.text.text_differences import SourceFile, aligned, source_file, text_differences

REFERENCE = SourceFile(
    "reference.py",
    dedent('''\
        def half(x: Tensor) -> Tensor:
            """Swap the halves."""
            first, second = x.chunk(2)
            return cat(-second, first)

        class Block(Module):
            def forward(self, x: Tensor, scale: float = 1.0) -> Tensor:
                y = half(self.norm(x))
                if self.is_scaled:
                    y = y * scale
                y = self.mixed(y)
                for layer in self.layers:
                    y = layer(y)
                return x + y

            def mixed(self, y):
                return y.mean()
    '''),
)


def edited(old, new):
    text = REFERENCE_TEXT.replace(old, new)
    assert text != REFERENCE_TEXT
    return SourceFile("port.py", text)


REFERENCE_TEXT = dedent('''\
    class Base(Module):
        def mixed(self, y):
            return y.mean()

    def half(x):
        # the same, said otherwise
        first, second = x.chunk(2)
        return cat(-second, first)

    class Block(Base):
        def forward(self, x, scale: float = 1.0):
            """Another text."""
            y = half(self.norm(x))
            if self.is_scaled:
                y = (y
                     * scale)
            y = self.mixed(y)
            for layer in self.layers:
                y = layer(y)
            return x + y
''')


def text_in(file, lines):
    return file.code(lines).splitlines()[0].strip()


def found(port, name="Block.forward", lines=None):
    return [
        (text_in(port, each.own), text_in(REFERENCE, each.reference), each.is_left_out)
        for each in text_differences(port, name, lines or port.whole(name), REFERENCE, name)
    ]


def test_comments_docstrings_annotations_and_line_breaks_are_no_difference():
    port = SourceFile("port.py", REFERENCE_TEXT)

    assert found(port) == found(port, "half") == []


@pytest.mark.parametrize(
    ("old", "new", "own", "reference", "is_left_out"),
    [
        ("x + y", "x - y", "return x - y", "return x + y", False),
        ("if self.is_scaled:", "if not self.is_scaled:", "if not self.is_scaled:", "if self.is_scaled:", False),
        ("y = self.mixed(y)\n", "pass\n", "pass", "y = self.mixed(y)", False),
        ("        y = self.mixed(y)\n", "", "for layer in self.layers:", "y = self.mixed(y)", True),
        ("in self.layers:", "in self.layers[1:]:", "for layer in self.layers[1:]:", "for layer in self.layers:", False),
        (
            "scale: float = 1.0",
            "scale: float = 2.0",
            "def forward(self, x, scale: float = 2.0):",
            "def forward(self, x: Tensor, scale: float = 1.0) -> Tensor:",
            False,
        ),
    ],
)
def test_statement_that_differs_is_found_with_the_references(old, new, own, reference, is_left_out):
    assert found(edited(old, new)) == [(own, reference, is_left_out)]


def test_only_the_lines_that_are_meant_are_looked_at():
    port = edited("x + y", "x - y")
    whole = port.whole("Block.forward")

    assert found(port, lines=type(whole)("port.py", whole.first, whole.last - 1)) == []


def test_function_that_is_another_tells_nothing():
    port = SourceFile("port.py", "def half(x):\n    a = roll(x)\n    b = flip(a)\n    return b\n")

    assert found(port, "half") == []


def test_functions_of_a_forward_are_reached_with_the_statements_leading_there():
    port = SourceFile("port.py", REFERENCE_TEXT)

    reached = list(port.reached("Block.forward", port.whole("Block.forward")))

    assert [name for name, _, _ in reached] == ["Block.forward", "half", "Base.mixed"]
    assert [[text_in(port, each) for each in callers] for _, _, callers in reached] == [
        [],
        ["y = half(self.norm(x))"],
        ["y = self.mixed(y)"],
    ]


def test_body_of_a_function_begins_after_its_docstring():
    body = REFERENCE.body("half")

    assert text_in(REFERENCE, body) == "first, second = x.chunk(2)"
    assert (body.first, body.last) == (3, 4)


def test_lines_that_are_the_same_stand_beside_the_references():
    port = edited("x + y", "x - y")
    lines = port.whole("Block.forward")

    beside = aligned(port, "Block.forward", lines, REFERENCE, "Block.forward")

    assert (beside.first, beside.last) == (7, 13)


@pytest.mark.parametrize("text", ["def", None])
def test_file_that_cannot_be_read_is_none(tmp_path, text):
    path = tmp_path / "port.py"
    if text is not None:
        path.write_text(text)

    assert source_file(str(path)) is None


def test_local_names_and_attributes_of_another_spelling_are_no_difference():
    renamed = REFERENCE_TEXT
    for old, new in (("x", "hidden"), ("y", "out"), ("layers", "blocks"), ("layer", "block"), ("scale", "factor")):
        renamed = re.sub(rf"\b{old}\b", new, renamed)

    assert found(SourceFile("port.py", renamed)) == []


def test_two_names_that_a_port_exchanges_are_a_difference():
    assert found(edited("return x + y", "return y - x")) == [("return y - x", "return x + y", False)]


def test_one_wrong_name_among_renamed_ones_is_a_difference():
    renamed = re.sub(r"\by\b", "out", REFERENCE_TEXT).replace("return x + out", "return x + x")

    assert found(SourceFile("port.py", renamed)) == [("return x + x", "return x + y", False)]


def test_variables_of_comprehensions_have_no_name():
    text = "def f(parts, n):\n    a = [g(part) for part in parts]\n    return sum(a) / n\n"
    reference = SourceFile("reference.py", text)
    port = SourceFile("port.py", text.replace("g(part) for part in", "g(n) for n in"))

    assert not list(text_differences(port, "f", port.whole("f"), reference, "f"))


@pytest.mark.parametrize(
    ("made", "line"),
    [
        ('self.register_buffer("table", angles.cos(), persistent=False)', 4),
        ("self.table = angles.cos()", 4),
        ('self.register_buffer("other", angles)', None),
    ],
)
def test_statement_that_makes_an_attribute_is_found_by_its_name(made, line):
    text = f"class Clock:\n    def __init__(self, base):\n        angles = base * 2\n        {made}\n"

    found = SourceFile("port.py", text).made_at("Clock", "table")

    assert (None if found is None else found.first) == line
