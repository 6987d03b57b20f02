"""Overflow in real architectures: tiny, seeded, with weights scaled until they overflow."""

import pytest
import torch
from torch import nn
from transformers import (
    BertConfig,
    BertForMaskedLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GroundingDinoConfig,
    GroundingDinoForObjectDetection,
    LlamaConfig,
    LlamaForCausalLM,
    SwinConfig,
    T5Config,
    T5ForConditionalGeneration,
    ViTConfig,
    ViTForMaskedImageModeling,
)
from transformers.debug_utils import DebugUnderflowOverflow

from pytest_tfdebug import ActivationOverflowError, DebugActivationOverflow, overflow_guard
from pytest_tfdebug.report.overflow import place

IDS = torch.tensor([[5, 17, 3, 42, 8, 21, 60], [9, 1, 33, 2, 7, 50, 11]])
PADDING = torch.tensor([[0, 0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 1]])
WO = "encoder.block.2.layer.1.DenseReluDense.wo"


def t5():
    """Return a T5 whose third encoder layer can be scaled into overflow."""
    torch.manual_seed(0)
    config = T5Config(
        vocab_size=64, d_model=32, d_kv=8, d_ff=64, num_layers=3, num_heads=4, feed_forward_proj="gated-gelu"
    )
    return T5ForConditionalGeneration(config).eval()


def llama(**config):
    torch.manual_seed(0)
    sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    return LlamaForCausalLM(LlamaConfig(**sizes, num_attention_heads=4, **config)).eval()


def scaled_t5(wi_1, wo):
    model = t5().half()
    dense = model.encoder.block[2].layer[1].DenseReluDense
    with torch.no_grad():
        dense.wi_0.weight *= 20
        dense.wi_1.weight *= wi_1
        dense.wo.weight *= wo
    return model


def run(model, **settings):
    with torch.no_grad(), overflow_guard(model, **settings) as guard:
        model(input_ids=IDS, attention_mask=PADDING, decoder_input_ids=IDS)
    return guard


def report_of(model, **settings):
    with pytest.raises(ActivationOverflowError) as caught:
        run(model, **settings)
    return str(caught.value)


def test_float16_t5_that_overflows_in_wo_is_reported_at_wo():
    with pytest.raises(ActivationOverflowError) as caught:
        run(scaled_t5(wi_1=100, wo=2000))
    [hint] = caught.value.fault.hints

    assert place(caught.value.fault.frame) == f"< [0] {WO}: Linear: output"
    assert str(caught.value).startswith("modeling_t5.py:")
    assert f" in {WO} (Linear): output has infs\n" in str(caught.value)
    assert hint.startswith("float16 ends at 6.55e+04, and the inputs reach ")
    assert hint.endswith(": compute this part in bfloat16 or float32, or scale the values down before it.")


def test_float16_t5_overflowing_in_the_gated_product_is_reported_in_that_glue():
    report = report_of(scaled_t5(wi_1=2000, wo=1))

    dropout = WO.replace("wo", "dropout")
    assert f"> [0] {dropout}: Dropout: input[0] has infs" in report
    where = next(line for line in report.splitlines() if line.startswith("  Where: "))
    assert where.startswith(f"  Where: {WO.removesuffix('.wo')} (T5DenseGatedActDense), modeling_t5.py:")
    assert "hidden_gelu * hidden_linear" in lines_of("T5DenseGatedActDense", where)


