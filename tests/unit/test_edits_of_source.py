"""Where a port's source is to be edited, found by writing each statement otherwise and running it."""

import ast
import dataclasses
import linecache
import signal
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import pytest_tfdebug
from pytest_tfdebug.constructed import noted
from pytest_tfdebug.parity.find import edited as edited_module
from pytest_tfdebug.parity.patch.any_edits import OtherSide, any_edits
from pytest_tfdebug.parity.patch.lines_seen import NameHeld, Seen
from pytest_tfdebug.parity.patch.side_effects import has_side_effects
from pytest_tfdebug.parity.patch.source_edits import edited, statements_of
from pytest_tfdebug.parity.patch.tried_source import _given_up_after
from pytest_tfdebug.parity.proof import prove
from pytest_tfdebug.tracing.values.tape import NotTriedError

X = torch.randn(2, 6, 8, generator=torch.Generator().manual_seed(3))
MASK = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]])


NOTHING = OtherSide()


def edits_of_line(line, *, known=NOTHING, **names):
    """Return what a line may have been meant as, where names held something."""
    text = f"def forward(self):\n    {line}\n"
    parts = {"cfg": {"width": NameHeld("number", 8), "heads": NameHeld("number", 2), "name": NameHeld("text", "port")}}
    seen = Seen({name: NameHeld(*held) for name, held in names.items()}, parts, is_making=False)
    statement = statements_of(text)[1]
    return {edited(text, [each.edit]).splitlines()[1].strip() for each in any_edits(statement, seen, known)}


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("y = x + residual", "y = x + x"),
        ("y = x / cfg.width", "y = x / cfg.heads"),
        ("y = x / 7", "y = x / 8"),
        ("return x @ x.mT", "return ((x @ x.mT) + residual)"),
        ("y = x.triu()", "y = x.triu(1)"),
        ("y = torch.tril(x)", "y = torch.tril(x, -1)"),
        ("y = x.var(-1)", "y = x.var(-1, correction=0)"),
        ("y = F.pad(x, (1, 0))", "y = F.pad(x, (1, 0), value=1)"),
        ("y = rearrange(x, 'b n (h d) -> b h n d', h=2)", "y = rearrange(x, 'b n (d h) -> b h n d', h=2)"),
        ("y = torch.einsum('bhid,bhjd->bhij', x, x)", "y = torch.einsum('bhid,bhjd->bhji', x, x)"),
        ("y = f(x, causal=True)", "y = f(x, causal=False)"),
        ("y = f(x) if causal else x", "y = f(x) if (not causal) else x"),
        ("if causal: x = f(x)", "if (not causal): x = f(x)"),
        ("if causal and x.requires_grad: x = f(x)", "if (causal): x = f(x)"),
        ("if causal and x.requires_grad: x = f(x)", "if ((causal) or (x.requires_grad)): x = f(x)"),
        ("y = f(x, causal=True)", "y = f(x)"),
        ("y = f(x, residual)", "y = f(residual, x)"),
        ("y = f(g(x))", "y = g(f(x))"),
        ("y = f(x) + residual", "y = f(x + residual)"),
        ("y = x * residual + x", "y = (x * (residual + x))"),
        ("y = torch.tanh(x)", "y = torch.nn.functional.silu(x)"),
        ("y = ~x", "y = (x)"),
        ("y = x", "y = ~x"),
        ("y = x < residual", "y = (x <= residual)"),
        ("q, k, v = x", "k, q, v = x"),
        ("y = x[:, None, :, None]", "y = x[:, None, None, :]"),
        ("y = x[: cfg.heads]", "y = x[: cfg.heads + 1]"),
        ("x.add_(residual)", "pass"),
        ("y = x", "y = x.mT"),
        ("y = x", "y = (x * residual)"),
    ],
)
def test_statement_may_have_been_meant_as(line, meant):
    found = edits_of_line(line, x=("tensor", None, (2, 3)), residual=("tensor", None, (2, 3)))

    assert meant in found


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("y = x / cfg.width", "y = x / cfg.name"),  # of another kind
        ("y = x + residual", "y = x + count"),
        ("x[0] = residual", "residual[0] = residual"),  # written to
        ("x.held = residual", "residual.held = residual"),
        ("y = self(x)", "y = x(x)"),
        ("y = torch.einsum('ij,jk->ik', x, x)", "y = torch.einsum('jj,ik->ik', x, x)"),  # an axis of another tensor
        ("y = F.pad(x, (1, 0), value=2)", "y = F.pad(x, (1, 0), value=2, value=1)"),
    ],
)
def test_what_does_not_fit_is_not_tried(line, wrong):
    held = {"x": ("tensor", None, (2, 3)), "residual": ("tensor", None, (2, 3)), "count": ("number", 3)}

    assert wrong not in edits_of_line(line, self=("callable", "Port"), **held)


