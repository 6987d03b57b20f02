"""A wrapper of its own around a real model drops an argument: that is told where it calls, and nothing else is blamed."""

import copy

import pytest
import torch
import transformers
from torch import nn

import pytest_tfdebug
from golden_files import held
from pytest_tfdebug.report.comparison import code_of

SMALL = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
BOTH_SIDES = {
    "vocab_size": 64,
    "d_model": 32,
    **dict.fromkeys(["encoder_layers", "decoder_layers"], 2),
    **dict.fromkeys(["encoder_attention_heads", "decoder_attention_heads"], 4),
    **dict.fromkeys(["encoder_ffn_dim", "decoder_ffn_dim"], 48),
    "use_cache": False,
}
T5 = {"vocab_size": 64, "d_model": 32, "d_ff": 48, "num_layers": 2, "num_heads": 4, "d_kv": 8, "use_cache": False}
CONVOLUTIONS = {"conv_dim": (8, 8), "conv_kernel": (8, 4), "conv_stride": (4, 2), "feat_extract_norm": "layer"}
TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
IDS = torch.tensor([[5, 6, 7, 8], [9, 10, 0, 0]])
MASK = (IDS > 0).long()
RIGHT = {"input_ids": IDS, "attention_mask": MASK}
LEFT = {"input_ids": IDS.flip(1), "attention_mask": MASK.flip(1)}
DECODER = {"decoder_input_ids": IDS.flip(1)}


def noise(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def wrapper(parts, forward):
    """Return a port with names of its own: parts of the reference, and the forward of a case."""
    port = type("Port", (nn.Module,), {"forward": forward})()
    for name, part in parts.items():
        setattr(port, name, copy.deepcopy(part))
    return port.eval()


def bert_token_types():
    config = transformers.BertConfig(**SMALL)
    reference = transformers.BertForSequenceClassification(config)

    def forward(self, input_ids, attention_mask, token_type_ids):
        return self.head(self.body(input_ids, attention_mask=attention_mask).pooler_output)

    inputs = {**RIGHT, "token_type_ids": IDS % 2}
    return reference, {"body": reference.bert, "head": reference.classifier}, forward, inputs, "token_type_ids"


def layoutlm_boxes():
    reference = transformers.LayoutLMForTokenClassification(
        transformers.LayoutLMConfig(**SMALL, max_2d_position_embeddings=50)
    )

    def forward(self, input_ids, attention_mask, bbox):
        return self.head(self.body(input_ids, attention_mask=attention_mask)[0])

    boxes = torch.arange(32).view(2, 4, 4) % 20 + torch.tensor([0, 0, 20, 20])
    return (
        reference,
        {"body": reference.layoutlm, "head": reference.classifier},
        forward,
        {**RIGHT, "bbox": boxes},
        "bbox",
    )


def llama_positions():
    reference = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SMALL, use_cache=False))

    def forward(self, input_ids, position_ids):
        return self.head(self.body(input_ids).last_hidden_state)

    inputs = {"input_ids": IDS, "position_ids": torch.tensor([[3, 4, 5, 6], [0, 1, 2, 9]])}
    return reference, {"body": reference.model, "head": reference.lm_head}, forward, inputs, "position_ids"


def llama_layers():
    config = transformers.LlamaConfig(**SMALL, use_cache=False, attn_implementation="eager")
    reference = transformers.LlamaForCausalLM(config)

    def forward(self, input_ids):
        hidden = self.tokens(input_ids)
        angles = self.angles(hidden, torch.arange(hidden.shape[1])[None])
        for block in self.body:
            hidden = block(hidden, position_embeddings=angles)
        return self.head(self.norm(hidden))

    inner = reference.model
    parts = {"tokens": inner.embed_tokens, "angles": inner.rotary_emb, "body": inner.layers, "norm": inner.norm}
    return reference, {**parts, "head": reference.lm_head}, forward, {"input_ids": IDS}, "attention_mask"


