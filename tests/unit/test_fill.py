import copy
from hashlib import sha256

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from pytest_tfdebug import TFDebugError, fill
from pytest_tfdebug.goldens import weights


class Small(nn.Module):
    def __init__(self, hidden=8):
        super().__init__()
        self.embed = nn.Embedding(16, hidden)
        self.conv = nn.Conv1d(hidden, hidden, 3, padding=1)
        self.norm = nn.LayerNorm(hidden)
        self.head = nn.Linear(hidden, 16, bias=False)
        self.scale = nn.Parameter(torch.tensor(2.0))
        self.register_buffer("table", torch.arange(4.0))

    def forward(self, ids):
        hidden = self.embed(ids)
        hidden = hidden + self.conv(hidden.mT).mT
        return self.head(self.norm(hidden)) * self.scale


def values(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def digest(model):
    state = sorted(model.named_parameters(remove_duplicate=False))
    data = b"".join(name.encode() + tensor.detach().float().numpy().tobytes() for name, tensor in state)
    return sha256(data).hexdigest()[:16]


def test_values_are_pinned_for_every_version_and_machine():
    linear = fill(nn.Linear(2, 3))

    expected = ["-0x1.3d08960000000p-2", "0x1.7290380000000p-2", "0x1.aa542c0000000p-1"]
    expected += ["0x1.3ac16c0000000p-1", "0x1.fad04e0000000p-1", "0x1.5443880000000p-3"]
    assert [number.hex() for number in linear.weight.flatten().tolist()] == expected
    expected = ["-0x1.f1a1da0000000p-6", "0x1.bf209a0000000p-8", "-0x1.a4ef9a0000000p-5"]
    assert [number.hex() for number in linear.bias.tolist()] == expected


def test_it_returns_the_model_and_leaves_buffers_and_random_numbers_alone():
    model, state = Small(), torch.random.get_rng_state()

    filled = fill(model)

    assert filled is model
    assert torch.equal(model.table, torch.arange(4.0))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_how_a_model_was_initialized_makes_no_difference():
    torch.manual_seed(0)
    one = values(fill(Small()))
    torch.manual_seed(1)
    other = values(fill(Small()))

    assert all(torch.equal(one[name], other[name]) for name in one)


def test_parameter_more_changes_no_other():
    class More(Small):
        def __init__(self):
            super().__init__()
            self.adapter = nn.Linear(8, 8)

    one, other = values(fill(Small())), values(fill(More()))

    assert all(torch.equal(one[name], other[name]) for name in one)
    assert "adapter.weight" in other


@given(st.integers(-(2**70), 2**70), st.integers(-(2**70), 2**70))
@settings(max_examples=20, deadline=None)
def test_seed_decides_the_values(one, other):
    first, second = fill(nn.Linear(4, 4), one), fill(nn.Linear(4, 4), other)

    assert torch.equal(first.weight, second.weight) == (one == other)


@given(st.lists(st.integers(1, 7), min_size=0, max_size=4), st.sampled_from(["weight", "bias", "gamma", "it"]))
@settings(max_examples=60, deadline=None)
def test_values_stay_within_their_bounds(shape, name):
    module = nn.Module()
    module.register_parameter(name, nn.Parameter(torch.full(shape, torch.nan)))

    tensor = fill(module).get_parameter(name)

    centre = float(len(shape) < 2 and name in ("weight", "gamma"))
    assert torch.isfinite(tensor).all()
    assert (tensor - centre).abs().max() <= (0.1 + 1e-7 if len(shape) < 2 else 3**0.5 + 1e-7)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_another_dtype_has_the_same_values_rounded(dtype):
    expected = fill(Small()).to(dtype)
    actual = fill(Small().to(dtype))

    assert all(torch.equal(value, actual.state_dict()[name]) for name, value in expected.state_dict().items())


def test_large_weight_is_filled_in_parts_that_make_no_difference(monkeypatch):
    whole = fill(nn.Linear(64, 33)).weight.clone()
    monkeypatch.setattr(weights, "_PART", 100)

    assert torch.equal(fill(nn.Linear(64, 33)).weight, whole)


def test_variance_is_that_of_the_inputs_of_a_weight():
    linear, conv = fill(nn.Linear(256, 300)), fill(nn.Conv1d(64, 100, 5))
    experts = nn.Module()
    experts.gate = nn.Parameter(torch.empty(8, 64, 128))
    fill(experts)

    assert linear.weight.std().item() == pytest.approx(256**-0.5, rel=0.02)
    assert conv.weight.std().item() == pytest.approx((64 * 5) ** -0.5, rel=0.02)
    assert experts.gate.std().item() == pytest.approx(128**-0.5, rel=0.02)


def test_tied_weights_get_the_values_of_their_first_name_in_any_order():
    one, other = Small(), Small()
    one.head.weight = one.embed.weight
    other.embed.weight = other.head.weight
    untied = fill(Small())

    assert torch.equal(fill(one).head.weight, fill(other).embed.weight)
    assert one.head.weight is one.embed.weight
    assert torch.equal(one.embed.weight, untied.embed.weight)


def test_compiled_model_has_the_values_of_the_model():
    compiled = nn.Module()
    compiled._orig_mod = Small()  # as torch.compile has it

    fill(compiled)

    assert torch.equal(compiled._orig_mod.embed.weight, fill(Small()).embed.weight)


def test_table_of_positions_that_is_not_trained_stays():
    model = Small()
    model.embed_positions = nn.Embedding.from_pretrained(torch.ones(4, 8), freeze=True)
    before = model.embed_positions.weight.clone()

    assert torch.equal(fill(model).embed_positions.weight, before)
    assert not torch.equal(
        fill(copy.deepcopy(model).requires_grad_(requires_grad=False)).embed_positions.weight, before
    )


def test_complex_parameters_have_both_parts():
    module = nn.Module()
    module.weight = nn.Parameter(torch.zeros(4, 4, dtype=torch.complex64))

    tensor = fill(module).weight

    assert (tensor.real != 0).all()
    assert (tensor.imag != 0).all()


@pytest.mark.parametrize(
    ("model", "told"),
    [
        (nn.Linear(2, 2, device="meta"), "'bias' has no memory yet (device meta): model.to_empty(device='cpu') before"),
        (nn.LazyLinear(2), "'bias' has no shape yet: run the model once before fill."),
        ("model", "fill takes a torch.nn.Module, not str."),
    ],
    ids=["meta", "lazy", "text"],
)
def test_what_cannot_be_filled_is_refused(model, told):
    with pytest.raises(TFDebugError) as caught:
        fill(model)
    assert str(caught.value).startswith(told)


def test_quantized_parameters_are_refused_before_anything_is_written():
    model = Small()
    model.packed = nn.Parameter(torch.zeros(2, dtype=torch.int8), requires_grad=False)
    before = values(model)

    with pytest.raises(TFDebugError, match="'packed' is int8, whose raw values have no meaning"):
        fill(model)
    assert all(torch.equal(before[name], value) for name, value in values(model).items())


@pytest.mark.parametrize("seed", [1.0, "0", True, None])
def test_seed_that_is_no_whole_number_is_refused(seed):
    with pytest.raises(TFDebugError, match="is not a whole number"):
        fill(nn.Linear(2, 2), seed)


def architectures():
    """Eight architectures as small as they can be, by name."""
    import transformers as hf

    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    text = {**sizes, "vocab_size": 99, "max_position_embeddings": 64}
    grouped = {**text, "num_key_value_heads": 2}
    layers = {
        f"{side}_{what}": n for side in ("encoder", "decoder") for what, n in (("layers", 2), ("attention_heads", 4))
    }
    tokens = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    whisper = {**layers, **tokens, "vocab_size": 99, "d_model": 32, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64}
    return {
        "llama": hf.LlamaForCausalLM(hf.LlamaConfig(**grouped)),
        "qwen2": hf.Qwen2ForCausalLM(hf.Qwen2Config(**grouped)),
        "gemma2": hf.Gemma2ForCausalLM(hf.Gemma2Config(**grouped, head_dim=8)),
        "gpt2": hf.GPT2LMHeadModel(hf.GPT2Config(vocab_size=99, n_positions=64, n_embd=32, n_layer=2, n_head=4)),
        "bert": hf.BertForMaskedLM(hf.BertConfig(**text)),
        "t5": hf.T5ForConditionalGeneration(
            hf.T5Config(vocab_size=99, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4)
        ),
        "mamba": hf.MambaForCausalLM(hf.MambaConfig(vocab_size=99, hidden_size=32, num_hidden_layers=2, state_size=8)),
        "whisper": hf.WhisperForConditionalGeneration(
            hf.WhisperConfig(**whisper, num_mel_bins=8, max_source_positions=16, max_target_positions=32)
        ),
    }


def test_eight_architectures_have_the_same_weights_under_every_version_of_transformers():
    """``make test-oldest`` runs it on transformers 4.56, where ``manual_seed`` gives four of them other weights."""
    digests = {name: digest(fill(model)) for name, model in architectures().items()}

    assert digests == {
        "llama": "96693b478b51c72c",
        "qwen2": "660eea9903d6f102",
        "gemma2": "c3f59c0efd9c9184",
        "gpt2": "80c20799e52a023f",
        "bert": "21e10b35c0d6fddf",
        "t5": "63ac05d4cf2183e7",
        "mamba": "f88a067d4053dc55",
        "whisper": "22074cd45278f468",
    }


def test_answers_of_filled_models_are_of_a_size_that_shows_a_mistake():
    ids = torch.arange(2, 22).view(2, 10)
    models = architectures()
    logits = {name: fill(models[name]).eval()(ids).logits for name in ("llama", "gemma2", "gpt2", "bert", "mamba")}

    assert all(0.5 < tensor.std() < 3 for tensor in logits.values())
    assert all(tensor.abs().max() < 20 for tensor in logits.values())
