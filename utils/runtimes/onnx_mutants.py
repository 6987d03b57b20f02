"""How often random edits of ONNX graphs are named.

Each edit changes one node of an exported model: another operator, a replaced operand, a changed constant. The exporter
has written the reference's line beside the node, so the truth is known. An edit that changes no output is none.
"""

from __future__ import annotations

import random
import re
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import onnx
import torch
import transformers
from onnx import numpy_helper
from scoring import Trial, measure

import command
from pytest_tfdebug import Trace, compare, trace
from pytest_tfdebug.onnx import arrays

_SIZES = {"hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
_SWAPS = {"Add": "Sub", "Sub": "Add", "Mul": "Add", "Div": "Mul", "Sin": "Cos", "Cos": "Sin", "Erf": "Tanh"}
_SWAPS |= {"Tanh": "Sigmoid", "Sigmoid": "Tanh", "Sqrt": "Exp", "Gelu": "Relu", "Softmax": "LogSoftmax"}
_UNARY = ("Sigmoid", "Tanh", "Erf", "Softmax", "Gelu", "Neg")


def models() -> dict[str, tuple[torch.nn.Module, dict[str, Any]]]:
    """Return the models and their inputs."""
    ids = torch.arange(1, 9)[None] * 7 % 99
    llama = transformers.LlamaConfig(**_SIZES, vocab_size=99, num_key_value_heads=2, initializer_range=0.1)
    bert = transformers.BertConfig(**_SIZES, vocab_size=99, initializer_range=0.1)
    vit = transformers.ViTConfig(**_SIZES, image_size=16, patch_size=4, num_labels=7, initializer_range=0.1)
    whisper = transformers.WhisperConfig(
        vocab_size=99, d_model=48, encoder_layers=2, decoder_layers=2, init_std=0.1, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, num_mel_bins=16, max_source_positions=20,
        max_target_positions=32, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
    )  # fmt: skip
    audio = {"input_features": torch.randn(1, 16, 40), "decoder_input_ids": ids, "use_cache": False}
    return {
        "llama": (transformers.LlamaForCausalLM(llama), {"input_ids": ids, "use_cache": False}),
        "bert": (transformers.BertModel(bert), {"input_ids": ids, "attention_mask": torch.ones_like(ids)}),
        "vit": (transformers.ViTForImageClassification(vit), {"pixel_values": torch.randn(1, 3, 16, 16)}),
        "whisper": (transformers.WhisperForConditionalGeneration(whisper), audio),
    }


def mutate(proto: Any, rng: random.Random) -> tuple[Any, Any, str]:
    """Return a copy of a graph with one edit, the node that was edited, and what was done."""
    edited = onnx.ModelProto()
    edited.CopyFrom(proto)
    known = {held.name: held for held in edited.graph.initializer}
    node = rng.choice([each for each in edited.graph.node if each.op_type not in ("Constant", "Shape")])
    constants = [name for name in node.input if name in known]
    ways = ["operand"] * (len(node.input) > 1) + ["constant"] * bool(constants)
    ways += ["swap"] * (node.op_type in _SWAPS or node.op_type in _UNARY) + ["permute"] * (node.op_type == "Transpose")
    way = rng.choice(ways or ["replace"])
    if way == "swap":
        node.op_type = _SWAPS.get(node.op_type, "Identity")
        del node.attribute[:]
    elif way == "permute":
        perm = next(each for each in node.attribute if each.name == "perm")
        first, second = rng.sample(range(len(perm.ints)), 2)
        perm.ints[first], perm.ints[second] = perm.ints[second], perm.ints[first]
    elif way == "constant":
        place = list(node.input).index(rng.choice(constants))
        held = numpy_helper.to_array(known[node.input[place]])
        changed = held + 1 if held.dtype.kind in "iu" else held * np.asarray(rng.choice([1.05, 1.5, -1]), held.dtype)
        fresh = numpy_helper.from_array(np.asarray(changed, held.dtype), f"{node.input[place]}_edited")
        edited.graph.initializer.append(fresh)
        node.input[place] = fresh.name
    else:
        before = [name for each in edited.graph.node for name in each.output]
        earlier = before[: before.index(node.output[0])] or list(node.input)
        place = rng.randrange(len(node.input))
        node.input[place] = rng.choice(earlier[-12:])
    return edited, node, f"{way} {node.op_type}"


def truth(node: Any) -> str:
    """Return the reference's line of a node, ``file:line``: the innermost outside of torch."""
    told = {entry.key: entry.value for entry in node.metadata_props}.get("pkg.torch.onnx.stack_trace", "")
    frames = [each for each in re.findall(r'File "([^"]+)", line (\d+)', told) if "/torch/" not in each[0]]
    return " ".join(f"{Path(file).name}:{line}" for file, line in frames[-2:])


def exported(name: str, model: torch.nn.Module, inputs: dict[str, Any], folder: Path) -> tuple[Any, ...]:
    """Export a model, say whether it is quiet, and return what edits of it need."""
    with torch.no_grad():
        for parameter in model.eval().parameters():
            if parameter.dim() == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
    program = torch.onnx.export(model, (), kwargs=inputs, dynamo=True, verbose=False)
    assert program is not None
    program.save(str(folder / f"{name}.onnx"))
    proto = onnx.load(folder / f"{name}.onnx")
    trace(model, **inputs).save(folder / f"{name}.safetensors")
    recorded, clean = Trace.load(folder / f"{name}.safetensors"), arrays(proto, inputs)
    report = compare(recorded, clean)
    print(f"{name}: {'quiet' if report.ok else 'LOUD'}, {report.tensors} of {len(report.arrays)} arrays paired")
    return name, proto, inputs, recorded, clean


def draw(rng: random.Random, subjects: list[tuple[Any, ...]]) -> Trial | None:
    """Make a random edit."""
    name, proto, inputs, recorded, clean = rng.choice(subjects)
    edited, node, what = mutate(proto, rng)
    lines = truth(node)
    try:
        found = arrays(edited, inputs)
    except Exception:  # noqa: BLE001 - shapes that do not fit: no model comes of it
        return None
    held, changed = ({label.split(" ")[0]: array for label, array in side} for side in (clean, found))
    pairs = [(held[value.name], changed[value.name]) for value in proto.graph.output]
    is_seen = any(
        one.shape != other.shape or np.abs(other - one).max() > 1e-4 * np.abs(one).max() for one, other in pairs
    )
    if not lines or not is_seen or any(not np.isfinite(other).all() for _, other in pairs):
        return None
    names = frozenset(lines.split())
    return Trial(f"{name:8} {what:20} {lines}", recorded, found, lambda text: not names.isdisjoint(text.split()))


if __name__ == "__main__":
    options = command.parser(__doc__, "edits", "seed").parse_args()
    command.quiet()
    torch.manual_seed(0)
    place = Path(mkdtemp())
    measure(partial(draw, subjects=[exported(name, *of, place) for name, of in models().items()]), options)