def gpt2_mask():
    config = transformers.GPT2Config(
        vocab_size=64, n_embd=32, n_layer=2, n_head=4, n_positions=32, use_cache=False, **TOKENS
    )
    reference = transformers.GPT2LMHeadModel(config)

    def forward(self, input_ids, attention_mask):
        return self.head(self.body(input_ids)[0])

    return reference, {"body": reference.transformer, "head": reference.lm_head}, forward, LEFT, "attention_mask"


def mixtral_mask():
    config = transformers.MixtralConfig(
        **SMALL, num_local_experts=4, num_experts_per_tok=2, num_key_value_heads=2, use_cache=False
    )
    reference = transformers.MixtralForCausalLM(config)

    def forward(self, input_ids, attention_mask):
        return self.head(self.body(input_ids=input_ids).last_hidden_state)

    return reference, {"body": reference.model, "head": reference.lm_head}, forward, LEFT, "attention_mask"


def modernbert_mask():
    config = transformers.ModernBertConfig(
        **SMALL, **TOKENS, cls_token_id=1, sep_token_id=2, attn_implementation="eager"
    )
    reference = transformers.ModernBertModel(config)

    def forward(self, input_ids, attention_mask):
        return self.body(input_ids).last_hidden_state

    return reference, {"body": reference}, forward, RIGHT, "attention_mask"


def clip_mask():
    config = transformers.CLIPTextConfig(
        **SMALL, projection_dim=16, max_position_embeddings=20, pad_token_id=0, bos_token_id=1, eos_token_id=63
    )
    reference = transformers.CLIPTextModelWithProjection(config)

    def forward(self, input_ids, attention_mask):
        found = self.body(input_ids)
        return self.head(found.pooler_output), found.last_hidden_state

    ids, mask = torch.tensor([[5, 6, 63, 0], [9, 63, 0, 0]]), torch.tensor([[1, 0, 1, 0], [0, 1, 0, 0]])
    parts = {"body": reference.text_model, "head": reference.text_projection}
    return reference, parts, forward, {"input_ids": ids, "attention_mask": mask}, "attention_mask"


def wav2vec2_mask():
    config = transformers.Wav2Vec2Config(
        **SMALL, **CONVOLUTIONS, num_conv_pos_embeddings=8, num_conv_pos_embedding_groups=2, do_stable_layer_norm=True
    )
    reference = transformers.Wav2Vec2ForCTC(config)

    def forward(self, input_values, attention_mask):
        return self.head(self.body(input_values)[0])

    inputs = {
        "input_values": noise(2, 200),
        "attention_mask": (torch.arange(200) < torch.tensor([[200], [120]])).long(),
    }
    return reference, {"body": reference.wav2vec2, "head": reference.lm_head}, forward, inputs, "attention_mask"


def t5_memory_mask():
    reference = transformers.T5ForConditionalGeneration(transformers.T5Config(**T5))

    def forward(self, input_ids, attention_mask, decoder_input_ids):
        memory = self.reader(input_ids, attention_mask=attention_mask)[0]
        return self.head(self.body(decoder_input_ids, encoder_hidden_states=memory)[0] * 32**-0.5), memory

    parts = {"reader": reference.encoder, "body": reference.decoder, "head": reference.lm_head}
    return reference, parts, forward, {**RIGHT, **DECODER}, "encoder_attention_mask"


def bart_decoder_mask():
    reference = transformers.BartForConditionalGeneration(
        transformers.BartConfig(**BOTH_SIDES, max_position_embeddings=32)
    )
    bias = reference.final_logits_bias

    def forward(self, input_ids, attention_mask, decoder_input_ids, decoder_attention_mask):
        memory = self.reader(input_ids, attention_mask=attention_mask)[0]
        hidden = self.body(decoder_input_ids, encoder_hidden_states=memory, encoder_attention_mask=attention_mask)[0]
        return self.head(hidden) + bias, memory

    parts = {"reader": reference.model.encoder, "body": reference.model.decoder, "head": reference.lm_head}
    inputs = {**RIGHT, **DECODER, "decoder_attention_mask": MASK.flip(1)}
    return reference, parts, forward, inputs, "attention_mask"


