"""A port of Qwen2-MoE with names, nesting and fused projections of its own; causal, without a cache."""

import torch
import torch.nn.functional as F
from torch import nn


class RMS(nn.Module):
    def __init__(self, width, eps=1e-6):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.scale


def rotate(x, theta):
    length, dim = x.shape[-2], x.shape[-1]
    frequencies = 1.0 / theta ** (torch.arange(0, dim, 2) / dim)
    angle = torch.outer(torch.arange(length), frequencies)
    cos, sin = angle.cos(), angle.sin()
    first, second = x.chunk(2, -1)
    return torch.cat((first * cos - second * sin, first * sin + second * cos), -1)


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads, self.kv, self.dim = (
            c.num_attention_heads,
            c.num_key_value_heads,
            c.hidden_size // c.num_attention_heads,
        )
        self.theta = c.rope_parameters["rope_theta"]
        self.qkv = nn.Linear(c.hidden_size, (self.heads + 2 * self.kv) * self.dim)
        self.out = nn.Linear(self.heads * self.dim, c.hidden_size, bias=False)

    def forward(self, x):
        b, n, _ = x.shape
        q, k, v = self.qkv(x).split([self.heads * self.dim, self.kv * self.dim, self.kv * self.dim], -1)
        q = rotate(q.view(b, n, self.heads, self.dim).transpose(1, 2), self.theta)
        k = rotate(k.view(b, n, self.kv, self.dim).transpose(1, 2), self.theta)
        v = v.view(b, n, self.kv, self.dim).transpose(1, 2)
        k, v = (t.repeat_interleave(self.heads // self.kv, 1) for t in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(b, n, -1))


class GLU(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.up_gate = nn.Linear(width, 2 * inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x):
        gate, up = self.up_gate(x).chunk(2, -1)
        return self.down(F.silu(gate) * up)


class MoE(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.k = c.num_experts_per_tok
        self.router = nn.Linear(c.hidden_size, c.num_experts, bias=False)
        self.experts = nn.ModuleList(GLU(c.hidden_size, c.moe_intermediate_size) for _ in range(c.num_experts))
        self.shared = GLU(c.hidden_size, c.shared_expert_intermediate_size)
        self.shared_gate = nn.Linear(c.hidden_size, 1, bias=False)

    def forward(self, x):
        flat = x.reshape(-1, x.shape[-1])
        top, which = self.router(flat).softmax(-1).topk(self.k, -1)
        y = torch.zeros_like(flat)
        for number, expert in enumerate(self.experts):
            token, slot = (which == number).nonzero(as_tuple=True)
            y[token] += expert(flat[token]) * top[token, slot, None]
        y = y + self.shared(flat) * self.shared_gate(flat).sigmoid()
        return y.view_as(x)


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.norm1, self.att = RMS(c.hidden_size), Attention(c)
        self.norm2, self.moe = RMS(c.hidden_size), MoE(c)

    def forward(self, x):
        x = x + self.att(self.norm1(x))
        return x + self.moe(self.norm2(x))


class MyMoE(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.embed = nn.Embedding(c.vocab_size, c.hidden_size)
        self.blocks = nn.ModuleList(Block(c) for _ in range(c.num_hidden_layers))
        self.norm = RMS(c.hidden_size)
        self.head = nn.Linear(c.hidden_size, c.vocab_size, bias=False)

    def forward(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def load(port, state):
    own = {
        "embed.weight": state["model.embed_tokens.weight"],
        "norm.scale": state["model.norm.weight"],
        "head.weight": state["lm_head.weight"],
    }
    for i, block in enumerate(port.blocks):
        at = f"model.layers.{i}."
        own[f"blocks.{i}.norm1.scale"] = state[at + "input_layernorm.weight"]
        own[f"blocks.{i}.norm2.scale"] = state[at + "post_attention_layernorm.weight"]
        for kind in ("weight", "bias"):
            own[f"blocks.{i}.att.qkv.{kind}"] = torch.cat([state[f"{at}self_attn.{n}_proj.{kind}"] for n in "qkv"])
        own[f"blocks.{i}.att.out.weight"] = state[at + "self_attn.o_proj.weight"]
        own[f"blocks.{i}.moe.router.weight"] = state[at + "mlp.gate.weight"]
        own[f"blocks.{i}.moe.shared_gate.weight"] = state[at + "mlp.shared_expert_gate.weight"]
        own[f"blocks.{i}.moe.shared.up_gate.weight"] = torch.cat(
            [state[f"{at}mlp.shared_expert.{n}_proj.weight"] for n in ("gate", "up")]
        )
        own[f"blocks.{i}.moe.shared.down.weight"] = state[at + "mlp.shared_expert.down_proj.weight"]
        for e in range(len(block.moe.experts)):
            own[f"blocks.{i}.moe.experts.{e}.up_gate.weight"] = state[at + "mlp.experts.gate_up_proj"][e]
            own[f"blocks.{i}.moe.experts.{e}.down.weight"] = state[at + "mlp.experts.down_proj"][e]
    port.load_state_dict(own)
    return port.eval()
