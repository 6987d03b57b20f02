"""What people meet who move to transformers 5, raised for real: which rule knows it, and the smallest fix."""

from __future__ import annotations

import copy

import pytest
import torch
import transformers
from safetensors.torch import save_file
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from transformers import (
    BertConfig,
    BertModel,
    CLIPTextConfig,
    CLIPTextModel,
    CLIPVisionConfig,
    DynamicCache,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    LlamaForSequenceClassification,
    LlavaConfig,
    LlavaForConditionalGeneration,
    RobertaConfig,
    RobertaModel,
    T5Config,
    T5ForConditionalGeneration,
    ViTConfig,
    ViTModel,
)

from pytest_tfdebug.triage.plugin import classify
from pytest_tfdebug.triage.rules import Failure

pytestmark = pytest.mark.skipif(transformers.__version__ < "5", reason="transformers 4 does this otherwise")

SMALL = {"vocab_size": 32, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}
BERT = SMALL | {"max_position_embeddings": 8}
VIT = SMALL | {"image_size": 8, "patch_size": 4}
IDS = torch.tensor([[1, 2, 3]])
LONG = torch.ones(1, 12, dtype=torch.long)


def llama(**options):
    return LlamaForCausalLM(LlamaConfig(**SMALL | options))


def graded(*shape):
    return torch.ones(*shape, requires_grad=True)


VIT_CONFIG = {name: value for name, value in VIT.items() if name != "vocab_size"}


def pictures():
    vision = CLIPVisionConfig(**VIT_CONFIG | {"num_hidden_layers": 2})
    config = LlavaConfig(text_config=LlamaConfig(**SMALL), vision_config=vision, image_token_id=31)
    ids = torch.tensor([[1, 31, 2]])
    return LlavaForConditionalGeneration(config)(input_ids=ids, pixel_values=torch.zeros(1, 3, 8, 8))


def prefixed(model, prefix):
    model.load_state_dict({prefix + name: tensor for name, tensor in model.state_dict().items()})


def frozen():
    model = llama()
    model.requires_grad_(requires_grad=False)
    model(input_ids=IDS, labels=IDS).loss.backward()


def twice():
    loss = graded(2).pow(2).sum()
    loss.backward()
    loss.backward()


def in_place():
    weight = graded(3)
    result = weight.exp()
    result.mul_(2)
    result.sum().backward()


def inferred():
    with torch.inference_mode():
        x = torch.ones(2, 4)
    torch.nn.Linear(4, 2)(x).sum().backward()


def recomputed():
    calls = []

    def block(x):
        calls.append(x)
        return (x * 2).sin() if len(calls) == 1 else x * 2

    checkpoint(block, graded(3), use_reentrant=False).sum().backward()


def popped():
    box = [graded(2, 3)]
    checkpoint(lambda given: torch.nn.Linear(3, 3)(given.pop(0)).relu(), box, use_reentrant=False).sum().backward()


def tuple_cache():
    k = torch.zeros(1, 2, 3, 8)
    llama()(input_ids=IDS[:, :1], past_key_values=((k, k),))


def attended(mask):
    states = torch.ones(1, 2, 3, 8)
    return functional.scaled_dot_product_attention(states, states, states, attn_mask=mask)


class Hasty(torch.nn.Module):
    """Forgets to call ``__init__`` of its base."""

    def __init__(self):
        self.linear = torch.nn.Linear(1, 1)


