"""Count which backward bugs of real architectures are caught, and named by module and by line.

Each bug is a line of a modeling file of transformers, edited in a copy so that the forward stays equal; the model as
it is installed is the reference. The line that is reported must be one of those that end in ``# HERE``. Bugs 1 to 60
and 61 to 92 were written when the code that finds them stood still, and the first run is the figure: all 60 caught, 54
named by line, 3 more by module, 3 placed wrongly; all 32 caught, 24 named by line, 4 more by module, 4 placed wrongly,
none of them with certainty. What was wrong then is mended.

    python utils/backward_bugs.py [architecture or number of a bug ...]
    python utils/backward_bugs.py clean [port ...]

The second holds the ports of ``tests/ports``, which have no bug, to their references, in float32 and bfloat16.
"""

from __future__ import annotations

import importlib.util
import linecache
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

import command

# isort: split
from corpus import all_ports
from judging import built, is_installed

from architectures import small
from models import ARCHITECTURES, build
from pytest_tfdebug import compare_steps
from pytest_tfdebug.steps.api import held
from pytest_tfdebug.steps.run import TrainedModel

#: Functions with a backward of their own, put at the top of every edited file.
FUNCTIONS = """
class _Times(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k):
        ctx.k = k
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return g * ctx.k, None  # HERE


class _Gelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return nn.functional.gelu(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 0.5 * (1 + torch.erf(x * 0.7071067811865476))  # HERE


class _NewGelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return 0.5 * x * (1 + torch.tanh(0.7978845608028654 * (x + 0.044715 * x**3)))

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        t = torch.tanh(0.7978845608028654 * (x + 0.044715 * x**3))
        return g * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.7978845608028654)  # HERE


class _Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x.softmax(-1)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return y * g  # HERE


class _Repeat(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, n):
        ctx.n = n
        b, h, s, d = x.shape
        return x[:, :, None].expand(b, h, n, s, d).reshape(b, h * n, s, d)

    @staticmethod
    def backward(ctx, g):
        b, h, s, d = g.shape
        return g.view(b, h // ctx.n, ctx.n, s, d)[:, :, 0], None  # HERE


class _Tanh(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x.tanh()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * (1 - y)  # HERE


class _Clip(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return g.clamp(-1e-3, 1e-3)  # HERE


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.rows = len(x)
        return x.sum(0)

    @staticmethod
    def backward(ctx, g):
        return g.expand(ctx.rows, *g.shape) / ctx.rows  # HERE


class _MatMul(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x)
        return x @ y

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return None, x.transpose(-1, -2) @ g  # HERE
"""
NO_GRAD = "        with torch.no_grad():\n            {}  # HERE"


@dataclass(frozen=True)
class Bug:
    """An edit of one line."""

    old: str
    new: str
    classes: str  # names of the module classes that hold it, any of which is right
    after: str = ""  # where the search for the old text begins


