"""Mixtral in litgpt: a loop over the experts' own modules, where the reference holds all experts in one tensor."""

from __future__ import annotations

import torch
from cases import Bug, Case, Port, shaken, tokens
from conversion import carried, fused, names_of
from transformers import MixtralConfig, MixtralForCausalLM

MODEL = "litgpt.model"
MOE, MLP, BLOCK, ATTENTION = "class LLaMAMoE", "class LLaMAMLP", "class Block", "class CausalSelfAttention"
EXPERTS = 4


def build(load):
    reference = shaken(
        MixtralForCausalLM(
            MixtralConfig(
                vocab_size=64,
                hidden_size=32,
                intermediate_size=40,
                num_hidden_layers=3,
                num_attention_heads=4,
                num_key_value_heads=2,
                num_local_experts=EXPERTS,
                num_experts_per_tok=2,
                max_position_embeddings=32,
                rms_norm_eps=1e-5,
                rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
            )
        )
    )
    with torch.no_grad():
        for layer in reference.model.layers:
            for experts in layer.mlp.experts.parameters():
                experts.mul_(experts.shape[1] ** 0.5)
    config = load("litgpt.config").Config(
        name="tiny",
        block_size=32,
        n_layer=3,
        n_embd=32,
        padded_vocab_size=64,
        n_head=4,
        n_query_groups=2,
        rotary_percentage=1.0,
        parallel_residual=False,
        bias=False,
        norm_class_name="RMSNorm",
        mlp_class_name="LLaMAMoE",
        moe_intermediate_size=40,
        intermediate_size=40,
        n_expert=EXPERTS,
        n_expert_per_token=2,
    )
    port = load(MODEL).GPT(config).eval()
    port = carried(port, reference, names_of(PORT.rename), unpacked)
    ids = tokens(64)
    return Case(reference, port, reference_kwargs={"input_ids": ids, "use_cache": False}, port_args=(ids,))


NAMES = {
    "norm_1": "input_layernorm",
    "norm_2": "post_attention_layernorm",
    "attn.proj": "self_attn.o_proj",
    "mlp.gate": "mlp.gate",
}


def unpacked(weights):
    for layer in range(3):
        path = f"model.layers.{layer}.mlp.experts"
        both, down = weights.pop(f"{path}.gate_up_proj"), weights.pop(f"{path}.down_proj")
        for expert in range(EXPERTS):
            parts = {"fc_1": both[expert].chunk(2)[0], "fc_2": both[expert].chunk(2)[1], "proj": down[expert]}
            weights |= {f"{path}.{expert}.{part}.weight": weight for part, weight in parts.items()}
    return fused(weights, [f"self_attn.{part}_proj" for part in "qkv"], "self_attn.qkv")


def swap_experts(block):
    """Load two experts into each other's place."""
    first, second = block.mlp.experts[1], block.mlp.experts[2]
    for one, other in zip(first.parameters(), second.parameters(), strict=True):
        one.data, other.data = other.data, one.data


def swap_gates_and_values(block):
    """Load the gate's matrix of every expert as the value's, and the reverse."""
    for expert in block.mlp.experts:
        expert.fc_1.weight.data, expert.fc_2.weight.data = expert.fc_2.weight.data, expert.fc_1.weight.data


#: A bug in all experts may be shown in any of them.
ANY_EXPERT = tuple(f"mlp.experts.{expert}" for expert in range(EXPERTS))
WEIGHTED = "y[token_idx] += probs[token_idx, expert_idx, None] * expert(x[token_idx])"
RESIDUAL = ("hidden_states = residual + hidden_states",)

