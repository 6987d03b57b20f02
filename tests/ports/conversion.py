"""Give a port the weights of its reference."""

from __future__ import annotations

import re

import torch


def carried(port, reference, names=(), cut=lambda weights: weights, kept=()):
    """Give a port the reference's weights, under names that patterns translate, and return it in evaluation mode.

    Args:
        port: The port. It keeps the buffers that the reference has not.
        reference: The model whose weights it gets.
        names: Pairs of a pattern and its replacement; without any, the n-th tensor of one is the n-th of the other.
        cut: Rearranges the reference's weights before they are named.
        kept: Parts of the names of parameters that the port keeps too: it does not use them, or they are constants.
    """
    theirs = cut(dict(reference.state_dict()))
    own = port.state_dict()
    theirs = named(theirs, names) if names else dict(zip(own, theirs.values(), strict=True))
    parameters = dict(port.named_parameters(remove_duplicate=False))
    left = {
        name: own[name]
        for name in own.keys() - theirs.keys()
        if name not in parameters or any(each in name for each in kept)
    }
    port.load_state_dict({**{n: w for n, w in theirs.items() if n in own}, **left})
    return port.eval()


def named(weights, names):
    """Return weights under the names that patterns translate, one after the other."""
    renamed = {}
    for name, weight in weights.items():
        for pattern, replacement in names:
            name = re.sub(pattern, replacement, name)  # noqa: PLW2901 - step by step
        renamed[name] = weight
    return renamed


def names_of(rename):
    """Return pairs of a pattern and its replacement from a table of modules, the port's to the reference's.

    Args:
        rename: As in ``Port.rename``: an asterisk stands for a number. Of what stands inside another, both may be named.
    """
    pairs = []
    for ours, theirs in sorted(rename.items(), key=lambda pair: -len(pair[1])):
        start, *rest = ours.split("*")
        numbered = "".join(f"\\{place}{part}" for place, part in enumerate(rest, 1))
        pairs.append(("^" + re.escape(theirs).replace(r"\*", r"(\d+)") + r"(?=\.)", start + numbered))
    return pairs


def fused(weights, parts, whole):
    """Join the tensors of some modules into one, in the order given."""
    first = parts[0]
    for name in [name for name in weights if f"{first}." in name]:
        weights[name.replace(first, whole)] = torch.cat([weights.pop(name.replace(first, part)) for part in parts])
    return weights


def picture(size, channels=3, batch=2):
    """Return seeded pixels, ``(batch, channels, size, size)``."""
    return torch.randn(batch, channels, size, size, generator=torch.Generator().manual_seed(1))


def experienced(model):
    """Return a model whose running statistics are none of a new one."""
    generator = torch.Generator().manual_seed(2)
    for name, buffer in model.named_buffers():
        if "running" in name:
            buffer.add_(torch.rand(buffer.shape, generator=generator))
    return model