#: Name of the rule, and what its smallest fix says -> what raises.
RAISED = [
    ("removed-attribute", "get_seq_length(layer_idx)", lambda: DynamicCache().get_usable_length(4, 0)),
    ("removed-attribute", "get_seq_length()", lambda: DynamicCache().seen_tokens),
    ("removed-attribute", "DynamicCache(past_key_values)", lambda: DynamicCache.from_legacy_cache(None)),
    ("removed-attribute", "layer.keys, layer.values", lambda: DynamicCache().to_legacy_cache()),
    ("removed-attribute", "[layer.keys for layer", lambda: DynamicCache().key_cache),
    ("removed-attribute", "head masks are gone", lambda: BertModel(BertConfig(**BERT)).get_head_mask(None, 1)),
    ("removed-attribute", 'rope_parameters["rope_theta"]', lambda: LlamaConfig(**SMALL).rope_theta),
    ("cache-subscript", "cache.layers[i].keys", lambda: DynamicCache()[0]),
    ("tuple-for-a-cache", "DynamicCache(past_key_values)", tuple_cache),
    ("text-too-long", "max_length=8", lambda: BertModel(BertConfig(**BERT))(input_ids=LONG)),
    ("text-too-long", "max_length=6", lambda: RobertaModel(RobertaConfig(**BERT))(input_ids=LONG * 5)),
    (
        "text-too-long",
        "max_length=8",
        lambda: GPT2LMHeadModel(GPT2Config(vocab_size=32, n_embd=16, n_layer=1, n_head=2, n_positions=8))(LONG),
    ),
    ("image-tokens", "once for each feature", pictures),
    ("state-dict-does-not-fit", 'removeprefix("module.")', lambda: prefixed(llama(), "module.")),
    (
        "state-dict-does-not-fit",
        'removeprefix("text_model.")',
        lambda: prefixed(CLIPTextModel(CLIPTextConfig(**BERT)), "text_model."),
    ),
    ("attention-implementation", '"sdpa"', lambda: llama()._from_config(LlamaConfig(), attn_implementation="flash")),
    ("nothing-requires-grad", "requires_grad_(True)", frozen),
    ("nothing-requires-grad", "gradients on", lambda: torch.ones(1).backward()),
    ("changed-in-place", "out of place", in_place),
    ("backward-twice", "again before each backward", twice),
    ("leaf-in-place", "torch.no_grad()", lambda: graded(2).add_(1)),
    ("numpy-of-a-gradient", "detach()", lambda: graded(2).numpy()),
    ("inference-tensor", "clone", inferred),
    ("loss-is-no-scalar", "loss.mean()", (graded(2) * 2).backward),
    ("copy-of-a-result", "detach()", lambda: copy.deepcopy(graded(2) * 2)),
    ("unused-in-the-graph", "allow_unused", lambda: torch.autograd.grad(graded(2).sum(), [graded(2)])),
    ("recomputed-otherwise", "a function of its inputs", recomputed),
    ("recomputed-with-a-popped-input", "checkpoint(block, x)", popped),
    ("optimizer-without-parameters", "model.parameters()", lambda: torch.optim.SGD([], lr=0.1)),
    ("sizes-do-not-broadcast", "both 4 or both 9", lambda: torch.ones(4) + torch.ones(9)),
    ("view-of-another-size", "product is 120", lambda: torch.zeros(2, 5, 12).view(2, 5, 4, 4)),
    ("view-not-contiguous", "reshape", lambda: torch.ones(2, 3, 4).transpose(1, 2).view(2, 12)),
    ("cat-of-other-sizes", "crop to 3", lambda: torch.cat([torch.ones(1, 3), torch.ones(1, 4)])),
    ("stack-of-other-sizes", "pad_sequence", lambda: torch.stack([torch.ones(3), torch.ones(4)])),
    ("channels-do-not-fit", "permute(0, 3, 1, 2)", lambda: torch.nn.Conv2d(3, 4, 3)(torch.ones(1, 8, 8, 3))),
    ("kernel-larger-than-input", "larger", lambda: torch.nn.Conv2d(3, 4, 9)(torch.ones(1, 3, 8, 8))),
    ("norm-of-another-width", "width", lambda: torch.nn.LayerNorm(8)(torch.ones(2, 9))),
    ("dimension-out-of-range", "unsqueeze(0)", lambda: torch.ones(2, 3).sum(3)),
    ("permute-of-another-rank", "name all 2", lambda: torch.ones(2, 3).permute(0, 2, 1)),
    ("batches-do-not-multiply", "transpose(-2, -1)", lambda: torch.bmm(torch.ones(2, 3, 4), torch.ones(2, 5, 4))),
    ("sections-do-not-add-up", "add up to 10", lambda: torch.ones(10).split([3, 3])),
    (
        "classes-behind-tokens",
        "logits.transpose(1, 2)",
        lambda: functional.cross_entropy(torch.ones(2, 5, 3), torch.zeros(2, 5, dtype=torch.long)),
    ),
    (
        "labels-of-another-batch",
        "a label for each row",
        lambda: functional.cross_entropy(torch.ones(2, 3), torch.zeros(3, dtype=torch.long)),
    ),
    ("labels-are-floats", "labels.long()", lambda: functional.cross_entropy(torch.ones(2, 3), torch.ones(2))),
    ("dot-of-other-dtypes", "y.to(x.dtype)", lambda: torch.dot(torch.ones(2), torch.ones(2, dtype=torch.half))),
    ("index-is-no-integer", "index.long()", lambda: torch.ones(4)[torch.tensor([0.5])]),
    ("mask-of-another-shape", "shape of the tensor", lambda: torch.ones(4)[torch.ones(3, dtype=torch.bool)]),
    ("truth-of-a-tensor", "torch.equal", lambda: bool(torch.ones(2) == torch.ones(2))),
    ("item-of-several", "tolist()", lambda: torch.ones(3).item()),
    ("heads-do-not-divide", "multiple of 4", lambda: llama(hidden_size=18, num_attention_heads=4)),
    ("ids-or-embeddings", "leave out input_ids", lambda: llama()(IDS, inputs_embeds=torch.ones(1, 3, 16))),
    ("ids-or-embeddings", "give input_ids", llama()),
    (
        "ids-or-embeddings",
        "decoder_input_ids, or labels",
        lambda: T5ForConditionalGeneration(T5Config(vocab_size=32, d_model=16, d_kv=8, d_ff=16, num_layers=1))(IDS),
    ),
    (
        "pad-token-missing",
        "pad_token_id",
        lambda: LlamaForSequenceClassification(LlamaConfig(**SMALL))(input_ids=torch.ones(2, 3, dtype=torch.long)),
    ),
    ("image-size", "interpolate_pos_encoding", lambda: ViTModel(ViTConfig(**VIT_CONFIG))(torch.ones(1, 3, 9, 9))),
    ("image-channels", "RGB", lambda: ViTModel(ViTConfig(**VIT_CONFIG))(torch.ones(1, 1, 8, 8))),
    ("unused-model-kwargs", "max_new_tokens", lambda: llama().generate(IDS, maxlen=3)),
    ("more-sequences-than-beams", "num_beams=3", lambda: llama().generate(IDS, num_beams=2, num_return_sequences=3)),
    ("no-room-to-generate", "max_new_tokens", lambda: llama().generate(IDS, max_length=-3)),
    ("no-process-group", "tf_ranks", lambda: torch.distributed.all_reduce(torch.ones(1))),
    ("output-without-a-head", "AutoModelForCausalLM", lambda: llama().model(IDS).logits),
    ("output-for-a-tensor", "last_hidden_state", lambda: torch.nn.Linear(16, 2)(llama().model(IDS))),
    ("output-for-a-tensor", "output[0]", lambda: torch.nn.Linear(4, 2)(torch.nn.LSTM(3, 4)(torch.ones(2, 1, 3)))),
    ("list-for-a-tensor", "return_tensors", lambda: llama()(input_ids=[[1, 2, 3]])),
    ("list-for-a-tensor", "as_tensor", lambda: llama()(input_ids=IDS.numpy())),
    ("list-without-a-shape", "return_tensors", lambda: BertModel(BertConfig(**BERT))(input_ids=[[1, 2, 3]])),
    ("integers-for-a-kernel", "x.float()", lambda: IDS.softmax(0)),
    ("mean-of-integers", "x.float().mean()", IDS.mean),
    ("more-indices-than-dimensions", "index it by 2", lambda: IDS[:, :, 0]),
    ("sizes-of-einsum", "operand 1", lambda: torch.einsum("ij,jk->ik", torch.ones(3, 4), torch.ones(5, 4))),
    ("letters-of-einsum", "each of its 1", lambda: torch.einsum("ij,jk->ik", torch.ones(3, 4), torch.ones(4))),
    ("cat-of-other-ranks", "unsqueeze", lambda: torch.cat([torch.ones(2), torch.ones(2, 3)])),
    ("gather-of-another-rank", "unsqueeze(-1)", lambda: torch.ones(2, 3).gather(1, torch.zeros(2, dtype=torch.long))),
    ("gather-by-floats", "index.long()", lambda: torch.ones(2, 3).gather(1, torch.zeros(2, 3))),
    ("values-for-an-index", "marks a place", lambda: torch.ones(4).__setitem__(torch.tensor([0, 1]), torch.ones(3))),
    ("result-larger-than-its-place", "x = x + y", lambda: torch.ones(1, 3).add_(torch.ones(2, 3))),
    ("expand-of-another-size", "repeat_interleave", lambda: torch.ones(2, 3).expand(4, 3)),
    ("repeats-of-another-rank", "x.repeat(n, 1)", lambda: torch.ones(2, 3).repeat(2)),
    ("arithmetic-of-a-mask", "~mask", lambda: True - torch.ones(2, dtype=torch.bool)),
    ("attention-mask-of-integers", "attn_mask.bool()", lambda: attended(torch.ones(1, 1, 3, 3, dtype=torch.long))),
    ("one-row-for-a-batch-norm", "model.eval()", lambda: torch.nn.BatchNorm1d(3)(torch.ones(1, 3))),
    (
        "targets-of-another-shape",
        "view_as",
        lambda: functional.binary_cross_entropy_with_logits(torch.ones(2, 1), torch.ones(2)),
    ),
    ("array-read-backwards", "array.copy()", lambda: torch.from_numpy(torch.ones(3).numpy()[::-1])),
    ("module-before-its-init", "super().__init__()", Hasty),
    ("tensor-for-a-parameter", "nn.Parameter", lambda: setattr(torch.nn.Linear(2, 2), "weight", torch.ones(2, 2))),
]