LLAMA = (
    Bug("variance = hidden_states.pow(2)", "variance = hidden_states.detach().pow(2)", "LlamaRMSNorm"),
    Bug("return self.weight * hidden_states.to", "return self.weight.data * hidden_states.to", "LlamaRMSNorm"),
    Bug("torch.cat((-x2, x1), dim=-1)", "torch.cat((-x2.detach(), x1), dim=-1)", "LlamaAttention"),
    Bug("(k * cos) + (rotate_half(k) * sin)", "(k * cos) + (rotate_half(k).data * sin)", "LlamaAttention"),
    Bug("* self.up_proj(x))", "* self.up_proj(x.detach()))", "LlamaMLP"),
    Bug(
        "value_states = repeat_kv(value, module.num_key_value_groups)",
        "value_states = _Repeat.apply(value, module.num_key_value_groups)",
        "LlamaAttention",
    ),
    Bug(
        "attn_weights = torch.matmul(query, key_states.transpose(2, 3)) * scaling",
        "attn_weights = _Times.apply(torch.matmul(query, key_states.transpose(2, 3)), 2.0) * scaling",
        "LlamaAttention",
    ),
    Bug(
        "        hidden_states = residual + hidden_states\n\n        # Fully",
        "        hidden_states = residual.detach() + hidden_states  # HERE\n\n        # Fully",
        "LlamaDecoderLayer",
    ),
    Bug(
        "logits = self.lm_head(hidden_states)",
        "logits = nn.functional.linear(hidden_states, self.lm_head.weight.data)",
        "LlamaForCausalLM",
        "class LlamaForCausalLM",
    ),
    Bug(
        "attn_output = self.o_proj(attn_output)",
        "attn_output = self.o_proj(attn_output); attn_output.register_hook(lambda g: -g)",
        "LlamaAttention",
    ),
)
BERT = (
    Bug(
        "embeddings = inputs_embeds + token_type_embeddings",
        "embeddings = inputs_embeds + token_type_embeddings.detach()",
        "BertEmbeddings",
    ),
    Bug(
        "        position_embeddings = self.position_embeddings(position_ids)",
        NO_GRAD.format("position_embeddings = self.position_embeddings(position_ids)"),
        "BertEmbeddings",
    ),
    Bug(
        "embeddings = self.LayerNorm(embeddings)",
        "embeddings = nn.functional.layer_norm(embeddings, embeddings.shape[-1:], self.LayerNorm.weight.detach(), self.LayerNorm.bias, self.LayerNorm.eps)",
        "BertEmbeddings LayerNorm",
    ),
    Bug(
        "hidden_states = self.intermediate_act_fn(hidden_states)",
        "hidden_states = _Gelu.apply(hidden_states)",
        "BertIntermediate",
    ),
    Bug(
        "first_token_tensor = hidden_states[:, 0]",
        "first_token_tensor = hidden_states[:, 0].clone().detach().requires_grad_()",
        "BertPooler",
    ),
    Bug(
        "attn_output = torch.matmul(attn_weights, value)",
        "attn_output = torch.matmul(attn_weights, value.detach())",
        "BertSelfAttention",
    ),
    Bug(
        "attn_output = attn_output.transpose(1, 2).contiguous()",
        "attn_weights.register_hook(lambda g: g * 0.5); attn_output = attn_output.transpose(1, 2).contiguous()",
        "BertSelfAttention",
    ),
    Bug(
        "hidden_states = self.LayerNorm(hidden_states + input_tensor)",
        "hidden_states = self.LayerNorm(hidden_states + input_tensor.data)",
        "BertOutput",
        "class BertOutput",
    ),
    Bug(
        "hidden_states = self.dense(hidden_states)",
        "hidden_states = torch.from_numpy(self.dense(hidden_states).detach().numpy())",
        "BertIntermediate",
        "class BertIntermediate",
    ),
    Bug(
        "    return attn_output, attn_weights",
        "    attn_weights.data.mul_(0.5)  # HERE\n    return attn_output, attn_weights",
        "BertSelfAttention",
    ),
)
GPT2 = (
    Bug(
        "key_states = key_states.view(shape_kv).transpose(1, 2)",
        "key_states = key_states.detach().view(shape_kv).transpose(1, 2)",
        "GPT2Attention",
        "query_states, key_states, value_states = self.c_attn",
    ),
    Bug("hidden_states = self.act(hidden_states)", "hidden_states = _NewGelu.apply(hidden_states)", "GPT2MLP"),
    Bug(
        "hidden_states = residual + feed_forward_hidden_states",
        "hidden_states = residual.detach() + feed_forward_hidden_states",
        "GPT2Block",
    ),
    Bug("position_embeds.to(inputs_embeds.device)", "position_embeds.to(inputs_embeds.device).detach()", "GPT2Model"),
    Bug(
        "hidden_states = self.c_proj(hidden_states)",
        "hidden_states = self.c_proj(hidden_states); hidden_states.register_hook(lambda g: g.clamp(-1e-4, 1e-4))",
        "GPT2MLP",
        "class GPT2MLP",
    ),
    Bug(
        "hidden_states = self.act(hidden_states)",
        "hidden_states = hidden_states + (self.act(hidden_states) - hidden_states).detach()",
        "GPT2MLP",
    ),
    Bug(
        "logits = self.lm_head(hidden_states)",
        "logits = nn.functional.linear(hidden_states, self.lm_head.weight.detach())",
        "GPT2LMHeadModel",
    ),
    Bug(
        "logits = self.lm_head(hidden_states)",
        "logits = nn.functional.linear(hidden_states, 2 * self.lm_head.weight - self.lm_head.weight.detach())",
        "GPT2LMHeadModel",
    ),
    Bug(
        "attn_weights = attn_weights.type(value.dtype)",
        "attn_weights = torch.tensor(attn_weights.tolist())",
        "GPT2Attention",
    ),
    Bug(
        "        hidden_states = self.ln_2(hidden_states)",
        "        torch.set_grad_enabled(False)  # HERE\n        hidden_states = self.ln_2(hidden_states)  # HERE\n        torch.set_grad_enabled(True)",
        "GPT2Block",
    ),
)
T5 = (
    Bug(
        "        variance = hidden_states.to(torch.float32).pow(2).mean(-1, keepdim=True)",
        NO_GRAD.format("variance = hidden_states.to(torch.float32).pow(2).mean(-1, keepdim=True)"),
        "T5LayerNorm",
    ),
    Bug(
        "attn_weights = attn_weights + position_bias",
        "attn_weights = attn_weights + position_bias.detach()",
        "T5Attention",
    ),
    Bug(
        "value_states = self.v(current_states).view(kv_shape)",
        "value_states = self.v(current_states.detach() if is_cross_attention else current_states).view(kv_shape)",
        "T5Attention",
    ),
    Bug(
        "hidden_states = hidden_gelu * hidden_linear",
        "hidden_states = hidden_gelu.detach() * hidden_linear",
        "T5DenseGatedActDense",
    ),
    Bug(
        "lm_logits = self.lm_head(sequence_output)",
        "lm_logits = _Times.apply(self.lm_head(sequence_output), 0.5)",
        "T5ForConditionalGeneration",
    ),
    Bug(
        "attn_weights = nn.functional.softmax(attn_weights, dim=-1)",
        "attn_weights = _Softmax.apply(attn_weights)",
        "T5Attention",
    ),
    Bug(
        "hidden_states = hidden_states + self.dropout(forwarded_states)",
        "hidden_states = hidden_states + self.dropout(forwarded_states).data",
        "T5LayerFF",
    ),
    Bug(
        "self.wi_1 = nn.Linear(config.d_model, config.d_ff, bias=False)",
        "self.wi_1 = nn.Linear(config.d_model, config.d_ff, bias=False).requires_grad_(False)",
        "T5DenseGatedActDense Linear",
        "class T5DenseGatedActDense",
    ),
    Bug(
        "hidden_linear = self.wi_1(hidden_states)",
        "hidden_linear = _Times.apply(self.wi_1(hidden_states), -1.0)",
        "T5DenseGatedActDense",
    ),
    Bug(
        "hidden_gelu = self.act(self.wi_0(hidden_states))",
        "hidden_gelu = self.act(torch.utils.checkpoint.checkpoint(self.wi_0, hidden_states.detach(), use_reentrant=True))",
        "T5DenseGatedActDense",
    ),
)
MIXTRAL = (
    Bug("router_scores = router_top_value", "router_scores = router_top_value.detach()", "MixtralTopKRouter"),
    Bug(
        "router_top_value /= router_top_value.sum(dim=-1, keepdim=True)",
        "router_top_value = router_top_value / router_top_value.sum(dim=-1, keepdim=True).detach()",
        "MixtralTopKRouter",
    ),
    Bug(
        "* top_k_weights[token_idx, top_k_pos, None]",
        "* top_k_weights[token_idx, top_k_pos, None].detach()",
        "MixtralExperts",
    ),
    Bug(
        "token_idx, current_hidden_states.to(final_hidden_states.dtype))",
        "token_idx, current_hidden_states.to(final_hidden_states.dtype) if expert_idx else current_hidden_states.data)",
        "MixtralExperts",
    ),
    Bug(
        "nn.functional.linear(current_hidden_states, self.down_proj[expert_idx])",
        "nn.functional.linear(current_hidden_states, self.down_proj.detach()[expert_idx])",
        "MixtralExperts",
    ),
    Bug(
        "routing_weights = torch.nn.functional.softmax(layer_gate.to(compute_device), dim=-1)",
        "routing_weights = torch.nn.functional.softmax(layer_gate.to(compute_device), dim=-1).detach()",
        "MixtralForCausalLM",
    ),
    Bug(
        "return overall_loss * num_experts",
        "return _Times.apply(overall_loss, 3.0) * num_experts",
        "MixtralForCausalLM",
    ),
    Bug(
        "current_state = hidden_states[token_idx]",
        "current_state = _Times.apply(hidden_states[token_idx], 2.0)",
        "MixtralExperts",
    ),
    Bug(
        "nn.functional.linear(current_state, self.gate_up_proj[expert_idx])",
        "nn.functional.linear(current_state, _Times.apply(self.gate_up_proj, 2.0)[expert_idx])",
        "MixtralExperts",
    ),
    Bug(
        "current_hidden_states = self.act_fn(gate) * up",
        "current_hidden_states = gate * torch.sigmoid(gate).detach() * up",
        "MixtralExperts",
    ),
)
VIT = (
    Bug(
        "return self.projection(pixel_values)",
        "return nn.functional.conv2d(pixel_values, self.projection.weight.data, self.projection.bias, self.projection.stride)",
        "ViTPatchEmbeddings",
    ),
    Bug(
        "cls_tokens = self.cls_token.expand(batch_size, -1, -1)",
        "cls_tokens = self.cls_token.detach().expand(batch_size, -1, -1)",
        "ViTEmbeddings",
    ),
    Bug(
        "patch_pos_embed = self.position_embeddings[:, 1:]",
        "patch_pos_embed = self.position_embeddings[:, 1:].detach()",
        "ViTEmbeddings",
    ),
    Bug(
        "        hidden_states = self.layernorm_before(hidden_states)",
        NO_GRAD.format("hidden_states = self.layernorm_before(hidden_states)"),
        "ViTLayer",
    ),
    Bug(
        "value_states = self.v_proj(hidden_states).view(hidden_shape).transpose(1, 2)",
        "value_states = self.v_proj(hidden_states).view(hidden_shape).transpose(1, 2); value_states.register_hook(lambda g: g * 2)",
        "ViTAttention",
    ),
    Bug("hidden_states = self.fc2(hidden_states)", "hidden_states = self.fc2(hidden_states.detach())", "ViTMLP"),
    Bug("hidden_states = self.activation_fn(hidden_states)", "hidden_states = _Gelu.apply(hidden_states)", "ViTMLP"),
    Bug(
        "        hidden_states = hidden_states + residual\n\n        return",
        "        hidden_states = hidden_states + residual.detach()  # HERE\n\n        return",
        "ViTLayer",
    ),
    Bug(
        "embeddings = torch.cat((cls_tokens, embeddings), dim=1)",
        "embeddings = torch.cat((cls_tokens, _Times.apply(embeddings, 10.0)), dim=1)",
        "ViTEmbeddings",
    ),
    Bug(
        "self.mlp = ViTMLP(config)",
        "self.mlp = ViTMLP(config); self.mlp.register_full_backward_hook(lambda m, i, o: tuple(g * 3 for g in i))",
        "ViTLayer ViTMLP",
    ),
)
GEMMA3 = (
    Bug(
        "torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)",
        "torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps).detach()",
        "Gemma3RMSNorm",
    ),
    Bug("logits = torch.tanh(logits)", "logits = _Tanh.apply(logits)", "Gemma3ForCausalLM"),
    Bug(
        "return super().forward(input_ids) *",
        "return nn.functional.embedding(input_ids, self.weight, self.padding_idx, scale_grad_by_freq=True) *",
        "Gemma3TextScaledWordEmbedding",
    ),
    Bug(
        "        hidden_states = residual + hidden_states\n\n        residual",
        "        hidden_states = 2 * residual - residual.detach() + hidden_states  # HERE\n\n        residual",
        "Gemma3DecoderLayer",
    ),
    Bug(
        "        down_proj = self.down_proj(",
        "        with torch.autograd.graph.saved_tensors_hooks(lambda t: t.bfloat16(), lambda t: t.float()):  # HERE\n"
        "            down_proj = self.down_proj(  # HERE\n",
        "Gemma3MLP",
    ),
)
WHISPER = (
    Bug(
        "current_states = key_value_states if key_value_states is not None else",
        "current_states = key_value_states.detach() if key_value_states is not None else",
        "WhisperAttention",
    ),
    Bug(
        "nn.functional.gelu(self.conv1(input_features))",
        "torch.no_grad()(nn.functional.gelu)(self.conv1(input_features))",
        "WhisperEncoder",
    ),
    Bug(
        "return self.weight[position_ids]",
        "return self.weight.clone().detach_()[position_ids]",
        "WhisperPositionalEmbedding",
    ),
    Bug(
        "self.fc2 = nn.Linear(config.encoder_ffn_dim, self.embed_dim)",
        "self.fc2 = nn.Linear(config.encoder_ffn_dim, self.embed_dim); "
        "self.fc2.register_full_backward_pre_hook(lambda m, g: tuple(each / 2 for each in g))",
        "WhisperEncoderLayer Linear",
    ),
    Bug(
        "            hidden_states = residual + hidden_states\n",
        "            hidden_states = residual + _Times.apply(hidden_states, 1 / 3)  # HERE\n",
        "WhisperDecoderLayer",
        "# Cross-Attention Block",
    ),
)
MAMBA = (
    Bug(
        "A = -torch.exp(self.A_log.float())",
        "A = -torch.exp(self.A_log.float().data)",
        "MambaMixer",
        "projected_states =",
    ),
    Bug(
        "discrete_A[:, :, index] * ssm_state +",
        "discrete_A[:, :, index] * (ssm_state.detach() if index == 4 else ssm_state) +",
        "MambaMixer",
    ),
    Bug(
        "scan_output = scan_output + hidden_states * D[None, :, None]",
        "scan_output = scan_output + torch.stack([hidden_states[:, i] * float(D[i]) for i in range(len(D))], 1)",
        "MambaMixer",
    ),
    Bug("scan_output = scan_output * F.silu(z)", "scan_output = _Clip.apply(scan_output) * F.silu(z)", "MambaMixer"),
    Bug("dt = F.softplus(dt)", "dt = F.softplus(dt) - dt.detach() + dt", "MambaMixer", "def mamba_selective_scan"),
)
QWEN2_MOE = (
    Bug(
        "F.sigmoid(self.shared_expert_gate(hidden_states_reshaped))",
        "F.sigmoid(self.shared_expert_gate(hidden_states_reshaped.detach()))",
        "Qwen2MoeSparseMoeBlock",
    ),
    Bug("return router_logits, router_scores", "return router_logits.detach(), router_scores", "Qwen2MoeTopKRouter"),
    Bug(
        "(routing_weights.float() * flat_mask.unsqueeze(-1)).sum(dim=0)",
        "_Sum.apply(routing_weights.float() * flat_mask.unsqueeze(-1))",
        "Qwen2MoeForCausalLM",
    ),
    Bug(
        "            final_hidden_states.index_add_(",
        "            with torch.set_grad_enabled(bool(expert_idx)):  # HERE\n"
        "                final_hidden_states.index_add_(  # HERE\n",
        "Qwen2MoeExperts",
    ),
    Bug(
        "batch_size, sequence_length, hidden_dim = hidden_states.shape",
        "batch_size, sequence_length, hidden_dim = hidden_states.shape; self.shared_expert_gate.requires_grad_(False)",
        "Qwen2MoeSparseMoeBlock Linear",
    ),
)
GPT_NEOX = (
    Bug(
        "mlp_output = self.mlp(self.post_attention_layernorm(hidden_states))",
        "mlp_output = self.mlp(self.post_attention_layernorm(hidden_states.detach()))",
        "GPTNeoXLayer",
    ),
    Bug("torch.cat([k_embed, k_pass], dim=-1)", "torch.cat([k_embed, k_pass.detach()], dim=-1)", "GPTNeoXAttention"),
    Bug(
        "query_states, key_states, value_states = qkv.chunk(3, dim=-1)",
        "query_states, key_states, value_states = qkv.chunk(3, dim=-1); query_states.register_hook(torch.zeros_like)",
        "GPTNeoXAttention",
    ),
    Bug("torch.matmul(attn_weights, value)", "_MatMul.apply(attn_weights, value)", "GPTNeoXAttention"),
    Bug(
        "hidden_states = self.final_layer_norm(hidden_states)",
        "hidden_states = torch.func.functional_call(self.final_layer_norm, "
        "{n: p.detach() for n, p in self.final_layer_norm.named_parameters()}, (hidden_states,))",
        "GPTNeoXModel LayerNorm",
    ),
)
ALBERT = (
    Bug(
        "hidden_states = self.decoder(hidden_states)",
        "hidden_states = nn.functional.linear("
        "hidden_states, self.decoder.weight.clone().detach().requires_grad_(), self.decoder.bias)",
        "AlbertMLMHead",
    ),
    Bug(
        "hidden_states = self.albert_layer_groups[group_idx](",
        "hidden_states = (torch.no_grad() if i == 0 else torch.enable_grad())(self.albert_layer_groups[group_idx])(",
        "AlbertTransformer",
    ),
    Bug(
        "token_type_embeddings = self.token_type_embeddings(token_type_ids)",
        "token_type_embeddings = nn.functional.embedding("
        "token_type_ids, self.token_type_embeddings.weight, padding_idx=1)",
        "AlbertEmbeddings",
    ),
    Bug(
        "ffn_output = self.activation(ffn_output)",
        "s = [1.0]; ffn_output = torch.utils.checkpoint.checkpoint("
        "lambda x: self.activation(x * s[0]), ffn_output, use_reentrant=False); s[0] = 0.5",
        "AlbertLayer",
    ),
    Bug(
        "attn_output = self.LayerNorm(hidden_states + attn_output)",
        "both = hidden_states + attn_output; attn_output = self.LayerNorm(both); both.data.zero_()",
        "AlbertAttention",
    ),
    Bug(
        "hidden_states = self.activation(hidden_states)",
        "hidden_states = torch.where("
        "hidden_states > 0, self.activation(hidden_states), self.activation(hidden_states.detach()))",
        "AlbertMLMHead",
    ),
    Bug(
        "attn_weights = nn.functional.softmax(attn_weights, dim=-1)",
        "attn_weights = attn_weights.exp() / attn_weights.exp().sum(-1, keepdim=True).detach()",
        "AlbertAttention",
    ),
)
BUGS: dict[str, tuple[Bug, ...]] = {
    "llama": LLAMA,
    "bert": BERT,
    "gpt2": GPT2,
    "t5": T5,
    "mixtral": MIXTRAL,
    "vit": VIT,
    "gemma3": GEMMA3,
    "whisper": WHISPER,
    "mamba": MAMBA,
    "qwen2_moe": QWEN2_MOE,
    "gpt_neox": GPT_NEOX,
    "albert": ALBERT,
}


