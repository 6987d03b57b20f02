"""In a port with the reference's names, one statement is named: by values, by its text, or by an attribute."""

import importlib
import importlib.util
import linecache
import sys
from textwrap import dedent

import pytest
import torch

from pytest_tfdebug import compare, trace
from pytest_tfdebug.parity.proof import prove
from pytest_tfdebug.tracing.trace import Trace

REFERENCE = dedent("""\
    import torch
    from torch import nn


    def turned(x, sign=-1):
        first, second = x.chunk(2, dim=-1)
        return torch.cat((sign * second, first), dim=-1)


    def attended(module, q, k, v, mask, scale):
        scores = q @ k.transpose(-2, -1) * scale
        scores = scores + mask
        weights = scores.softmax(-1)
        return weights @ v


    class Norm(nn.Module):
        def __init__(self, size, eps=1e-2):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(size))
            self.eps = eps

        def forward(self, x):
            return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)


    class Attention(nn.Module):
        def __init__(self, size):
            super().__init__()
            self.q, self.k, self.v, self.o = (nn.Linear(size, size) for _ in range(4))
            self.scale = size**-0.5

        def forward(self, x):
            q, k, v = self.q(x), self.k(x), self.v(x)
            q, k = self.rotated(q, k)
            mask = torch.full((x.shape[1], x.shape[1]), -torch.inf).triu(1)
            x = attended(self, q, k, v, mask, scale=self.scale)
            return self.o(x)

        def rotated(self, q, k):
            angle = torch.arange(q.shape[1])[:, None] * torch.tensor([1.0, 0.1, 1.0, 0.1])
            q = q * angle.cos() + turned(q) * angle.sin()
            k = k * angle.cos() + turned(k) * angle.sin()
            return q, k


    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = Norm(4, eps=1e-3)
            self.attention = Attention(4)
            self.table = torch.linspace(1, 2, 4)

        def forward(self, x):
            x = x + self.attention(self.norm(x))
            x = x * self.table
            return x.tanh()
""")
X = torch.linspace(-1, 2, 24).view(1, 6, 4)


@pytest.fixture
def made(tmp_path, monkeypatch):
    """Return a function that makes a model of a text, with the same weights each time."""

    monkeypatch.syspath_prepend(str(tmp_path))

    def make(name, text):
        path = tmp_path / f"{name}.py"
        path.write_text(text)
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
        torch.manual_seed(0)
        return module.Model()

    return make


@pytest.fixture
def port_with(made):
    """Return a function that compares the reference with a copy that has some text replaced."""

    def compared(*edits):
        text = REFERENCE
        for old, new in edits:
            assert text.count(old) == 1
            text = text.replace(old, new)
        return compare(trace(made("reference", REFERENCE), X), trace(made("port", text), X))

    return compared


def line_of(source):
    return linecache.getline(source.file, source.first).strip()


@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        ("(sign * second, first)", "(second, first)", "attention"),
        ("sign=-1", "sign=1", "attention"),
        ("* scale", "/ scale", "attention"),
        ("scores + mask", "scores - mask", "attention"),
        (".triu(1)", ".triu(0)", "attention"),
        ("k = k * angle.cos() + turned(k)", "k = k * angle.cos() - turned(k)", "attention"),
        ("size**-0.5", "size**-1.5", "attention"),
        (" + self.eps", "", "norm"),
        ("eps=1e-3", "eps=1e-1", "norm"),
        ("linspace(1, 2, 4)", "linspace(1, 3, 4)", "Model"),
        ("x = x * self.table", "pass", "Model"),
    ],
)
def test_edited_statement_of_a_copy_is_named_with_the_references(port_with, old, new, path):
    culprit = port_with((old, new)).culprit

    assert (culprit.path, culprit.certain) == (path, True)
    assert new.strip() in line_of(culprit.source)
    assert old.strip() in line_of(culprit.reference)


