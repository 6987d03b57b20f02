"""What is wrong with a port is proved: by the change of one place after which every output agrees."""

import copy
import inspect
import linecache
import re
import time
import warnings
from dataclasses import replace

import pytest
import torch

import pytest_tfdebug
from bugs import BUGS
from injections import edit
from llama_port import Block, load_port, load_reference
from models import build
from nightly import every_second
from pytest_tfdebug import errors
from pytest_tfdebug.parity.find import proof as explained
from pytest_tfdebug.parity.find import several
from pytest_tfdebug.parity.proof import budget, prove, search
from pytest_tfdebug.records import SourceRange


@pytest.fixture(autouse=True)
def _as_long_as_it_takes(monkeypatch, one_thread):
    monkeypatch.setattr(prove, "SECONDS", 120.0)


def report_on(architecture, *changes):
    """Return the report on a model that was changed."""
    right, inputs = build(architecture)
    wrong = copy.deepcopy(right)
    with torch.no_grad():
        for change in changes:
            change(wrong)
    return pytest_tfdebug.compare(pytest_tfdebug.trace(right, **inputs), pytest_tfdebug.trace(wrong, **inputs))


def report_on_bug(name):
    bug = next(bug for bug in BUGS if bug.name == name)
    return report_on(bug.architecture, bug.inject)


@pytest.mark.parametrize(
    ("bug", "sentence"),
    every_second(
        [
            ("llama-eps", "with eps 1e-06, as the reference has, instead of 1e-05"),
            ("bert-eps", "with eps 1e-12, as the reference has, instead of 0.001 at modeling_bert.py:"),
            ("whisper-same-padding-on-one-side", "with pad (1, 1) instead of (0, 1)"),
            (
                "gemma3-gelu-instead-of-gelu-tanh",
                "with gelu_tanh instead of model.layers.0.mlp.act_fn at activations.py:",
            ),
            ("mixtral-router-sigmoid", "with softmax instead of sigmoid at modeling_mixtral.py:"),
            ("mamba-fused-projection-read-backwards", "with its parts in the order (0, 2, 1) at modeling_mamba.py:"),
            ("bert-position-offset", "with add left out at modeling_bert.py:"),
            ("llama-final-norm-twice", "with model.norm left out at modeling_llama.py:"),
            ("mixtral-rope-theta-defaulted", "with model.rotary_emb.inv_freq of base 1e+06 at modeling_mixtral.py:"),
            ("qwen3-head-not-tied", "with model.embed_tokens.weight instead of lm_head.weight at modeling_qwen3.py:"),
            ("t5-gate-and-up-swapped", "wi_0.weight and encoder.block.0.layer.1.DenseReluDense.wi_1.weight exchanged"),
        ]
    ),
)
def test_change_that_mends_every_output_is_told(bug, sentence):
    report = report_on_bug(bug)

    assert report.culprit is not None
    assert sentence in report.culprit.proved
    assert f"Proved: {report.culprit.proved}." in " ".join(str(report).split())
    assert "every output agrees" in report.culprit.proved
    assert report.culprit.path == next(each.culprit for each in BUGS if each.name == bug)


@pytest.mark.parametrize(
    ("bug", "sentence"),
    [
        ("llama-residual-dropped-in-second-layer", "the add of modeling_llama.py:"),
        ("whisper-query-scale-missing", "the mul of modeling_whisper.py:"),
        ("llama-final-norm-skipped", "model.norm, called at modeling_llama.py:"),
    ],
)
def test_step_that_is_missing_is_left_out_of_the_reference(bug, sentence):
    culprit = report_on_bug(bug).culprit

    assert culprit.proved.startswith(f"your port lacks {sentence}")
    assert culprit.reference is not None
    assert [(each.side, each.kind, each.new) for each in culprit.changes[:1]] == [("reference", "left out", "")]
    assert culprit.changes[0].file.endswith(sentence.split()[-1].rstrip(":"))


def without_layer_norm(model):
    model.embeddings.LayerNorm.forward = lambda given: given