BUGS = (
    Bug(
        "weights of the chosen not normalised",
        ("mlp",),
        MODEL,
        "            probs, indices = torch.topk(router, self.config.n_expert_per_token)  # (B*T, n_expert_per_token)\n            probs = probs.softmax(dim=1, dtype=torch.float).to(dtype=x.dtype)",
        "            probs, indices = torch.topk(router.softmax(dim=1), self.config.n_expert_per_token)",
        MOE,
        reference_lines=("router_top_value /= router_top_value.sum",),
        shows=(WEIGHTED,),
    ),
    Bug(
        "sigmoid instead of softmax",
        ("mlp",),
        MODEL,
        "probs = probs.softmax(dim=1, dtype=torch.float).to(dtype=x.dtype)",
        "probs = probs.sigmoid()",
        MOE,
    ),
    Bug(
        "least likely experts",
        ("mlp",),
        MODEL,
        "torch.topk(router, self.config.n_expert_per_token)",
        "torch.topk(router, self.config.n_expert_per_token, largest=False)",
        MOE,
    ),
    Bug(
        "one expert for each token",
        ("mlp",),
        MODEL,
        "probs, indices = torch.topk(router, self.config.n_expert_per_token)",
        "probs, indices = torch.topk(router, 1)",
        MOE,
    ),
    Bug(
        "experts not weighted",
        ("mlp",),
        MODEL,
        WEIGHTED,
        "y[token_idx] += 0.5 * expert(x[token_idx])",
        MOE,
        reference_lines=("top_k_weights",),
    ),
    Bug(
        "weights of the other choice",
        ("mlp",),
        MODEL,
        WEIGHTED,
        WEIGHTED.replace("probs[token_idx, expert_idx, None]", "probs[token_idx, 1 - expert_idx, None]"),
        MOE,
    ),
    Bug("last expert wins", ("mlp",), MODEL, WEIGHTED, WEIGHTED.replace("+=", "="), MOE),
    Bug("gelu instead of silu", ANY_EXPERT, MODEL, "F.silu(x_fc_1)", "F.gelu(x_fc_1)", MLP),
    Bug("gate and value swapped", ANY_EXPERT, MODEL, "F.silu(x_fc_1) * x_fc_2", "F.silu(x_fc_2) * x_fc_1", MLP),
    Bug(
        "residual of the experts missing",
        ("",),
        MODEL,
        "return self.post_mlp_norm(self.mlp(x_normed)) + x",
        "return self.post_mlp_norm(self.mlp(x_normed))",
        BLOCK,
        reference_lines=RESIDUAL,
    ),
    Bug(
        "residual of the norm",
        ("",),
        MODEL,
        "return self.post_mlp_norm(self.mlp(x_normed)) + x",
        "return self.post_mlp_norm(self.mlp(x_normed)) + x_normed",
        BLOCK,
        reference_lines=RESIDUAL,
    ),
    Bug(
        "values tiled",
        ("attn",),
        MODEL,
        "v = v.repeat_interleave(q_per_kv, dim=1)",
        "v = v.repeat(1, q_per_kv, 1, 1)",
        ATTENTION,
    ),
    Bug(
        "experts swapped",
        (
            "mlp.experts.1",
            "mlp.experts.2",
            "mlp",
            *(f"mlp.experts.{expert}.{part}" for expert in (1, 2) for part in ("fc_1", "fc_2", "proj")),
        ),
        change=swap_experts,
    ),
    Bug(
        "gate and value matrices swapped",
        (*ANY_EXPERT, *(f"{path}.{part}" for path in ANY_EXPERT for part in ("fc_1", "fc_2"))),
        change=swap_gates_and_values,
    ),
)

PORT = Port(
    "litgpt-mixtral",
    "litgpt",
    (MODEL, "litgpt.config"),
    build,
    BUGS,
    "transformer.h.1",
    {
        "transformer.wte": "model.embed_tokens",
        "transformer.h.*": "model.layers.*",
        "transformer.h.*.attn": "model.layers.*.self_attn",
    }
    | {f"transformer.h.*.{ours}": f"model.layers.*.{theirs}" for ours, theirs in NAMES.items()}
    | {"transformer.ln_f": "model.norm"},
)