def test_statement_that_gives_another_value_of_the_reference_is_the_last_resort(made):
    norm = "        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)\n"
    scaled = "        x = self.weight * x\n        size = x.pow(2).mean(-1, keepdim=True)\n"
    reference, port = (
        REFERENCE.replace(norm, f"{scaled}        x = x * {factor}\n        return x\n")
        for factor in ("torch.rsqrt(size + self.eps)", "1.0")
    )

    culprit = compare(trace(made("reference", reference), X), trace(made("port", port), X)).culprit

    assert (culprit.path, line_of(culprit.source)) == ("norm", "x = x * 1.0")


def test_functions_that_lead_to_a_helper_s_line_are_told(port_with):
    report = port_with(("(sign * second, first)", "(second, first)"))
    culprit = report.culprit

    assert (culprit.function, [line_of(each) for each in culprit.callers]) == (
        "turned",
        ["q = q * angle.cos() + turned(q) * angle.sin()", "q, k = self.rotated(q, k)"],
    )
    first, second = (each.first for each in culprit.callers)
    here = f"  here, port.py:{culprit.source.first} in turned, called at :{first} and :{second}:"
    assert here in str(report).splitlines()


def test_missing_step_is_the_references_line_at_the_statement_it_belongs_to(port_with):
    culprit = port_with(("        x = x * self.table\n", "")).culprit

    assert line_of(culprit.source) == "return x.tanh()"
    assert line_of(culprit.reference) == "x = x * self.table"
    assert "leaves out" in culprit.explanation or "skips a step" in culprit.explanation


def test_attribute_that_the_wrong_lines_read_is_told_with_both_values(port_with):
    culprit = port_with(("size**-0.5", "size**-1.5")).culprit

    assert culprit.explanation.startswith("Attention has scale 0.125; the reference has 0.5.")


def test_attribute_that_nothing_reads_is_not_told(port_with):
    unread = ("self.scale = size**-0.5", "self.scale = size**-0.5\n        self.note = 'port'")

    culprit = port_with(unread, ("scores + mask", "scores - mask")).culprit

    assert "note" not in culprit.explanation
    assert line_of(culprit.source) == "scores = scores - mask"


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("k = k * angle.cos() + turned(k)", "k = k * angle.cos() - turned(k)", "with add instead of sub at port.py:"),
        ("weights @ v", "weights @ v * 0.37", "with mul left out at port.py:"),
    ],
)
def test_change_that_mends_the_port_outranks_other_statements_that_differ(made, monkeypatch, old, new, sentence):
    monkeypatch.setattr(prove, "SECONDS", 120.0)
    own = [
        ("q @ k.transpose(-2, -1) * scale", "torch.matmul(q * scale, k.mT)"),
        ("self.o = (nn.Linear(size, size) for _ in range(4))", "self.o = [nn.Linear(size, size) for _ in range(4)]"),
        ("first, second = x.chunk(2, dim=-1)", "first, second = x[..., :2], x[..., 2:]"),
        ("torch.cat((sign * second, first), dim=-1)", "torch.cat((second * sign, first), -1)"),
    ]
    text = REFERENCE
    for before, after in [*own, (old, new)]:
        assert text.count(before) == 1
        text = text.replace(before, after)
    culprit = compare(trace(made("reference", REFERENCE), X), trace(made("port", text), X)).culprit

    assert culprit.certain
    assert sentence in culprit.proved
    assert new in line_of(culprit.source)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("torch.linspace(1, 2, 4)", "torch.linspace(2, 4, 4)"),
        ("scores + mask", "scores - mask"),
    ],
)
def test_constructor_is_named_where_the_text_that_runs_is_the_references(made, monkeypatch, old, new):
    monkeypatch.setattr(prove, "SECONDS", 120.0)
    finite = REFERENCE.replace("-torch.inf", "torch.finfo(x.dtype).min")
    culprit = compare(trace(made("reference", finite), X), trace(made("port", finite.replace(old, new)), X)).culprit

    assert culprit.proved
    assert new in line_of(culprit.source)


def test_statement_that_computes_the_right_value_is_not_named_beside_another(port_with):
    same = "weights = torch.softmax(scores, dim=-1)"

    culprit = port_with(
        ("weights = scores.softmax(-1)", same), ("return weights @ v", "return weights @ v * 2")
    ).culprit

    assert line_of(culprit.source) == "return weights @ v * 2"