def without_feed_forward(model):
    for layer in model.encoder.layer:
        layer.feed_forward_chunk = lambda given: given


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (without_layer_norm, "embeddings.LayerNorm, called at modeling_bert.py:"),
        (without_feed_forward, "on at modeling_bert.py:"),
    ],
)
def test_steps_of_several_tensors_or_in_later_modules_are_left_out(change, sentence):
    culprit = report_on("bert", change).culprit

    assert culprit.proved.startswith("your port lacks ")
    assert sentence in culprit.proved


def test_reduction_that_is_missing_is_left_out_of_the_reference():
    norms = edit("LlamaRMSNorm", "hidden_states.pow(2).mean(-1, keepdim=True)", "hidden_states.pow(2)")

    culprit = report_on("llama", norms).culprit

    assert culprit.proved.startswith("your port lacks the mean of modeling_llama.py:")
    assert "hidden_states.pow(2).mean" in linecache.getline(culprit.reference.file, culprit.reference.first)


def noise_in(path, **how):
    """Return a change that no edit of code makes: noise on all elements of a weight."""

    def change(model):
        parameter = model.get_parameter(path)
        parameter += torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)) * how.get("size", 0.1)

    return change


@pytest.mark.parametrize(
    ("architecture", "weight"),
    [
        ("llama", "model.layers.0.self_attn.q_proj.weight"),
        ("vit", "vit.layers.0.mlp.fc1.weight"),
    ],
)
def test_nothing_is_proved_of_what_no_edit_makes(architecture, weight):
    report = report_on(architecture, noise_in(weight))

    assert report.culprit is not None
    assert not report.culprit.proved
    assert "Proved" not in str(report)


def test_scale_that_no_table_has_is_solved_for():
    class Scaled(torch.nn.Module):
        def __init__(self, scale):
            super().__init__()
            self.up, self.down, self.scale = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8), scale

        def forward(self, x):
            return self.down((self.up(x) * self.scale).tanh())

    class Divided(Scaled):
        def forward(self, x):
            return self.down((self.up(x) / self.scale).tanh())

    torch.manual_seed(0)
    right, wrong, x = Scaled(0.37), Divided(1.91), torch.randn(5, 8)
    wrong.load_state_dict(right.state_dict())

    culprit = pytest_tfdebug.compare(pytest_tfdebug.trace(right, x), pytest_tfdebug.trace(wrong, x)).culprit

    told = f"with divisor {1 / 0.37:.6g}, 1 / the reference's scale 0.37, instead of 1.91 at test_proof.py:"
    assert told in culprit.proved


@pytest.mark.searches_may_fail
def test_search_that_raises_costs_nothing_and_is_logged(monkeypatch, caplog):
    monkeypatch.delattr(errors.logger, "debug")  # see tests/conftest.py

    def raising(*_given):
        raise MemoryError

    monkeypatch.setattr(search.Search, "run", raising)
    monkeypatch.setattr(several, "find_fronts", raising)
    caplog.set_level("DEBUG", "pytest_tfdebug")

    report = report_on_bug("llama-eps")

    assert report.culprit is not None
    assert not report.culprit.proved
    assert [(record.message, record.exc_info[0]) for record in caplog.records] == [
        ("the search for every fault failed", MemoryError),
        ("The search for a proof failed: MemoryError", MemoryError),
    ]


@pytest.mark.parametrize("eps", [0.001, 0.03, 0.5])
def test_number_that_the_reference_has_is_tried_before_any_other(eps):
    def change(model):
        model.model.layers[1].post_attention_layernorm.variance_epsilon = eps

    culprit = report_on("llama", change).culprit
    proved = culprit.proved

    assert re.match(rf"with eps 1e-06, as the reference has, instead of {eps} at modeling_llama\.py:\d+ every", proved)
    assert [(each.side, each.kind, float(each.old), each.new) for each in culprit.changes] == [
        ("port", "number", eps, "1e-06")
    ]


