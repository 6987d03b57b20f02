"""What a model computes of its parameters alone, which a port holds instead of them: it is *folded* there.

``weight * rsqrt(running_var + eps)`` of a batch norm, say, is one number for each channel, and so a parameter of many a
port. In half precision that is rounded once more, so that its numbers are none of the reference's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd
from torch.nn.utils import parametrize

from pytest_tfdebug.module_path import under
from pytest_tfdebug.tracing.values.widening import to_float32, widened

if TYPE_CHECKING:
    from collections.abc import Iterator

#: A name, what is computed under it, and the parameters of which it is.
_Folded = tuple[str, torch.Tensor, list[str]]


@torch.no_grad()
def computed_weights(model: torch.nn.Module) -> tuple[dict[str, torch.Tensor], dict[str, list[str]]]:
    """Return what modules compute of their parameters alone, by a name, and of which parameters each is computed."""
    found = [*_parametrized(model), *_of_batch_norms(model), *_of_recurrent_layers(model)]
    return {name: tensor for name, tensor, _ in found}, {name: made_of for name, _, made_of in found}


def _parametrized(model: torch.nn.Module) -> Iterator[_Folded]:
    """Yield the weights of parametrised modules: ``g * v / norm(v)`` of a weight norm."""
    for path, module in model.named_modules():
        for name in module.parametrizations if parametrize.is_parametrized(module) else ():
            with widened(module, ((), {}), to_float32(module)):
                weight = getattr(module, name)
            originals = module.parametrizations[name].named_parameters(under(path, f"parametrizations.{name}"))
            yield under(path, name), weight, [each for each, _ in originals]


def _of_batch_norms(model: torch.nn.Module) -> Iterator[_Folded]:
    """Yield the factor and the offset of each channel, and the layer before with the factor in its weight."""
    before: tuple[str, torch.nn.Linear | _ConvNd] | None = None
    for path, module in model.named_modules():
        if isinstance(module, (torch.nn.Linear, _ConvNd)):
            before = path, module
        if not isinstance(module, _BatchNorm) or module.running_mean is None or module.running_var is None:
            continue
        factor = (module.running_var.float() + module.eps).rsqrt()
        factor = factor if module.weight is None else module.weight.float() * factor
        offset = -module.running_mean.float() * factor
        offset = offset if module.bias is None else module.bias.float() + offset
        names = [under(path, name) for name, _ in module.named_parameters(recurse=False)]
        yield under(path, "folded factor"), factor, names
        yield under(path, "folded offset"), offset, names
        if before is None or before[1].weight.shape[0] != len(factor):
            continue
        there, layer = before
        more = [*names, *(under(there, name) for name, _ in layer.named_parameters(recurse=False))]
        yield under(there, "folded weight"), (layer.weight.float().transpose(0, -1) * factor).transpose(0, -1), more
        if layer.bias is not None:
            yield under(there, "folded bias"), layer.bias.float() * factor + offset, more


def _of_recurrent_layers(model: torch.nn.Module) -> Iterator[_Folded]:
    """Yield the sum of both biases of each direction: of an LSTM there is no other use of them."""
    for path, module in model.named_modules():
        for name, bias in module.named_parameters(recurse=False) if isinstance(module, torch.nn.LSTM) else ():
            other = name.replace("bias_ih", "bias_hh")
            if name != other:
                names = [under(path, name), under(path, other)]
                yield under(path, f"folded {name}"), bias.float() + getattr(module, other).float(), names