def test_of_statements_that_differ_the_one_that_ran_is_named(port_with):
    culprit = port_with(
        ("        return self.o(x)", "        if x is None:\n            x = x * 2\n        return self.o(x)"),
        ("scores = scores + mask", "scores = (scores + mask).abs()"),
    ).culprit

    assert "(scores + mask).abs()" in line_of(culprit.source)


_OF_SCALED = """
import torch
from scaled import Scaled

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.after = torch.nn.Sequential(torch.nn.Tanh(), Scaled(kind="twice"))

    def forward(self, x):
        return self.after(self.linear(x))
"""
_SCALED = """
import torch

class Scaled(torch.nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind = kind

    def forward(self, x):
        return x.flip(0) * 3.0 if self.kind == "thrice" else x * 2.0
"""


def test_module_whose_file_both_sides_run_is_wrong_where_it_is_made(made, tmp_path):
    (tmp_path / "scaled.py").write_text(_SCALED)
    port = made("port", _OF_SCALED.replace("twice", "thrice"))

    culprit = compare(trace(made("reference", _OF_SCALED), X), trace(port, X)).culprit

    assert (culprit.path, culprit.certain) == ("after.1", True)
    assert line_of(culprit.source) == 'self.after = torch.nn.Sequential(torch.nn.Tanh(), Scaled(kind="thrice"))'
    assert "Scaled has kind 'thrice'; the reference has 'twice'." in culprit.explanation


_OF_STAGES = """
import torch

class Normed(torch.nn.Module):
    def __init__(self, fn):
        super().__init__()
        self.fn = fn
        self.weight = torch.nn.Parameter(torch.rand(4))

    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        normed = (x - mean) / (x.var(-1, keepdim=True) + 1e-3).sqrt() * self.weight
        return self.fn(normed)

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        stage = torch.nn.ModuleList([Normed(torch.nn.Linear(4, 4)) for _ in range(4)])
        self.stages = torch.nn.ModuleList([stage])

    def forward(self, x):
        for mix, feed_1, mix_again, feed_2 in self.stages:
            x = mix(x)
            x = feed_1(x)
            x = mix_again(x)
            x = feed_2(x)
        return x
"""


def test_module_that_is_not_called_is_wrong_where_another_one_is_called(made):
    port = made("port", _OF_STAGES.replace("feed_1", "feed").replace("feed_2", "feed"))

    culprit = compare(trace(made("reference", _OF_STAGES), X), trace(port, X)).culprit

    assert (culprit.path, culprit.kind) == ("stages.0.1", "not-called")
    assert line_of(culprit.source) == "x = feed(x)"


_OF_TABLE = """
import torch

class Table(torch.nn.Module):
    def forward(self, x):
        angle = torch.arange(1, 5.0) ** 0.5
        twice = angle.repeat_interleave(2)
        return twice.cos() + 1

class Turn(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x, table):
        turned = self.linear(x) * table[1::2]
        return turned + x

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.turn = Table(), Turn()

    def forward(self, x):
        return self.turn(x, self.table(x))
"""


def test_change_of_the_references_own_words_makes_up_for_another_statement(made, monkeypatch):
    monkeypatch.setattr(prove, "SECONDS", 20.0)
    shifted = "torch.cat([angle[:1], angle[1:].repeat_interleave(2), angle[:1]])"
    port = made("port", _OF_TABLE.replace("angle.repeat_interleave(2)", shifted))

    culprit = compare(trace(made("reference", _OF_TABLE), X), trace(port, X)).culprit

    assert (culprit.path, line_of(culprit.source)) == ("table", f"twice = {shifted}")


_OF_GIVEN = """
import torch

class Inner(torch.nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.act = torch.nn.GELU(approximate=kind)

    def forward(self, x):
        return self.act(x)

class Middle(torch.nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.inner = Inner(kind)

    def forward(self, x):
        return self.inner(x)

class Model(torch.nn.Module):
    def __init__(self, kind=None):
        super().__init__()
        kind = kind or "tanh"
        self.middle = Middle(kind)

    def forward(self, x):
        return self.middle(x)
"""