def test_what_a_change_warns_of_is_neither_shown_nor_an_error(monkeypatch, recwarn):
    tried = search.Search._tried

    def warned(*given):
        warnings.warn("of what nobody wrote", UserWarning, stacklevel=1)
        return tried(*given)

    monkeypatch.setattr(search.Search, "_tried", warned)

    assert "with eps 1e-06, as the reference has, instead of 1e-05" in report_on_bug("llama-eps").culprit.proved
    assert not [each for each in recwarn if "nobody wrote" in str(each.message)]


def test_search_ends_when_its_time_is_over(monkeypatch):
    monkeypatch.setattr(prove, "SECONDS", 1.0)
    monkeypatch.setattr(budget, "WAITING", 8.0)
    seen = []
    monkeypatch.setattr(search.Search, "_tried", lambda _self, change: seen.append(change) or time.sleep(0.04))

    report_on_bug("llama-eps")

    assert 0 < len(seen) < 400


def test_without_seconds_nothing_is_tried(monkeypatch):
    monkeypatch.setattr(prove, "SECONDS", 0)

    assert not report_on_bug("llama-eps").culprit.proved


class Renamed(torch.nn.Module):
    """A port that returns its states under names of its own, in another order."""

    def __init__(self, model):
        super().__init__()
        self.own = model

    def forward(self, **inputs):
        out = self.own(**inputs, output_hidden_states=True)
        return {"c": out.hidden_states[2], "a": out.hidden_states[1], "b": out.hidden_states[0]}


def test_which_output_is_which_may_be_a_guess():
    right, inputs = build("bert")
    wrong = copy.deepcopy(right)
    for layer in wrong.encoder.layer:
        layer.attention.output.LayerNorm.eps = 1e-2

    expected = pytest_tfdebug.trace(right, **inputs, output_hidden_states=True)
    report = pytest_tfdebug.compare(expected, pytest_tfdebug.trace(Renamed(wrong), **inputs))

    assert "eps 1e-12, as the reference has, instead of 0.01 at modeling_bert.py:" in report.culprit.proved


class Masked(torch.nn.Module):
    """Attention that hides pads from pads."""

    def __init__(self):
        super().__init__()
        self.out = torch.nn.Linear(4, 4)

    def forward(self, states, pads):
        scores = states @ states.transpose(1, 2)
        hidden = (pads[:, None] + pads[:, :, None]) == 0
        return self.out(scores.masked_fill(hidden, -1e4).softmax(-1) @ states)


class MaskedPort(torch.nn.Module):
    """A port of it that hides more."""

    def __init__(self):
        super().__init__()
        self.proj = torch.nn.Linear(4, 4)

    def forward(self, states, pads):
        mask = pads.unsqueeze(1) * pads.unsqueeze(2)
        weights = torch.bmm(states, states.mT)
        weights[mask == 0] = -1e4
        return self.proj(torch.bmm(weights.softmax(-1), states))


def test_change_of_a_mask_proves_no_line_for_certain(monkeypatch):
    monkeypatch.setattr("pytest_tfdebug.parity.find.several.with_edits", lambda look, _: look)
    torch.manual_seed(0)
    right, wrong = Masked().eval(), MaskedPort().eval()
    wrong.proj.load_state_dict(right.out.state_dict())
    given = torch.randn(2, 5, 4), torch.tensor([[1.0, 1, 1, 1, 0], [1, 1, 1, 0, 0]])

    report = pytest_tfdebug.compare(pytest_tfdebug.trace(right, *given), pytest_tfdebug.trace(wrong, *given))

    assert "with add instead of mul" in report.culprit.proved
    assert not report.culprit.certain


@pytest.fixture
def report_on_port_without_mixer(monkeypatch):
    """Return a function that gives the report on a port whose first block ends early, of what another line may seem."""

    def report(seems=lambda named: named):
        prove = explained.with_proof
        monkeypatch.setattr(
            "pytest_tfdebug.parity.find.several.with_proof",
            lambda look, *found: prove(replace(look, claim=seems(look.claim)), *found),
        )
        reference = load_reference()
        port = load_port(reference)
        edit("blocks.0", "return hidden + self.mixer(self.mixer_norm(hidden))", "return hidden")(port)
        ids = torch.arange(3, 19).view(2, 8)
        return pytest_tfdebug.compare(pytest_tfdebug.trace(reference, input_ids=ids), pytest_tfdebug.trace(port, ids))

    return report