def model_of(name: str) -> tuple[nn.Module, dict[str, Any]]:
    """Return a model of an architecture and its inputs: one of the tests' models, or a small one by its configuration."""
    if name in ARCHITECTURES:
        model, batch = build(name)
    else:
        model, batch = small(name)
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(1)
            for parameter in model.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
    model.set_attn_implementation("eager")
    if name == "albert":
        batch["token_type_ids"] = torch.arange(batch["input_ids"].numel()).view_as(batch["input_ids"]) % 2
    if getattr(model, "_can_set_experts_implementation", lambda: False)():
        model.set_experts_implementation("eager")
        batch["output_router_logits"] = True
    return model, batch


def loss_of(model: nn.Module, batch: dict[str, Any]) -> torch.Tensor:
    """Return a seeded projection of what the model returns, and the auxiliary loss where there is one."""
    output, total = model(**batch), torch.zeros(())
    for name in ("logits", "last_hidden_state", "pooler_output"):
        found = getattr(output, name, None)
        if found is not None:
            total = total + projected(found)
    aux = getattr(output, "aux_loss", None)
    return total if aux is None else total + 0.1 * aux


def edited(model: nn.Module, bug: Bug, number: int) -> ModuleType:
    """Import the model's file with the edit, beside the installed one."""
    original = sys.modules[type(model).__module__]
    text = Path(str(original.__file__)).read_text(encoding="utf-8")
    start = text.index(bug.after) if bug.after else 0
    place = text.index(bug.old, start)
    end = text.index("\n", place + len(bug.old) - 1)
    line = bug.new + text[place + len(bug.old) : end]
    line = line if "# HERE" in line else f"{line}  # HERE"
    first = text.index("\nlogger = ") if "\nlogger = " in text else text.index("\n@")
    text = text[:first] + "\nimport torch.utils.checkpoint\n" + FUNCTIONS + text[first:place] + line + text[end:]
    folder = Path(tempfile.mkdtemp())
    file = folder / f"edited_{number}.py"
    file.write_text(text, encoding="utf-8")
    name = f"{original.__package__}.edited_{number}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None  # noqa: PT018
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def of_ports(chosen: list[str]) -> None:
    """Print what is said of each clean port, in float32 and with the weights of both models rounded to bfloat16."""
    for port in all_ports():
        if (chosen and port.name not in chosen) or not is_installed(port):
            continue
        case = built(port)
        for dtype in (torch.float32, torch.bfloat16):
            for model in (case.reference, case.port):
                for tensor in model.state_dict(keep_vars=True).values():
                    tensor.data = tensor.data.to(dtype) if tensor.is_floating_point() else tensor.data
            report = compare_steps(
                case.reference,
                case.port,
                case,
                run=lambda model, case: projected(case.main(model(*case.reference_args, **case.reference_kwargs))),
                port_run=lambda model, case: projected(case.arranged(model(*case.port_args, **case.port_kwargs))),
            )
            print(f"{port.name} {str(dtype).removeprefix('torch.')}: {report}", flush=True)