def test_numbers_and_names_of_the_reference_are_tried():
    known = OtherSide([1e-6], ["layers.0.attn.q.weight", "layers.0.attn.k.weight", "layers.0.norm.weight"])

    assert "eps = 1e-06" in edits_of_line("eps = 1e-05", known=known)
    assert "w = state['attn.k.weight']" in edits_of_line('w = state["attn.q.weight"]', known=known)


NAMES = st.sampled_from(["x", "mask", "n", "cfg.heads", "f(x, n)", "x[:, 1:]", "(x, mask)", "-x", "2", "x.mean(1)"])


@given(st.recursive(NAMES, lambda inner: st.builds("({} {} {})".format, inner, st.sampled_from("+-*/"), inner)))
def test_every_edit_is_python_and_changes_one_statement(expression):
    text = f"def forward(self):\n    y = {expression}\n    return y\n"
    names = {
        "x": NameHeld("tensor", None, (2, 3)),
        "mask": NameHeld("tensor", None, (2, 3)),
        "n": NameHeld("number", 3),
    }
    seen = Seen(names, {"cfg": {"heads": NameHeld("number", 2), "width": NameHeld("number", 8)}}, is_making=False)
    statement = next(each for each in statements_of(text) if isinstance(each.node, ast.Assign))
    for each in any_edits(statement, seen, OtherSide()):
        lines = edited(text, [each.edit]).splitlines()
        ast.parse("\n".join(lines))
        assert [lines[0], *lines[2:]] == [text.splitlines()[0], *text.splitlines()[2:]]
        assert lines[1] != text.splitlines()[1]


class Attention(nn.Module):
    """The reference."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.q, self.k, self.v, self.out = (nn.Linear(8, 8) for _ in range(4))
        self.norm = nn.LayerNorm(8)
        nn.init.normal_(self.norm.weight, 1.0, 0.3)

    def forward(self, x, mask):
        q, k, v = (each(x).view(2, 6, 2, 4).transpose(1, 2) for each in (self.q, self.k, self.v))
        scores = q @ k.mT / 4**0.5 + (1.0 - mask[:, None, None, :]) * -1e9
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).reshape(2, 6, 8)
        return self.norm(x + self.out(mixed))


PORT = """
import torch
from torch import nn
from dataclasses import dataclass

@dataclass
class Config:
    width: int = 8
    heads: int = 2

    @property
    def size(self):
        return self.width // self.heads

def hidden_keys(mask):
    padding = mask == 0
    return padding[:, None, None, :]