@pytest.mark.parametrize(
    "path",
    [
        WO,
        "encoder.block.0.layer.0.SelfAttention.v",
        "encoder.block.1.layer.1.DenseReluDense.wi_1",
        "decoder.block.0.layer.1.EncDecAttention.k",
        "decoder.block.2.layer.0.SelfAttention.o",
    ],
)
def test_module_that_transformers_names_is_the_one_that_is_named_here(path, capsys):
    model = t5().half()
    with torch.no_grad():
        model.get_submodule(path).weight.copy_(torch.sign(model.get_submodule(path).weight) * 6e4)

    with torch.no_grad(), pytest.raises(ActivationOverflowError) as caught, overflow_guard(model):
        model(input_ids=IDS, decoder_input_ids=IDS)
    DebugUnderflowOverflow(model)
    with pytest.raises(ValueError, match="inf/nan detected"), torch.no_grad():
        model(input_ids=IDS, decoder_input_ids=IDS)
    printed = capsys.readouterr().out.splitlines()
    last = max(place for place, line in enumerate(printed) if line.startswith(" " * 18))
    theirs, class_name = printed[last].split()

    assert any(line.split()[1:] == ["inf", "output"] for line in printed[last:])
    assert theirs == path
    assert place(caught.value.fault.frame) == f"< [0] {theirs}: {class_name}: output"


def test_gemma3_with_large_activations_fails_for_float16_from_a_float32_run():
    torch.manual_seed(0)
    config = Gemma3TextConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
    )
    model = Gemma3ForCausalLM(config).eval()
    with torch.no_grad():
        for layer in model.model.layers:
            layer.post_feedforward_layernorm.weight.fill_(4e4)

    with torch.no_grad(), overflow_guard(model, dtype="bfloat16", headroom=2.0):
        model(IDS, attention_mask=PADDING)
    with (
        torch.no_grad(),
        pytest.raises(ActivationOverflowError) as caught,
        overflow_guard(model, dtype="float16", headroom=2.0),
    ):
        model(IDS, attention_mask=PADDING)
    text = " ".join(str(caught.value).split())
    ratios = [tight.ratio for tight in caught.value.tightest]

    assert text.startswith("modeling_gemma3.py:")
    assert " in model.layers.1 (Gemma3DecoderLayer): leaves a headroom of 0." in text
    assert ", and float16 ends at 6.55e+04. " in text
    assert " in model.layers.0.post_feedforward_layernorm (Gemma3RMSNorm): its output reaches " in text
    assert len(ratios) == 10
    assert ratios == sorted(ratios)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_additive_mask_of_minus_infinity_is_no_fault(attention):
    model = llama(attn_implementation=attention)
    mask = torch.triu(torch.full((7, 7), float("-inf")), 1).expand(2, 1, 7, 7)

    with torch.no_grad(), overflow_guard(model, dtype="float16", headroom=2.0) as guard:
        model(IDS, attention_mask=mask)

    assert guard.tightest[0].ratio > 1000


def test_mask_row_that_hides_everything_is_reported_with_that_hint():
    model = llama(attn_implementation="eager")
    mask = torch.triu(torch.full((7, 7), float("-inf")), 1).repeat(2, 1, 1, 1)
    mask[0, 0, 2] = float("-inf")

    with torch.no_grad(), pytest.raises(ActivationOverflowError) as caught, overflow_guard(model):
        model(IDS, attention_mask=mask)

    assert place(caught.value.fault.frame) == "> [0] model.layers.0.self_attn.o_proj: Linear: input[0]"
    assert caught.value.fault.hints == ["A row of the mask hides every position: the softmax over it is nan."]


def test_mask_of_ones_over_a_single_token_hides_no_overflow():
    model = llama(mlp_bias=True)
    with torch.no_grad():
        for layer in model.model.layers:
            layer.mlp.down_proj.bias.fill_(-3e38)

    with torch.no_grad(), pytest.raises(ActivationOverflowError) as caught, overflow_guard(model):
        model(IDS[:1, :1], attention_mask=PADDING[1:, :1])

    assert place(caught.value.fault.frame) == "< [0] model.layers.1: LlamaDecoderLayer: output"
    assert "Where: model.layers.1 (LlamaDecoderLayer), modeling_llama.py:" in str(caught.value)
    assert caught.value.fault.kind == "glue"