def test_what_takes_a_weight_is_no_other_activation(report_on_port_without_mixer):
    culprit = report_on_port_without_mixer().culprit

    assert "your port lacks the add of modeling_llama.py:312" in culprit.proved
    assert "instead of model.layers.0.post_attention_layernorm" not in culprit.proved


def test_proved_step_of_the_reference_is_missing_after_its_operand(report_on_port_without_mixer):
    lines, first = inspect.getsourcelines(Block.forward)
    before = first + next(place for place, line in enumerate(lines) if "self.attention_norm" in line)

    culprit = report_on_port_without_mixer(
        lambda named: replace(named, path="tokens", source=SourceRange(named.source.file, 1, 1))
    ).culprit

    assert (culprit.path, culprit.source.first) == ("blocks.0", before)
    assert culprit.wrong == "skips a step that the reference does"


class Shared(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key = torch.nn.Linear(16, 16), torch.nn.Linear(16, 8)

    def forward(self, x):
        query = self.query(x).unflatten(-1, (4, 4)).transpose(1, 2)
        keys = self.key(x).unflatten(-1, (2, 4)).transpose(1, 2).repeat_interleave(2, 1)
        return (query @ keys.mT).softmax(-1)


class OwnShared(torch.nn.Module):
    def __init__(self, other):
        super().__init__()
        self.q, self.k = other.query, other.key

    def forward(self, x):
        q = self.q(x).unflatten(-1, (4, 4)).transpose(1, 2)
        k = self.k(x).unflatten(-1, (2, 4)).transpose(1, 2)
        k = k.repeat(1, 2, 1, 1)  # BUG: the heads of a group lie side by side
        scores = q @ k.mT
        return scores.softmax(-1)


def test_elements_reordered_by_a_copy_are_wrong_at_the_copy():
    torch.manual_seed(0)
    reference, x = Shared(), torch.randn(2, 5, 16)

    culprit = pytest_tfdebug.compare(
        pytest_tfdebug.trace(reference, x), pytest_tfdebug.trace(OwnShared(reference), x)
    ).culprit

    assert "# BUG" in linecache.getline(culprit.source.file, culprit.source.first)
    assert culprit.proved.startswith("with ")


def doubled(port):
    port.norm.scale *= 2


def laid_out_by_heads(port):
    for block in port.blocks:
        weight = block.attention.qkv.weight
        weight.copy_(weight.unflatten(0, (3, block.attention.heads, -1)).transpose(0, 1).flatten(0, 2))


def transposed(port):
    for block in port.blocks:
        block.attention.merge.weight.copy_(block.attention.merge.weight.T.clone())


def exchanged(port):
    for block in port.blocks:
        block.attention_norm, block.mixer_norm = block.mixer_norm, block.attention_norm


@pytest.mark.parametrize(
    ("loaded", "wrong", "sentence", "is_certain"),
    [
        (doubled, "norm.scale", "With norm.scale as the reference's model.norm.weight every output agrees", True),
        (
            laid_out_by_heads,
            "blocks.0.attention.qkv.weight",
            "with the reference's rows one after the other in blocks.0.attention.qkv.weight (3 times) every output agrees",
            False,
        ),
        (
            transposed,
            "blocks.0.attention.merge.weight",
            "with blocks.0.attention.merge.weight transposed (3 times), or with t left out at llama_port.py:",
            False,
        ),
        (
            exchanged,
            "blocks.0.attention_norm.scale blocks.0.mixer_norm.scale",
            "attention_norm.scale and blocks.0.mixer_norm.scale exchanged (3 times) every",
            False,
        ),
    ],
)
def test_weights_that_were_loaded_otherwise_are_told_by_those_of_the_reference(loaded, wrong, sentence, is_certain):
    reference = load_reference()
    norms = [module.weight for module in reference.modules() if type(module).__name__ == "LlamaRMSNorm"]
    with torch.no_grad():
        for seed, norm in enumerate(norms):
            norm.normal_(generator=torch.Generator().manual_seed(seed))
        port = load_port(reference)
        own = [module.scale for module in port.modules() if type(module).__name__ == "Norm"]
        for mine, norm in zip(own, norms, strict=True):
            mine.copy_(norm)
        loaded(port)
    ids = torch.arange(3, 19).view(2, 8)

    culprit = pytest_tfdebug.compare(
        pytest_tfdebug.trace(reference, input_ids=ids), pytest_tfdebug.trace(port, ids)
    ).culprit

    assert sentence in f"{culprit.explanation} {culprit.proved}"
    assert (culprit.kind, culprit.weights[: len(wrong.split())]) == ("weights", tuple(wrong.split()))
    assert culprit.certain == is_certain
    assert (loaded is exchanged) == (culprit.wrong == "uses weights in each other's place")
    assert (loaded is exchanged) == ("They are used at llama_port.py:" in culprit.explanation)


def test_proof_goes_before_a_weight_that_another_module_holds_folded():
    reference = load_reference()
    with torch.no_grad():
        reference.model.norm.weight.normal_(generator=torch.Generator().manual_seed(0))
        port = load_port(reference)  # the scale of the last norm is 1, and that of the reference's in the head
        port.head.weight.mul_(reference.model.norm.weight)
    port.norm.eps = 1e-2
    ids = torch.arange(3, 19).view(2, 8)

    culprit = pytest_tfdebug.compare(
        pytest_tfdebug.trace(reference, input_ids=ids), pytest_tfdebug.trace(port, ids)
    ).culprit

    assert "with eps 1e-06" in culprit.proved
    assert (culprit.path, culprit.kind, culprit.weights) == ("norm", "module", ())


class Rooted(torch.nn.Module):
    """The root mean square norm, written out."""

    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.linspace(0.5, 1.5, 16))

    def forward(self, x):
        return x * x.pow(2).mean(-1, keepdim=True).add(1e-6).rsqrt() * self.scale