def test_argument_from_far_out_is_wrong_where_it_is_written(made):
    port = made("port", _OF_GIVEN.replace('"tanh"', '"none"'))

    culprit = compare(trace(made("reference", _OF_GIVEN), X), trace(port, X)).culprit

    assert (culprit.path, culprit.certain) == ("middle.inner.act", True)
    assert line_of(culprit.source) == 'kind = kind or "none"'
    assert "GELU has approximate 'none'; the reference has 'tanh'." in culprit.explanation


_OF_CHOICE = """
import torch

class Mean(torch.nn.Module):
    def forward(self, x):
        return x.mean(1)

class Most(torch.nn.Module):
    def forward(self, x):
        return x.amax(1)

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.pool = Most()

    def forward(self, x):
        return self.pool(self.linear(x))
"""


@pytest.mark.parametrize(("own", "there"), [("Mean", "Most"), ("torch.nn.Tanh", "torch.nn.Sigmoid")])
def test_module_of_another_class_is_wrong_where_it_is_chosen(made, own, there):
    reference = _OF_CHOICE.replace("self.pool = Most", f"self.pool = {there}")
    port = made("port", reference.replace(f"self.pool = {there}", f"self.pool = {own}"))

    culprit = compare(trace(made("reference", reference), X), trace(port, X)).culprit

    assert (culprit.path, culprit.certain) == ("pool", True)
    assert line_of(culprit.source) == f"self.pool = {own}()"
    assert line_of(culprit.reference) == f"self.pool = {there}()"
    names = [each.rpartition(".")[2] for each in (own, there)]
    assert "{} is made here; the reference makes a {}.".format(*names) in culprit.explanation


_OF_BASE = """
import torch
from functools import partial

def scaled(x, by):
    return x * by

class Base(torch.nn.Module):
    def forward(self, x):
        x = self.second(self.first(x))
        return self.scale(x).mean(1)

class Plain(torch.nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.sizes = sizes
        self.inner = torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.inner(x) * self.sizes[0][0]

class Model(Base):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Conv1d(6, 6, kernel_size=3, padding=1)
        self.scale = partial(scaled, by=2.0)
        self.second = Plain([[1.5, 2.0]])
"""


@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        ("kernel_size=3, padding=1", "kernel_size=1", "first"),  # a weight of another size was not loaded wrongly
        ("[[1.5, 2.0]]", "[[1.25, 2.0]]", "second"),  # a list of lists
        ("return x * by", "return x * by * by", ""),  # a function that an attribute holds
    ],
)
def test_constructor_of_a_class_that_inherits_its_forward_is_named(made, old, new, path):
    port = made("port", _OF_BASE.replace(old, new))

    culprit = compare(trace(made("reference", _OF_BASE), X), trace(port, X)).culprit

    assert culprit.path == (path or "Model")
    assert new in line_of(culprit.source)
    assert old in line_of(culprit.reference)


def test_wrapper_in_front_of_a_copy_pairs_by_name(made):
    class Wrapper(torch.nn.Module):
        def __init__(self, module):
            super().__init__()
            self.module = module

        def forward(self, *args):
            return self.module(*args)

    port = made("port", REFERENCE.replace("scores + mask", "scores - mask"))

    culprit = compare(trace(made("reference", REFERENCE), X), trace(Wrapper(port), X)).culprit

    assert culprit.path == "module.attention"
    assert line_of(culprit.source) == "scores = scores - mask"


def test_golden_holds_attributes_and_text_counts_while_it_is_as_recorded(made, tmp_path):
    path = tmp_path / "golden.safetensors"
    trace(made("reference", REFERENCE), X).save(path)
    text = REFERENCE.replace("size**-0.5", "size**-1.5")

    culprit = compare(Trace.load(path), trace(made("port", text), X)).culprit

    assert culprit.explanation.startswith("Attention has scale 0.125; the reference has 0.5.")
    assert line_of(culprit.source) == "self.scale = size**-1.5"