def test_model_for_masked_words_is_no_mask():
    class ForcedMaskedLM(BertForMaskedLM):
        def forward(self, *args, **kwargs):
            output = super().forward(*args, **kwargs)
            output.logits = output.logits.index_fill(-1, torch.tensor([3]), -3e38) * 2
            return output

    torch.manual_seed(0)
    config = BertConfig(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=4)
    model = ForcedMaskedLM(config).eval()

    with torch.no_grad(), pytest.raises(ActivationOverflowError) as caught, overflow_guard(model):
        model(IDS, attention_mask=PADDING)

    assert place(caught.value.fault.frame) == "< [0] ForcedMaskedLM: ForcedMaskedLM: output.logits"
    assert "Not finite: 14 / 896 elements (1.6%), first at index (0, 0, 3)." in str(caught.value)


def test_mask_token_that_is_not_a_number_is_a_fault():
    config = ViTConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=4, image_size=32)
    model = ViTForMaskedImageModeling(config).eval()
    with torch.no_grad():
        model.vit.embeddings.mask_token[0, 0, 5] = float("nan")

    with torch.no_grad(), pytest.raises(ActivationOverflowError) as caught, overflow_guard(model):
        model(torch.zeros(1, 3, 32, 32), bool_masked_pos=torch.ones(1, 4, dtype=torch.bool))

    assert place(caught.value.fault.frame) == "= [0] vit.embeddings: ViTEmbeddings: mask_token"
    assert "Where: vit.embeddings (ViTEmbeddings): its weights, before any forward." in str(caught.value)


def test_what_an_ignored_module_hands_on_is_said_to_be_excused():
    model = llama()
    with torch.no_grad():
        model.model.layers[1].mlp.up_proj.weight.fill_(1e30)
        model.model.layers[1].mlp.down_proj.weight.fill_(1e30)

    with (
        torch.no_grad(),
        pytest.raises(ActivationOverflowError) as caught,
        overflow_guard(model, ignore="**.down_proj"),
    ):
        model(IDS)

    assert place(caught.value.fault.frame) == "< [0] model.norm: LlamaRMSNorm: output"
    assert caught.value.fault.kind == "excused"


def test_weights_in_float8_are_counted():
    model = llama()
    for name in ("q_proj", "k_proj"):
        linear = model.model.layers[0].self_attn.get_submodule(name)
        linear.__class__ = Linear8
        linear.weight = nn.Parameter(linear.weight.detach().to(torch.float8_e4m3fn), requires_grad=False)

    with torch.no_grad(), overflow_guard(model) as guard:
        model(IDS)

    assert guard.skipped == {"float8_e4m3fn": 2}


def test_infinities_that_a_model_writes_are_named_with_how_to_ignore_them():
    model, inputs = grounding_dino()

    with torch.no_grad(), pytest.raises(ActivationOverflowError) as caught, overflow_guard(model):
        model(**inputs)
    with torch.no_grad(), overflow_guard(model, ignore="**.*class_embed*.**"):
        model(**inputs)
    fault = caught.value.fault

    assert place(fault.frame) == "< [0] model.encoder_output_class_embed: GroundingDinoContrastiveEmbedding: output"
    assert "If such a value is meant, name the module in ignore=." in str(caught.value)


def test_lowest_number_of_float32_as_a_mask_does_not_count_against_float16():
    guard = run(t5(), dtype="float16", headroom=2.0)

    assert guard.tightest[0].ratio > 100


def test_logits_in_a_model_output_are_judged():
    class Forced(LlamaForCausalLM):
        def forward(self, *args, **kwargs):
            output = super().forward(*args, **kwargs)
            output.logits = output.logits.index_fill(-1, torch.tensor([3]), float("inf"))
            return output

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=4
    )
    model = Forced(config).eval()

    with torch.no_grad(), pytest.raises(ActivationOverflowError) as caught, overflow_guard(model):
        model(IDS)
    with torch.no_grad(), overflow_guard(model, ignore="Forced"):
        model(IDS)

    assert place(caught.value.fault.frame) == "< [0] Forced: Forced: output.logits"
    assert "Where: Forced (Forced), test_overflow_models.py:" in str(caught.value)
    assert "Not finite: 14 / 896 elements (1.6%), first at index (0, 0, 3)." in str(caught.value)