class Whole(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.norm = torch.nn.Linear(16, 32), torch.nn.Linear(32, 16), Rooted()

    def forward(self, x):
        normed = self.norm(x)
        inner = self.first(normed)
        inner = torch.nn.functional.silu(inner)
        made = self.second(inner)
        made = made * 0.37
        summed = made + x
        return summed.cumsum(1)


class OwnWhole(torch.nn.Module):
    def __init__(self, other, lacks):
        super().__init__()
        self.up, self.down, self.scaling, self.lacks = other.first, other.second, other.norm, lacks

    def forward(self, x):
        h = x if self.lacks == "norm" else self.scaling(x)
        h = self.up(h)
        h = h if self.lacks == "activation" else h * torch.sigmoid(h)
        h = self.down(h)
        h = h if self.lacks == "scale" else 0.37 * h
        h = h if self.lacks == "residual" else x + h
        return torch.cumsum(h, 1)


@pytest.mark.parametrize(
    ("lacks", "proved", "reference"),
    [
        ("residual", r"with the input \[0\] added at test_proof\.py:\d+ ", "summed = made + x"),
        ("scale", r"with the addmm of line \d+ times 0\.37 at test_proof\.py:\d+ ", "made = made * 0.37"),
        (
            "activation",
            r"with silu of the addmm of line \d+ at test_proof\.py:\d+ ",
            "inner = torch.nn.functional.silu(inner)",
        ),
        ("norm", "", "normed = self.norm(x)"),
    ],
)
def test_golden_alone_tells_the_step_that_a_port_lacks(tmp_path, lacks, proved, reference):
    torch.manual_seed(0)
    right, x = Whole(), torch.randn(2, 5, 16)
    pytest_tfdebug.trace(right, x).save(tmp_path / "golden.safetensors")

    culprit = pytest_tfdebug.compare(
        pytest_tfdebug.Trace.load(tmp_path / "golden.safetensors"), pytest_tfdebug.trace(OwnWhole(right, lacks), x)
    ).culprit

    assert re.match(proved, culprit.proved)
    assert culprit.wrong == "skips a step that the reference does"
    assert linecache.getline(culprit.reference.file, culprit.reference.first).strip() == reference


class Scores(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key = torch.nn.Linear(16, 16), torch.nn.Linear(16, 16)

    def forward(self, x):
        return (self.query(x) @ self.key(x).mT).softmax(-1)


class OwnScores(torch.nn.Module):
    """Holds the rows of both weights in an order of its own."""

    def __init__(self, other):
        super().__init__()
        self.q, self.k = copy.deepcopy(other.query), copy.deepcopy(other.key)
        for each in (*self.q.parameters(), *self.k.parameters()):
            each.data = each.data.flip(0)

    def forward(self, x):
        return (self.k(x) @ self.q(x).mT).softmax(-1)  # BUG: taken for each other


def test_weights_that_the_code_may_exchange_are_not_certainly_wrong():
    torch.manual_seed(0)
    right, x = Scores(), torch.randn(2, 5, 16)

    culprit = pytest_tfdebug.compare(pytest_tfdebug.trace(right, x), pytest_tfdebug.trace(OwnScores(right), x)).culprit

    assert "exchanged every output agrees" in culprit.proved
    assert (culprit.wrong, culprit.certain) == ("uses weights in each other's place", False)


class Named(Whole):
    """Returns what it makes alone, or more under a name that is like the port's."""

    def __init__(self, *, is_verbose=False):
        super().__init__()
        self.is_verbose = is_verbose

    def forward(self, x):
        made = super().forward(x)
        return {"hidden": x * 3, "out": made} if self.is_verbose else {"hidden_state": made}


class OwnNamed(OwnWhole):
    def __init__(self, other, *, is_verbose):
        super().__init__(other, "scale")
        self.is_verbose = is_verbose

    def forward(self, x):
        made = super().forward(x)
        return {"hidden": x * 2, "out": made} if self.is_verbose else {"hidden_state": made}


@pytest.mark.parametrize("is_port_verbose", [True, False])
def test_output_of_unknown_name_may_be_any_of_its_size(is_port_verbose):
    torch.manual_seed(0)
    right, x = Named(is_verbose=not is_port_verbose), torch.randn(2, 5, 16)
    port = OwnNamed(right, is_verbose=is_port_verbose)

    culprit = pytest_tfdebug.compare(pytest_tfdebug.trace(right, x), pytest_tfdebug.trace(port, x)).culprit

    told = "with mul(0.37) of the addmm of line" if not is_port_verbose else "your port lacks the mul of test_proof.py:"
    assert told in culprit.proved
    assert "made = made * 0.37" in linecache.getline(culprit.reference.file, culprit.reference.first)


def both_ways(made):
    """Return scores of texts for images, and of images for texts, as CLIP does."""
    scores = made.flatten(1) @ made.flatten(1).cumsum(1).mT
    return {"logits_per_image": scores.mT, "logits_per_text": scores}


class Scored(Whole):
    def forward(self, x):
        return both_ways(super().forward(x))


class OwnScored(OwnWhole):
    def forward(self, x):
        return both_ways(super().forward(x))


def test_output_that_shows_another_output_is_held_to_that_of_its_name():
    torch.manual_seed(0)
    right, x = Scored(), torch.randn(4, 5, 16)
    port = OwnScored(right, "scale")

    culprit = pytest_tfdebug.compare(pytest_tfdebug.trace(right, x), pytest_tfdebug.trace(port, x)).culprit

    assert re.search(r"with mul\(0\.37\) of the addmm of line \d+, as test_proof\.py:\d+ does, at", culprit.proved)


class Deep(torch.nn.Module):
    """Many layers, and a norm behind them."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(16, 16) for _ in range(24))
        self.norm = Rooted()

    def forward(self, x, _mask):
        for layer in self.layers:
            x = x + torch.nn.functional.silu(layer(x))
        return self.norm(x)[:, :4]


class OwnDeep(torch.nn.Module):
    """Makes zeros of what the mask hides, as some ports do: all that is computed there differs."""

    def __init__(self, other):
        super().__init__()
        self.blocks, self.last = other.layers, other.norm

    def forward(self, x, mask):
        x = x * mask[..., None]
        for block in self.blocks:
            x = x + torch.nn.functional.silu(block(x))
        return x[:, :4]  # BUG: without the norm


def test_step_whose_weights_the_port_does_not_use_is_tried_first():
    torch.manual_seed(0)
    right, x, mask = Deep(), torch.randn(2, 6, 16), torch.ones(2, 6)
    mask[:, 4:] = 0

    culprit = pytest_tfdebug.compare(
        pytest_tfdebug.trace(right, x, mask), pytest_tfdebug.trace(OwnDeep(right), x, mask)
    )

    assert "your port lacks norm, called at test_proof.py:" in culprit.culprit.proved
    assert culprit.culprit.wrong == "skips a step that the reference does"


class Mixed(torch.nn.Module):
    """A block with a weight of its own, whose result is joined with what it is given."""

    def __init__(self):
        super().__init__()
        self.mix, self.feed = torch.nn.Linear(16, 16), torch.nn.Linear(16, 16)

    def forward(self, x):
        mixed = x + torch.tanh(self.mix(x))
        fed = torch.nn.functional.silu(self.feed(mixed))
        return mixed + fed


class Stack(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.layers = torch.nn.Sequential(Mixed()), torch.nn.ModuleList(Mixed() for _ in range(3))
        self.norm = torch.nn.LayerNorm(16)

    def forward(self, x):
        x = self.stem(x)
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


class OwnStack(torch.nn.Module):
    def __init__(self, other, lacks):
        super().__init__()
        self.blocks, self.last, self.lacks = torch.nn.ModuleList([other.stem[0], *other.layers]), other.norm, lacks

    def forward(self, x):
        for place, block in enumerate(self.blocks):
            if self.lacks == "layers" and place:
                block(x)  # BUG: what it gives is not used
            elif self.lacks == "feed":
                x = x + torch.tanh(block.mix(x))
                torch.nn.functional.silu(block.feed(x))  # BUG: nor is this
            else:
                x = block(x)
        return self.last(x)


@pytest.mark.parametrize(
    ("lacks", "here", "proved", "reference"),
    [
        (
            "layers",
            "block(x)  # BUG",
            r"your port lacks layers\.0, called at .* \(in 3 places\)",
            "x = layer(x)",
        ),
        (
            "feed",
            "torch.nn.functional.silu(block.feed(x))  # BUG",
            r"your port lacks the add of .* \(in 4 places\)",
            "return mixed + fed",
        ),
    ],
)
def test_unused_value_of_a_port_is_left_out_of_the_reference_too(lacks, here, proved, reference):
    torch.manual_seed(0)
    right, x = Stack(), torch.randn(2, 5, 16)

    culprit = pytest_tfdebug.compare(
        pytest_tfdebug.trace(right, x), pytest_tfdebug.trace(OwnStack(right, lacks), x)
    ).culprit

    assert re.match(proved, culprit.proved)
    assert culprit.wrong == "skips a step that the reference does"
    assert linecache.getline(culprit.source.file, culprit.source.first).strip().startswith(here)
    assert linecache.getline(culprit.reference.file, culprit.reference.first).strip() == reference


class Skipped(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scan, self.weight = torch.nn.Linear(16, 16), torch.nn.Parameter(torch.randn(16))

    def forward(self, x):
        padded = torch.nn.functional.pad(x, (0, 0, 0, 3), value=2.0)
        skipped = self.weight * padded
        return (self.scan(padded).cumsum(1) + skipped).tanh()


class OwnSkipped(torch.nn.Module):
    def __init__(self, other):
        super().__init__()
        self.inner, self.direct = other.scan, other.weight

    def forward(self, x):
        long = torch.nn.functional.pad(x, (0, 0, 0, 3), value=2.0)
        return torch.tanh(self.inner(long).cumsum(1) + self.direct)  # BUG: times what is long


def test_unused_operand_is_told_at_its_use_and_not_at_its_copy():
    torch.manual_seed(0)
    right, x = Skipped(), torch.randn(2, 5, 16)

    culprit = pytest_tfdebug.compare(pytest_tfdebug.trace(right, x), pytest_tfdebug.trace(OwnSkipped(right), x)).culprit

    assert "taken as 1" in culprit.proved
    assert (
        linecache.getline(culprit.reference.file, culprit.reference.first).strip() == "skipped = self.weight * padded"
    )


class Correlation(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)

    def forward(self, x):
        seen = torch.fft.rfft(self.query(x), dim=1) * torch.conj(torch.fft.rfft(self.key(x), dim=1))
        return torch.fft.irfft(seen, n=x.shape[1], dim=1) * 0.25


class OwnCorrelation(torch.nn.Module):
    def __init__(self, other):
        super().__init__()
        self.q, self.k = other.query, other.key

    def forward(self, x):
        seen = torch.fft.rfft(self.q(x), dim=1) * torch.conj(torch.fft.rfft(self.k(x), dim=1))
        return torch.fft.irfft(seen, n=x.shape[1], dim=1) * 0.5  # BUG: * 0.25


def test_forward_with_conjugates_is_run_again_as_any_other():
    torch.manual_seed(0)
    right, x = Correlation(), torch.randn(2, 6, 8)

    culprit = pytest_tfdebug.compare(
        pytest_tfdebug.trace(right, x), pytest_tfdebug.trace(OwnCorrelation(right), x)
    ).culprit

    assert re.match(
        r"with factor 0.25, as the reference has, instead of 0.5 at test_proof\.py:\d+ every output agrees",
        culprit.proved,
    )


class ScaledCorrelation(OwnCorrelation):
    def __init__(self, other):
        super().__init__(other)
        self.share = 1 / 2

    def forward(self, x):
        seen = torch.fft.rfft(self.q(x), dim=1) * torch.conj(torch.fft.rfft(self.k(x), dim=1))
        return torch.fft.irfft(seen, n=x.shape[1], dim=1) * self.share


def test_number_that_an_attribute_holds_is_told_where_the_constructor_chooses_it():
    torch.manual_seed(0)
    right, x = Correlation(), torch.randn(2, 6, 8)

    culprit = pytest_tfdebug.compare(
        pytest_tfdebug.trace(right, x), pytest_tfdebug.trace(ScaledCorrelation(right), x)
    ).culprit

    set_at, used_at = (f.__code__.co_firstlineno + 2 for f in (ScaledCorrelation.__init__, ScaledCorrelation.forward))
    assert "factor 0.25, as the reference has, instead of 0.5" in culprit.proved
    assert (culprit.source.first, culprit.source.last) == (set_at, set_at)
    assert culprit.why.startswith(f"It is share=0.5, which is used at test_proof.py:{used_at}.")


class Resized(torch.nn.Module):
    def __init__(self, **names):
        super().__init__()
        for name, module in names.items():
            self.add_module(name, module)

    def forward(self, image):
        return self.head(torch.nn.functional.interpolate(self.patch(image), size=(5, 5), mode="bilinear"))


class OwnResized(Resized):
    def forward(self, image):
        grid = torch.nn.functional.interpolate(self.cut(image), size=(5, 5), mode="bilinear", align_corners=True)
        return self.last(grid)


def test_flag_that_is_the_other_way_is_told_with_its_diff():
    torch.manual_seed(0)
    parts, image = [torch.nn.Conv2d(3, 4, 1), torch.nn.Conv2d(4, 2, 1)], torch.randn(2, 3, 4, 4)
    right, wrong = Resized(patch=parts[0], head=parts[1]), OwnResized(cut=parts[0], last=parts[1])

    culprit = pytest_tfdebug.compare(pytest_tfdebug.trace(right, image), pytest_tfdebug.trace(wrong, image)).culprit

    assert re.match(
        r"with align_corners False instead of True at test_proof\.py:\d+ every output agrees", culprit.proved
    )
    assert culprit.certain
    assert [(each.kind, each.old, each.new) for each in culprit.changes] == [("number", "True", "False")]
    assert 'mode="bilinear", align_corners=False)' in culprit.patch