def found(function):
    """Return what triage says of the exception that a function raises."""
    try:
        function()
    except Exception as error:  # noqa: BLE001 - whatever it raises
        return classify(Failure.of(error, "test_it.py::test_it", "call"))
    pytest.fail("nothing was raised")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("rule", "fix", "function"), RAISED, ids=[f"{each[0]}: {each[1]}" for each in RAISED])
def test_exception_has_a_diagnosis_and_the_smallest_fix(rule, fix, function):
    finding = found(function)

    assert finding is not None
    assert finding.rule == rule
    assert fix in finding.fix


def test_cache_that_no_forward_has_filled_has_a_diagnosis():
    if not hasattr(DynamicCache, "get_max_length"):
        pytest.skip("this version of transformers has no such method")

    assert "get_max_length(0)" in found(lambda: DynamicCache().get_max_length()).fix
    assert found(lambda: raising(ValueError, "max() arg is an empty sequence")) is None
    assert DynamicCache().get_max_length(0) == -1


def test_field_of_another_type_has_a_diagnosis():
    try:
        LlamaConfig(hidden_size="32")
    except Exception as error:  # noqa: BLE001 - its class is not in every version
        finding = classify(Failure.of(error, "test_it.py::test_it", "call"))
    else:
        pytest.skip("this version of transformers takes a field of any type")

    assert (finding.rule, finding.bucket) == ("field-of-another-type", "install/version")
    assert finding.what.startswith("hidden_size='32' is of type str, and configurations take int there")