class Port(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config, self.scale = config, config.size ** -0.5
        self.qkv = nn.Parameter(torch.zeros(24, 8))
        self.bias = nn.Parameter(torch.zeros(24))
        self.out, self.norm = nn.Linear(8, 8), nn.LayerNorm(8)

    def heads(self, x):
        return x.unflatten(-1, (self.config.heads, -1)).transpose(1, 2)

    def forward(self, x, mask):
        q, k, v = map(self.heads, (x @ self.qkv.T + self.bias).chunk(3, -1))
        scores = (q @ k.mT * self.scale).masked_fill(hidden_keys(mask), -1e9)
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
        return self.norm(x + self.out(mixed))

def convert(reference):
    state = reference.state_dict()
    port = Port(Config())
    weights = [state[f"{name}.weight"] for name in ("q", "k", "v")]
    biases = [state[f"{name}.bias"] for name in ("q", "k", "v")]
    own = {"qkv": torch.cat(weights), "bias": torch.cat(biases)}
    rest = {name: each for name, each in state.items() if name.startswith(("out", "norm"))}
    port.load_state_dict({**own, **rest})
    return port
"""


@pytest.fixture
def report_on(tmp_path, monkeypatch, one_thread):
    """Compare a port with one edit with the reference, and return the report."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(prove, "SECONDS", 20.0)

    def report(old, new, also=("", "")):
        path = tmp_path / "written_port.py"
        assert PORT.count(old) == 1
        path.write_text(PORT.replace(old, new).replace(*also), encoding="utf-8")
        linecache.checkcache(str(path))
        namespace = {"__name__": "written_port", "__file__": str(path)}
        monkeypatch.setitem(sys.modules, "written_port", type(sys)("written_port"))
        sys.modules["written_port"].__dict__.update(namespace)
        exec(compile(path.read_text(), str(path), "exec"), sys.modules["written_port"].__dict__)  # noqa: S102
        reference = Attention().eval()
        with noted():
            port = sys.modules["written_port"].convert(reference).eval()
            traces = [pytest_tfdebug.trace(each, X, MASK) for each in (reference, port)]
            return pytest_tfdebug.compare(*traces), path.read_text()

    return report


@pytest.mark.parametrize(
    ("right", "wrong", "says"),
    [
        ("padding[:, None, None, :]", "padding[:, None, :, None]", "padding[:, None, None, :]"),
        ("padding = mask == 0", "padding = mask != 0", "(mask == 0)"),
        ("return self.width // self.heads", "return self.width // self.width", "self.heads"),
        (
            "return self.norm(x + self.out(mixed))",
            "if self.training and x.dim() == 3:\n            return self.norm(x + self.out(mixed))\n        return x + self.out(mixed)",
            "(x.dim() == 3)",
        ),
        ('for name in ("q", "k", "v")]\n    biases', 'for name in ("k", "q", "v")]\n    biases', '"q", "k", "v"'),
    ],
)
def test_line_is_named_with_a_patch(report_on, tmp_path, right, wrong, says):
    report, text = report_on(right, wrong)
    culprit = report.culprit

    line = text[: text.index(wrong)].count("\n") + 1
    assert (culprit.source.first, culprit.source.last) == (line, line), report
    assert culprit.proved.endswith("every output agrees, also on inputs that were not searched"), report
    assert f"+{says}" in culprit.patch.replace(" ", "") or says in culprit.patch, culprit.patch
    assert dataclasses.is_dataclass(culprit)
    assert (tmp_path / "written_port.py").read_text() == text


def test_port_is_left_as_it_was(report_on):
    report_on("padding = mask == 0", "padding = mask != 0")
    port = sys.modules["written_port"]

    assert port.hidden_keys.__code__.co_consts[1:2] == (0,)
    assert not {"qkv", "scale"} & vars(port.Port).keys()


@pytest.mark.parametrize(
    ("line", "has"),
    [
        ("torch.save(state, path)", True),
        ("open(path, 'w').write(text)", True),
        ("open(path, mode).read()", True),
        ("os.remove(path)", True),
        ("shutil.rmtree(path)", True),
        ("while x < 3: x += 1", True),
        ("open(path).read()", False),
        ("os.path.join(path, name)", False),
        ("torch.load(path)", False),
        ("for x in range(3): y = x", False),
    ],
)
def test_what_writes_or_may_not_end_has_side_effects(line, has):
    assert has_side_effects(ast.parse(line)) == has


def test_what_writes_a_file_is_not_run_with_an_edit(report_on, tmp_path):
    saved = "    torch.save({**own, **rest}, 'converted.pt')\n    return port\n"
    wrong = 'for name in ("k", "q", "v")]\n    biases'
    report, _ = report_on('for name in ("q", "k", "v")]\n    biases', wrong, also=("    return port\n", saved))

    written = torch.load(tmp_path / "converted.pt", weights_only=True)
    right = Attention().state_dict()
    assert torch.equal(written["qkv"], torch.cat([right[f"{name}.weight"] for name in "kqv"]))
    assert not report.ok
    assert not report.culprit.patch


def endless():
    while True:
        pass


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="there is no timer")
def test_run_that_does_not_end_is_given_up():
    before = signal.getsignal(signal.SIGALRM)
    with pytest.raises(NotTriedError, match="too long"), _given_up_after(0.05):
        endless()

    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGALRM) is before


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="there is no timer")
def test_timer_of_others_is_left_alone():
    signal.setitimer(signal.ITIMER_REAL, 60)
    try:
        with _given_up_after(0.01):
            assert signal.getitimer(signal.ITIMER_REAL)[0] > 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def test_long_expression_is_told_by_what_is_other_in_it():
    old = "torch.ones(length, length, dtype=torch.bool, device=keep.device).triu().logical_not()"

    assert edited_module._short(old, old.replace("triu()", "triu(1)")) == (
        "...e=keep.device).triu().logical_not()",
        "...e=keep.device).triu(1).logical_not()",
    )
