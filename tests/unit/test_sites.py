"""Call sites and the glue lines that follow from them, on modules whose lines are found by their comments."""

import functools
import inspect
import linecache
import sys

import pytest
import torch
from torch import nn

from pytest_tfdebug import trace
from pytest_tfdebug.records import SourceRange
from pytest_tfdebug.tracing.record.sites import forward_source
from pytest_tfdebug.tracing.values.slicing import glue_lines

X = torch.ones(2, 4)


def lines_of(*marks):
    """Return the numbers of the lines of this file that end in these comments."""
    lines = inspect.getsource(sys.modules[__name__]).splitlines()
    found = [
        next(number for number, line in enumerate(lines, 1) if line.rstrip().endswith(f"# {mark}")) for mark in marks
    ]
    return found[0] if len(found) == 1 else found


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.b = nn.Linear(4, 4)
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))


class Plain(Base):
    def forward(self, x):
        """Have a docstring, which is no glue."""
        residual = x  # plain first
        x = self.a(x)  # plain a
        x = x * 2  # plain middle
        x = self.b(x)  # plain b
        return x + residual  # plain last


def doubled(function):
    @functools.wraps(function)
    def wrapper(self, *args, **kwargs):
        return function(self, *args, **kwargs) * 2

    return wrapper


class Decorated(Base):
    @doubled
    @torch.no_grad()
    def forward(self, x):
        return self.a(x)  # decorated a


class Helped(Base):
    def forward(self, x):
        x = self.help(x)  # helped help
        return x + 1  # helped last

    def help(self, x):
        x = self.a(x)  # helped a
        x = x - 1  # helped middle
        return self.b(x)  # helped b


def processed(module, x):
    x = module.a(x)  # processed a
    return module.b(x)


class Processed(Base):
    def forward(self, x):
        return processed(self, x)  # processed call


class Inherited(Plain):
    def __init__(self):
        super().__init__()
        self.c = nn.ReLU()

    def forward(self, x):
        return self.c(super().forward(x))  # inherited super


class Looped(Base):
    def forward(self, x):
        x = self.a(x)  # looped a
        for layer in self.layers:  # looped for
            x = layer(  # looped call
                x  # looped argument
            )  # looped end
        return self.b(x)  # looped b


class Inlined(Base):
    def forward(self, x):
        return self.b(torch.relu(self.a(x)))  # inlined both


def site(model, name):
    return trace(model, X)[name].site


@pytest.mark.parametrize(
    ("model", "name", "mark"),
    [
        (Plain, "a", "plain a"),
        (Plain, "b", "plain b"),
        (Decorated, "a", "decorated a"),
        (Helped, "a", "helped help"),
        (Helped, "b", "helped help"),
        (Inherited, "a", "inherited super"),
        (Inherited, "c", "inherited super"),
        (Inlined, "a", "inlined both"),
        (Looped, "b", "looped b"),
    ],
)
def test_call_stands_on_its_line_of_the_parent_s_forward(model, name, mark):
    found = site(model(), name)

    assert found.file == __file__
    assert found.line == found.end_line == lines_of(mark)
    assert found.first_line <= found.line <= found.last_line


def test_call_in_a_helper_has_both_lines():
    call = trace(Helped(), X)["a"]

    assert (call.site.line, call.inner_site.line) == tuple(lines_of("helped help", "helped a"))
    assert call.inner_site.function in ("Helped.help", "help")


def test_call_in_a_function_that_is_given_the_module_has_both_lines():
    call = trace(Processed(), X)["a"]

    assert (call.site.line, call.inner_site.line) == tuple(lines_of("processed call", "processed a"))


def test_call_in_an_inherited_forward_has_both_lines():
    assert trace(Inherited(), X)["a"].inner_site.line == lines_of("plain a")


@pytest.mark.skipif(sys.version_info < (3, 11), reason="columns of instructions came with Python 3.11")
def test_call_over_several_lines_has_first_and_last_line():
    found = site(Looped(), "layers.1")

    assert found.line == lines_of("looped call")
    assert found.end_line >= lines_of("looped argument")


def test_every_turn_of_a_loop_has_the_same_line():
    recorded = trace(Looped(), X)

    assert len({recorded[f"layers.{number}"].site for number in range(3)}) == 1