@pytest.mark.parametrize("rule", ["shared-tensors", "tensor-not-contiguous"])
def test_tensor_that_safetensors_refuses_has_a_diagnosis(tmp_path, rule):
    weight = torch.zeros(3, 4)
    tensors = {"a": weight, "b": weight} if rule == "shared-tensors" else {"a": weight.T}

    assert found(lambda: save_file(tensors, tmp_path / "x.safetensors")).rule == rule


def test_tokenizer_whose_vocabulary_is_missing_says_what_is_there(tmp_path):
    from transformers import AutoTokenizer

    (tmp_path / "tokenizer_config.json").write_text("{}")

    finding = found(lambda: AutoTokenizer.from_pretrained(tmp_path))

    assert finding.rule == "missing-tokenizer-files"
    assert "has tokenizer_config.json and no vocabulary" in finding.what


class OwnCache:
    """No cache of transformers."""


def raising(kind, text):
    raise kind(text)


@pytest.mark.parametrize(
    "function",
    [
        lambda: OwnCache().seen_tokens,
        [].pop,
        lambda: DynamicCache().of_another_name,
        lambda: raising(
            RuntimeError, "The size of tensor a (4) must match the size of tensor b (9) at non-singleton dimension 3"
        ),
        lambda: raising(ValueError, "optimizer got an empty parameter list"),
        lambda: (1).get_seq_length,
    ],
)
def test_other_exception_has_no_diagnosis(function):
    assert found(function) is None


def test_short_text_is_not_called_too_long():
    model = BertModel(BertConfig(**BERT))

    assert found(lambda: model(input_ids=IDS, token_type_ids=torch.zeros(1, 4, dtype=torch.long))).rule == (
        "sizes-do-not-broadcast"
    )
    assert found(lambda: model(input_ids=IDS + 40)).rule == "id-out-of-range"
