"""A name is followed to the one place that gives it, and an expression that is more than a name has chosen."""

import linecache
import textwrap

import pytest

from pytest_tfdebug.parity.text.chosen_at import chosen_at, function_chosen_at, handed_on_at
from pytest_tfdebug.parity.text.text_differences import source_file
from pytest_tfdebug.records import SourceRange

PORT = textwrap.dedent('''
    """A port whose constructors are given what others chose."""
    import functools

    EPS = 1e-5
    LEVELS = {"low": 1, "high": 2}


    class Plan:
        turned: bool
        window: int


    class Spec:
        def __init__(self, width, heads):
            self.width, self.heads = width, heads

        @property
        def size(self):
            return self.width // self.heads


    def spec_of(config):
        plan = [Plan(turned=i % 4 != 0, window=config.window) for i in range(config.depth)]
        return Spec(config.hidden, config.heads), plan


    def scale_of(spec):
        return spec.size ** -0.5


    class Attention:
        def __init__(self, spec, plan, level, near, act=None):
            self.turned = plan.turned
            self.window = int(plan.window)
            self.scale = scale_of(spec)
            self.size = spec.size
            self.eps = EPS
            self.level = LEVELS[level]
            self.gain = spec.width * 2
            self.near = near
            act = act or functools.partial(max, 0)
            self.act = act

        def forward(self, x):
            return self.out(self.act(x))


    def make(config):
        spec, plan = spec_of(config)
        kinds = Kinds(near=tuple(i % 2 == 1 for i in range(4)))
        return [Attention(spec, each, "high", near) for each, near in zip(plan, kinds.near)]


    class Kinds:
        near: tuple


    class Block:
        def __init__(self, near):
            self.near = near


    def stack(kinds):
        return [Block(near) for near in kinds.near]
''').lstrip()


@pytest.fixture
def port(tmp_path):
    path = tmp_path / "port.py"
    path.write_text(PORT, encoding="utf-8")
    return source_file(str(path))


def text_of(lines):
    return None if lines is None else linecache.getline(lines.file, lines.first).strip()


@pytest.mark.parametrize(
    ("attribute", "chosen"),
    [
        ("turned", "plan = [Plan(turned=i % 4 != 0, window=config.window) for i in range(config.depth)]"),
        ("window", "plan = [Plan(turned=i % 4 != 0, window=config.window) for i in range(config.depth)]"),
        ("scale", "return spec.size ** -0.5"),
        ("size", "return self.width // self.heads"),
        ("eps", "EPS = 1e-5"),
        ("level", 'return [Attention(spec, each, "high", near) for each, near in zip(plan, kinds.near)]'),
        ("gain", None),
        ("act", "act = act or functools.partial(max, 0)"),
    ],
)
def test_attribute_is_followed_to_what_chose_it(port, attribute, chosen):
    made = port.made_at("Attention", attribute)

    assert text_of(chosen_at(made)) == chosen


def test_one_of_several_is_followed_to_what_chose_them_all(port):
    made = port.made_at("Block", "near")

    assert text_of(chosen_at(made)) == "kinds = Kinds(near=tuple(i % 2 == 1 for i in range(4)))"


def test_constant_that_is_not_the_number_is_not_what_chose_it(port):
    made = port.made_at("Attention", "eps")

    assert text_of(chosen_at(made, "1e-05")) == "EPS = 1e-5"
    assert chosen_at(made, "0.5") is None


def test_function_that_a_line_calls_is_followed_and_a_module_is_not(port):
    forward = port.body("Attention.forward")

    assert text_of(function_chosen_at(forward, {"out"})) == "act = act or functools.partial(max, 0)"
    assert function_chosen_at(forward, {"out", "act"}) is None


SEVERAL = textwrap.dedent("""
    class Conv:
        def __init__(self, act=max):
            self.act = act

        def forward(self, x):
            return self.act(x)


    class Stage:
        def __init__(self, near):
            self.wide, self.near = 2, near
            self.grow = Conv()
            self.filter = Conv(act=min)


    def make(config):
        return Stage(near=config.near > 0)
""").lstrip()


def test_of_several_calls_of_a_class_the_one_that_makes_the_module_counts(tmp_path):
    (tmp_path / "port.py").write_text(SEVERAL, encoding="utf-8")
    file = source_file(str(tmp_path / "port.py"))
    forward = file.body("Conv.forward")

    assert text_of(function_chosen_at(forward, ())) == "self.act = act"
    assert text_of(function_chosen_at(forward, (), [file.made_at("Stage", "filter")])) == "self.filter = Conv(act=min)"


def test_one_of_several_attributes_that_a_statement_sets_is_followed(tmp_path):
    (tmp_path / "port.py").write_text(SEVERAL, encoding="utf-8")
    made = source_file(str(tmp_path / "port.py")).made_at("Stage", "near")

    assert chosen_at(made) is None
    assert text_of(chosen_at(made, name="near")) == "return Stage(near=config.near > 0)"


def test_name_that_two_places_give_is_followed_to_neither(tmp_path):
    path = tmp_path / "port.py"
    path.write_text(
        textwrap.dedent("""
        class Norm:
            def __init__(self, eps):
                self.eps = eps

        def first():
            return Norm(1e-6)

        def second():
            return Norm(1e-5)
        """),
        encoding="utf-8",
    )
    file = source_file(str(path))

    assert chosen_at(file.made_at("Norm", "eps")) is None


MARGINS = """
class Row:
    @property
    def margins(self):
        half = self.kernel // 2
        if self.stride == 1:
            return (half, half, half, half)
        return (half, half - 1, half, half - 1)


def depthwise(x, kernel, bias, margins):
    x = pad(x, margins)
    return conv(x, kernel, bias)


class Block:
    def forward(self, x):
        return depthwise(x, *self.weights, self.row.margins)
"""


def test_list_is_followed_to_the_one_return_that_may_give_it(tmp_path):
    path = tmp_path / "port.py"
    path.write_text(MARGINS, encoding="utf-8")
    line = MARGINS.splitlines().index("    x = pad(x, margins)") + 1
    at = SourceRange(str(path), line, line)
    ran = {(str(path), line), (str(path), line + 1)}

    assert text_of(handed_on_at(at, "(1, 0, 1, 0)", ran)) == "return (half, half - 1, half, half - 1)"
    assert handed_on_at(at, "(1, 1, 1, 1)", ran) is None  # both may


MASKED = """
def bias(keep):
    return ahead | (keep == 0)[:, None, :, None]


class Model:
    def forward(self, ids, mask=None):
        if mask is None:
            mask = ones_like(ids)
        return bias(mask)
"""


def test_axis_that_a_line_inserts_is_handed_on_by_no_name(tmp_path):
    path = tmp_path / "port.py"
    path.write_text(MASKED, encoding="utf-8")
    line = MASKED.splitlines().index("    return ahead | (keep == 0)[:, None, :, None]") + 1

    assert handed_on_at(SourceRange(str(path), line, line), "3", {(str(path), line)}) is None