def test_gradient_of_a_llama_that_overflows_is_named_with_its_parameter():
    model = llama()
    model.model.layers[0].mlp.act_fn = SquareRoot()

    with pytest.raises(ActivationOverflowError) as caught, overflow_guard(model, gradients=True):
        model(IDS, labels=IDS).loss.backward()
    report = str(caught.value)

    assert "^ [0] model.layers.0.mlp.act_fn: SquareRoot: gradient of input[0] has " in report
    assert "Where: model.layers.0.mlp.act_fn (SquareRoot), test_overflow_models.py:" in report
    assert "; every gradient before it is finite." in " ".join(report.split())
    assert (
        "Parameters whose gradients are not finite, in the order of the backward: "
        "model.layers.0.mlp.gate_proj.weight (Linear)" in " ".join(report.split())
    )


def test_loss_scaled_too_far_is_named_as_what_follows_the_model():
    model, scaler = llama(), torch.amp.GradScaler("cpu", init_scale=2.0**40)

    def train():
        with torch.autocast("cpu", torch.float16):
            loss = model(IDS, labels=IDS).loss
        scaler.scale(loss).backward()

    with pytest.raises(ActivationOverflowError) as caught, overflow_guard(model, gradients=True):
        train()

    assert place(caught.value.fault.frame) == "^ [0] lm_head: Linear: gradient of output"
    assert "Where: lm_head (Linear): glue after it, or the loss: no module took this output." in str(caught.value)
    assert "Hint: float16 ends at 6.55e+04: scale the loss down, or use bfloat16 or float32." in str(caught.value)


def test_generate_is_watched_step_by_step():
    model = llama()

    with overflow_guard(model) as guard:
        model.generate(IDS, attention_mask=torch.ones_like(IDS), max_new_tokens=3, do_sample=False)

    assert guard.forwards == 3


@pytest.mark.parametrize("leaves", [KeyboardInterrupt, pytest.skip.Exception, ValueError])
def test_forward_that_was_interrupted_does_not_blind_the_watch(leaves):
    class Activation(nn.Module):
        is_interrupted = True

        def forward(self, x):
            if self.is_interrupted:
                raise leaves
            return x / 0

    model, activation = llama(), Activation()
    model.model.layers[1].mlp.act_fn = activation

    debug_overflow = DebugActivationOverflow(model)
    with pytest.raises(leaves):
        model(IDS)
    activation.is_interrupted = False
    with pytest.raises(ActivationOverflowError) as caught:
        model(IDS)
    debug_overflow.remove()

    assert place(caught.value.fault.frame) == "< [1] model.layers.1.mlp.act_fn: Activation: output"


class Linear8(nn.Linear):
    """Computes in float32 from weights in float8."""

    def forward(self, x):
        return nn.functional.linear(x, self.weight.to(x.dtype))


def grounding_dino():
    """Return a Grounding DINO, which fills its text logits with -inf up to ``max_text_len``, and inputs for it."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4}
    backbone = SwinConfig(
        image_size=64,
        patch_size=2,
        embed_dim=8,
        depths=[1] * 4,
        num_heads=[1] * 4,
        window_size=2,
        out_indices=[2, 3, 4],
    )
    config = GroundingDinoConfig(
        backbone_config=backbone,
        text_config=BertConfig(vocab_size=64, **sizes),
        d_model=32,
        encoder_layers=1,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        num_queries=5,
        num_feature_levels=3,
        disable_custom_kernels=True,
        max_text_len=16,
    )
    model = GroundingDinoForObjectDetection(config).eval()
    return model, {"pixel_values": torch.rand(2, 3, 64, 64), "input_ids": IDS, "attention_mask": PADDING.flip(1)}


class SquareRoot(nn.Module):
    """An activation with an infinite slope at 0."""

    def forward(self, x):
        return (x * 0).abs().sqrt()


def lines_of(class_name, where):
    import inspect

    from transformers.models.t5 import modeling_t5

    first, _, last = where.partition("modeling_t5.py:")[2].partition(":")[0].partition("-")
    lines = inspect.getsource(modeling_t5).splitlines()
    assert class_name in where
    return "\n".join(lines[int(first) - 1 : int(last or first)])