def flagged_module(tmp_path, monkeypatch, name):
    text = """\
        from torch import nn

        class Block(nn.Module):
            def __init__(self, is_normed):
                super().__init__()
                self.is_normed = is_normed
                self.linear, self.norm = nn.Linear(8, 8), nn.LayerNorm(8)

            def forward(self, x):
                y = self.linear(x)
                if self.is_normed:
                    y = self.norm(y)
                return x + y
    """
    (tmp_path / f"{name}.py").write_text(dedent(text))
    monkeypatch.syspath_prepend(tmp_path)
    return importlib.import_module(name)


@pytest.mark.parametrize("is_normed", [True, False])
def test_flag_that_decides_whether_a_call_is_made_is_told(tmp_path, monkeypatch, is_normed):
    reference = flagged_module(tmp_path, monkeypatch, f"reference_{is_normed}").Block(is_normed)
    port = flagged_module(tmp_path, monkeypatch, f"port_{is_normed}").Block(not is_normed)
    port.load_state_dict(reference.state_dict())
    x = torch.randn(2, 8, generator=torch.Generator().manual_seed(0))

    report = compare(trace(reference, x), trace(port, x))

    assert report.culprit.kind == ("not-called" if is_normed else "extra-call")
    told = f"The condition reads self.is_normed, which is {not is_normed} here and {is_normed} in the reference."
    assert told in report.culprit.why


def test_default_that_the_reference_was_not_made_with_explains_nothing(port_with):
    culprit = port_with(("Norm(4, eps=1e-3)", "Norm(4)"), ("eps=1e-2", "eps=1e-1")).culprit

    assert line_of(culprit.source) == "self.norm = Norm(4)"


ELSEWHERE = dedent("""\
    import torch
    from torch import nn


    class Processor:
        def __call__(self, module, x):
            q = module.norm_q(module.q(x))
            k = module.norm_k(module.k(x))
            held = torch.zeros_like(q)
            for at in range(0, 6, 2):
                held[:, at : at + 2] = q[:, at : at + 2] * k[:, at : at + 2]
            return module.o(held)


    class Attention(nn.Module):
        def __init__(self, size):
            super().__init__()
            self.q, self.k, self.o = (nn.Linear(size, size) for _ in range(3))
            self.norm_q, self.norm_k = nn.LayerNorm(size), nn.LayerNorm(size)
            nn.init.normal_(self.norm_q.weight)
            self.processor = Processor()

        def forward(self, x):
            return self.processor(self, x)


    class Block(nn.Module):
        def __init__(self, size, groups=1):
            super().__init__()
            self.block = nn.Sequential(nn.Linear(size, size), nn.GroupNorm(groups, 6))

        def forward(self, x):
            return self.block(x)


    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = Attention(4)
            self.blocks = nn.ModuleList([Block(4, groups=2)])
            self.act = nn.SiLU()

        def forward(self, x):
            x = self.attention(x)
            for block in self.blocks:
                x = block(x)
            gate = x.flip(1) + 1
            y = self.mixed(x, gate)
            states = [x, y]
            return states

        def mixed(self, x, gate):
            return x * self.act(gate)
""")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("module.norm_k(module.k(x))", "module.norm_q(module.k(x))"),
        ("range(0, 6, 2)", "range(0, 4, 2)"),
        ("Block(4, groups=2)", "Block(4)"),
        ("self.act = nn.SiLU()", "self.act = nn.ReLU()"),
        ("self.mixed(x, gate)", "self.mixed(gate, x)"),
        ("states = [x, y]", "states = [x]"),
    ],
)
def test_line_that_chose_is_named_far_from_what_came_of_it(made, old, new):
    assert ELSEWHERE.count(old) == 1

    culprit = compare(
        trace(made("reference", ELSEWHERE), X), trace(made("port", ELSEWHERE.replace(old, new)), X)
    ).culprit

    assert culprit.certain
    assert new in line_of(culprit.source)
    assert old in line_of(culprit.reference)