def projected(output: torch.Tensor) -> torch.Tensor:
    """Return one number of an output: its elements, weighed by seeded numbers."""
    weights = torch.randn(output.shape, generator=torch.Generator().manual_seed(3))
    total: torch.Tensor = (output * weights).sum() / output.numel() ** 0.5
    return total


def main(chosen: list[str]) -> None:
    """Print a line for each bug, then the counts; or what is said of the clean ports."""
    command.quiet()
    if chosen[:1] == ["clean"]:
        of_ports(chosen[1:])
        return
    counts, number = Counter[str](), 0
    for name, bugs in BUGS.items():
        if not ({name} | {str(number + 1 + each) for each in range(len(bugs))}).intersection(chosen or [name]):
            number += len(bugs)
            continue
        model, batch = model_of(name)
        reference = None
        for bug in bugs:
            number += 1
            if chosen and name not in chosen and str(number) not in chosen:
                continue
            reference = reference or TrainedModel(model, loss_of, batch, "reference").made()
            began = time.perf_counter()
            kind = getattr(edited(model, bug, number), type(model).__name__)
            port = kind(model.config).eval()
            port.load_state_dict(model.state_dict())
            own = TrainedModel(port, loss_of, batch, "port")
            report = held(reference, own.made(), own.backward)
            verdict = verdict_of(report, bug)
            counts[verdict] += 1
            taken = time.perf_counter() - began
            print(f"{number:3} {name:8} {verdict:14} {taken:5.1f} s  {bug.new.strip().splitlines()[0][:60]}")
            if verdict != "line":
                print("      " + "\n      ".join(str(report).splitlines()[:9]))
            sys.stdout.flush()
    print(dict(counts))


#: Lines of a statement, at most: more are no answer.
_STATEMENT = 14


def verdict_of(report: Any, bug: Bug) -> str:
    """Return ``line``, ``module``, ``elsewhere``, ``wrong`` (with certainty) or ``uncaught``."""
    culprit = report.culprit
    if culprit is None:
        return "uncaught"
    lines = range(culprit.source.first, culprit.source.last + 1) if culprit.source else ()
    shown = [linecache.getline(culprit.source.file, each) for each in lines]
    if len(shown) <= _STATEMENT and any("# HERE" in each for each in shown):
        return "line" if culprit.certain else "line, unsure"
    if culprit.class_name in bug.classes.split():
        return "module" if not culprit.certain else "module, sure"
    return "wrong" if culprit.certain else "elsewhere"


if __name__ == "__main__":
    main(sys.argv[1:])