def whisper_positions():
    sizes = {"num_mel_bins": 8, "max_source_positions": 20, "max_target_positions": 20, "decoder_start_token_id": 1}
    reference = transformers.WhisperForConditionalGeneration(
        transformers.WhisperConfig(**BOTH_SIDES, **TOKENS, **sizes)
    )

    def forward(self, input_features, decoder_input_ids, decoder_position_ids):
        memory = self.reader(input_features)[0]
        return self.head(self.body(decoder_input_ids, encoder_hidden_states=memory)[0]), memory

    parts = {"reader": reference.model.encoder, "body": reference.model.decoder, "head": reference.proj_out}
    inputs = {"input_features": noise(2, 8, 40), **DECODER, "decoder_position_ids": torch.tensor([[2, 3, 4, 5]])}
    return reference, parts, forward, inputs, "position_ids"


CASES = [
    bert_token_types,
    layoutlm_boxes,
    llama_positions,
    llama_layers,
    gpt2_mask,
    mixtral_mask,
    modernbert_mask,
    clip_mask,
    wav2vec2_mask,
    t5_memory_mask,
    bart_decoder_mask,
    whisper_positions,
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_argument_that_a_wrapper_drops_is_told_where_it_calls(case, tmp_path, one_thread):
    reference, parts, forward, inputs, name = case()
    pytest_tfdebug.fill(reference.eval(), seed=0)
    port = wrapper(parts, forward)

    report = held(tmp_path, reference, port, inputs)

    culprit = report.culprit
    called = "body.0" if case is llama_layers else "body"
    assert culprit.wrong == f"{called!r} takes {name} and was given none; the reference had one"
    assert (culprit.path, culprit.certain) == ("Port", True)
    (line,) = code_of(culprit.source)
    assert ("block(" if case is llama_layers else "self.body(") in line
    assert "With it every output agrees." in culprit.why


def test_argument_that_a_condition_left_none_is_told_at_the_condition(tmp_path, one_thread):
    """As in speechbrain's f541989c7: the mask was made in training alone."""
    reference = pytest_tfdebug.fill(transformers.BertModel(transformers.BertConfig(**SMALL)).eval(), seed=0)

    class Port(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = copy.deepcopy(reference)

        def forward(self, input_ids, attention_mask):
            mask, types = self.masks(input_ids, attention_mask)
            return self.body(input_ids, attention_mask=mask, token_type_ids=types)

        def masks(self, input_ids, attention_mask):
            mask = None
            if attention_mask is not None and self.training:
                mask = attention_mask.bool().long()
            return mask, torch.zeros_like(input_ids)

    report = held(tmp_path, reference, Port().eval(), RIGHT)

    culprit = report.culprit
    assert culprit.wrong == "'body' takes attention_mask and was given none; the reference had one"
    assert code_of(culprit.source) == ["if attention_mask is not None and self.training:"]
    assert culprit.certain


def test_argument_that_is_missing_since_the_port_got_none_is_told_where_it_calls(tmp_path, one_thread):
    reference = pytest_tfdebug.fill(transformers.BertModel(transformers.BertConfig(**SMALL)).eval(), seed=0)

    class Inner(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = copy.deepcopy(reference)

        def forward(self, input_ids, attention_mask=None):
            mask = None
            if attention_mask is not None:
                mask = attention_mask.bool().long()
            return self.body(input_ids, attention_mask=mask)

    class Port(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Inner()

        def forward(self, input_ids, attention_mask):
            return self.inner(input_ids)

    report = held(tmp_path, reference, Port().eval(), RIGHT)

    (line,) = code_of(report.culprit.source)
    assert line.strip() in ("return self.inner(input_ids)", "return self.body(input_ids, attention_mask=mask)")