def test_forward_of_one_instance_is_looked_at():
    model = Plain()
    original = model.a

    def forward(x):
        return original(x) * 3  # instance a

    model.forward = forward

    recorded = trace(model, X)

    assert recorded["a"].site.line == lines_of("instance a")
    assert recorded["Plain"].source.first <= lines_of("instance a") <= recorded["Plain"].source.last


def test_forward_bound_to_one_instance_is_looked_at():
    def forward(self, x):
        return self.b(x)  # bound b

    model = Plain()
    model.forward = forward.__get__(model)

    assert site(model, "b").line == lines_of("bound b")
    assert forward_source(model).file == __file__


def test_forward_behind_a_wrapper_of_one_instance_is_looked_at():
    model = Plain()
    old = model.forward
    model.forward = functools.update_wrapper(functools.partial(lambda module, x: old(x), model), old)

    assert site(model, "a").line == lines_of("plain a")


def test_root_has_no_call_site_and_torch_s_own_modules_no_source():
    recorded = trace(Plain(), X)

    assert recorded["Plain"].site is None
    assert recorded["Plain"].source.first < lines_of("plain first")
    assert recorded["Plain"].source.last == lines_of("plain last")
    assert recorded["a"].source is None


def test_copied_file_is_not_taken_for_the_one_it_was_copied_from(tmp_path):
    sources = []
    for name, last in (("modeling_reference", "return self.b(x)"), ("modeling_port", "return self.b(x) + 1")):
        file = tmp_path / f"{name}.py"
        file.write_text(
            "from torch import nn\n"
            "class Gate(nn.Module):\n    def forward(self, x):\n        return x * 2\n"
            f"class Other(nn.Module):\n    def forward(self, x):\n        {last}\n"
        )
        space = {"__name__": name}
        exec(compile(file.read_text(), str(file), "exec"), space)  # noqa: S102 - a module of its own file
        sources.append(forward_source(space["Gate"]()))

    assert [*map(str, sources)] == ["modeling_reference.py:3-4", "modeling_port.py:3-4"]


def glue(model, previous, following):
    recorded = trace(model, X)
    parent = recorded.calls[0]
    children = [call for call in recorded if call.parent == 0]
    one = recorded[previous] if previous else None
    other = recorded[following] if following else None
    earlier = children[: children.index(other)] if other else children
    return glue_lines(parent, one, other, earlier)


@pytest.mark.parametrize(
    ("model", "previous", "following", "first", "last"),
    [
        (Plain, None, "a", "plain first", "plain a"),
        (Plain, "a", "b", "plain a", "plain b"),
        (Plain, "b", None, "plain first", "plain last"),
        (Helped, "a", "b", "helped a", "helped b"),
        (Helped, "b", None, "helped help", "helped last"),
        (Inlined, "a", "b", "inlined both", "inlined both"),
        (Looped, "layers.0", "layers.1", "looped for", "looped end"),
        (Looped, "layers.2", "b", "looped call", "looped b"),
    ],
)
def test_glue_reaches_from_call_to_call_with_what_feeds_it(model, previous, following, first, last):
    found = glue(model(), previous, following)

    assert isinstance(found, SourceRange)
    assert (found.first, found.last) == (lines_of(first), lines_of(last))
    assert str(found) == (
        f"test_sites.py:{found.first}" if found.first == found.last else f"test_sites.py:{found.first}-{found.last}"
    )


def test_glue_without_calls_is_the_whole_forward():
    recorded = trace(Plain(), X, include="layers.0")

    assert glue_lines(recorded.calls[0], None, None) == recorded.calls[0].source


def test_glue_of_source_that_cannot_be_read_is_told_by_line_numbers(monkeypatch):
    recorded = trace(Plain(), X)
    with monkeypatch.context() as patched:
        patched.setattr(linecache, "getlines", lambda *_: [])
        found = glue_lines(recorded.calls[0], recorded["a"], recorded["b"])

    assert (found.first, found.last) == tuple(lines_of("plain a", "plain b"))


def test_glue_of_code_without_a_file_is_told_by_line_numbers():
    space = {"Base": Base}
    exec(  # noqa: S102 - code of a prompt
        compile(
            "class Typed(Base):\n    def forward(self, x):\n        x = self.a(x)\n        x = x + 1\n        return self.b(x)\n",
            "<prompt>",
            "exec",
        ),
        space,
    )

    recorded = trace(space["Typed"](), X)

    assert len(recorded) == 3
    assert glue_lines(recorded.calls[0], recorded["a"], recorded["b"]) is not None or recorded["a"].site is None
