"""Which fields of a configuration matter, what inputs cannot see, and which fields ports ignore.

``alone``: architectures of transformers by themselves. ``ports``: implementations that read configurations of
transformers, held to it by a sweep: mlx-lm, ibm-fms, curated-transformers; each is loaded by its own public loader from
a folder that ``save_pretrained`` wrote. Those that are not installed are left out and named. ``blind``: what goldens of
the tests' models cannot see, and a bug planted there.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
import transformers

import command
import padding_models
import pytest_tfdebug
from architectures import small
from blind_spots import planted

#: Sizes of every configuration; an architecture takes those that it has.
SIZES: dict[str, Any] = {
    "vocab_size": 99,
    "max_position_embeddings": 128,
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers"), 2),
    **dict.fromkeys(("hidden_size", "n_embd", "d_model"), 64),
    **dict.fromkeys(("intermediate_size", "n_inner", "ffn_hidden_size"), 96),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads"), 4),
    "num_key_value_heads": 2,
    "head_dim": 16,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48}
LOCAL_EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}


class Pair(NamedTuple):
    """A port of other people beside its reference."""

    name: str
    model_class: type
    config: Any
    read: Callable[[Path], Any]  # loads the port from a folder that ``save_pretrained`` has written
    call: Callable[[Any, torch.Tensor], Any]  # gives it ids

    def sweep(self) -> Any:
        """Return the report on the fields; the port is loaded once its reference is known."""

        def load(port: SimpleNamespace, reference: torch.nn.Module) -> None:
            with saved(reference, port.config, is_version_4=self.read is not _fms) as folder:
                port.model = self.read(folder)

        def forward(port: SimpleNamespace, inputs: Mapping[str, Any]) -> Any:
            return self.call(port.model, inputs["input_ids"])

        return pytest_tfdebug.sweep(
            self.model_class,
            self.config,
            build=lambda config: SimpleNamespace(config=config),
            load=load,
            forward=forward,
        )


@contextmanager
def saved(reference: Any, config: Any, *, is_version_4: bool = True) -> Iterator[Path]:
    """Give a folder with a model as ``save_pretrained`` writes it, its configuration as transformers 4 would."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        reference.save_pretrained(folder)
        config.architectures = [type(reference).__name__]
        config.save_pretrained(folder)
        if is_version_4:
            file = folder / "config.json"
            file.write_text(json.dumps(as_version_4(json.loads(file.read_text()))))
        yield folder


def as_version_4(config: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration with its rotary parameters where transformers 4 has them."""
    config["torch_dtype"] = config.pop("dtype", None)
    if "n_positions" in config:
        config.setdefault("n_ctx", config["n_positions"])
    rope = config.pop("rope_parameters", None)
    if rope is None:
        return config
    if "rope_type" not in rope:  # one for each kind of layer
        rope = _one_for_all_layers(config, rope)
    config.update({name: rope.pop(name) for name in ("rope_theta", "partial_rotary_factor") if rope.get(name)})
    rope.pop("rope_theta", None)
    if config["model_type"] == "gpt_neox":
        config.update(rotary_emb_base=config["rope_theta"], rotary_pct=config["partial_rotary_factor"])
    config["rope_scaling"] = None if rope.get("rope_type") == "default" else {**rope, "type": rope.get("rope_type")}
    return config


def _one_for_all_layers(config: dict[str, Any], ropes: dict[str, Any]) -> dict[str, Any]:
    """Return the one dict that version 4 has for all kinds of layers; Gemma 3 has a base of its own for windows.

    Raises:
        ValueError: If version 4 cannot write it.
    """
    whole, window = ropes["full_attention"], ropes["sliding_attention"]
    has_own_base = "gemma3" in config["model_type"]
    if window["rope_type"] != "default" or (not has_own_base and window["rope_theta"] != whole["rope_theta"]):
        raise ValueError("transformers 4 cannot write these rotary embeddings")
    if has_own_base:
        config["rope_local_base_freq"] = window["rope_theta"]
    return dict(whole)


def _mlx(folder: Path) -> Any:
    return import_module("mlx_lm.utils").load_model(folder)[0]


def _mlx_call(model: Any, ids: torch.Tensor) -> torch.Tensor:
    mx = import_module("mlx.core")
    return torch.from_numpy(import_module("numpy").array(model(mx.array(ids.numpy())).astype(mx.float32)))


def _fms(folder: Path) -> Any:
    with torch.enable_grad():
        return import_module("fms.models").get_model("hf_pretrained", str(folder), data_type=torch.float32).eval()


def _curated(class_name: str) -> Callable[[Path], Any]:
    def read(folder: Path) -> Any:
        local = import_module("fsspec.implementations.local").LocalFileSystem()
        found = import_module("curated_transformers.models")
        return getattr(found, class_name).from_fsspec(fs=local, model_path=str(folder)).eval()

    return read


def _curated_call(model: Any, ids: torch.Tensor) -> Any:
    mask = import_module("curated_transformers.layers").AttentionMask(torch.ones_like(ids, dtype=torch.bool))
    found = model(ids, mask)
    return found.logits if hasattr(found, "logits") else found.all_outputs[-1]


#: Model type -> what its configuration needs beside ``SIZES``. Three ports compute another GELU than their model's
#: own, and differ by 2e-4 with that: they are swept with the one that they compute.
# fmt: off
MLX: dict[str, dict[str, Any]] = {
    **{kind: {} for kind in ("llama", "qwen2", "qwen3", "phi", "stablelm", "cohere", "olmo2")},
    "mistral": {"sliding_window": 4096}, "phi3": {"original_max_position_embeddings": 128, "sliding_window": 4096},
    "qwen2_moe": {**EXPERTS, "shared_expert_intermediate_size": 48}, "mixtral": LOCAL_EXPERTS,
    "gemma2": {"query_pre_attn_scalar": 16}, "gemma3_text": {"query_pre_attn_scalar": 16, "sliding_window_pattern": 2},
    "gpt_neox": {"intermediate_size": 256, "hidden_act": "gelu_pytorch_tanh"}, "starcoder2": {"hidden_act": "gelu"},
    "gpt_bigcode": {"n_positions": 128, "activation_function": "gelu"}, "granitemoe": LOCAL_EXPERTS,
    "olmo3": {"layer_types": ["sliding_attention", "full_attention"]},
    "olmoe": {"num_experts": 4, "num_experts_per_tok": 2}, "glm": {"partial_rotary_factor": 1.0},
    **{kind: {} for kind in ("granite", "helium", "smollm3", "nemotron", "ernie4_5", "seed_oss", "hunyuan_v1_dense")},
    "glm4": {"partial_rotary_factor": 0.5}, "mamba": {"state_size": 8}, "internlm3": {},
    "gptj": {"n_positions": 128, "rotary_dim": 8, "n_inner": 256},
}
FMS: dict[str, dict[str, Any]] = {
    "llama": {}, "granite": {}, "gpt_bigcode": {"n_positions": 128},
    "roberta": {"type_vocab_size": 1, "max_position_embeddings": 130, "pad_token_id": 1},
}
_ROBERTA = {"pad_token_id": 1, "max_position_embeddings": 130}
CURATED: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama": ("LlamaCausalLM", "LlamaForCausalLM", {}),
    "gpt_neox": ("GPTNeoXCausalLM", "GPTNeoXForCausalLM", {}),
    "mpt": ("MPTCausalLM", "MptForCausalLM", {"max_seq_len": 128}),
    "bert": ("BERTEncoder", "BertModel", {}),
    "roberta": ("RoBERTaEncoder", "RobertaModel", _ROBERTA),
    "xlm-roberta": ("XLMREncoder", "XLMRobertaModel", _ROBERTA),
    "camembert": ("CamemBERTEncoder", "CamembertModel", _ROBERTA),
    "albert": ("ALBERTEncoder", "AlbertModel", {"embedding_size": 32}),
}
# fmt: on


def small_config(kind: str, own: Mapping[str, Any]) -> Any:
    """Return a small configuration: what its class knows of the sizes, and what is its own."""
    config_class = transformers.CONFIG_MAPPING[kind]
    known = config_class().to_dict().keys() | getattr(config_class, "attribute_map", {}).keys()
    return config_class(**{**{name: value for name, value in SIZES.items() if name in known}, **own})


def _of_auto(kind: str) -> type:
    auto = transformers.AutoModelForMaskedLM if kind == "roberta" else transformers.AutoModelForCausalLM
    found: type = auto._model_mapping[transformers.CONFIG_MAPPING[kind]]  # noqa: SLF001 - the only table of classes
    return found


PORTS = (
    *(Pair(f"mlx-lm {kind}", _of_auto(kind), small_config(kind, own), _mlx, _mlx_call) for kind, own in MLX.items()),
    *(Pair(f"ibm-fms {kind}", _of_auto(kind), small_config(kind, own), _fms, lambda model, ids: model(ids))
      for kind, own in FMS.items()),
    *(Pair(f"curated {kind}", getattr(transformers, of), small_config(kind, own), _curated(port), _curated_call)
      for kind, (port, of, own) in CURATED.items()),
)  # fmt: skip

#: Architectures that are swept alone: decoders, encoders, mixtures of experts, state spaces, sequence to sequence.
ALONE = """
albert afmoe bart bert bloom codegen cohere cohere2 deberta-v2 deepseek_v3 diffllama electra exaone4 falcon gemma gemma2
gemma3_text glm4_moe gpt2 gpt_neo gpt_neox gpt_oss gptj granite helium lfm2 llama llama4_text mistral mixtral
modernbert-decoder mpt nemotron olmo2 opt phi3 qwen2 qwen3_next roberta smollm3 stablelm starcoder2 t5 whisper
"""


def alone(kinds: list[str]) -> None:
    """Print a row for each architecture: fields, those that matter, those that hide, and seconds of the processor."""
    heads = "architecture", "fields", "matter", "s", "never move the output; cannot be seen at their value"
    table = command.Table(*heads)
    for kind in kinds or ALONE.split():
        try:
            model, _ = small(kind)
        except ValueError as error:
            print(f"{kind}: not built: {error}")
            continue
        began = time.process_time()
        report = pytest_tfdebug.sweep(type(model), model.config)
        matter = {row.field for row in report.rows if row.verdict == "matters"}
        never = [row.field for row in report.rows if row.verdict == "never"]
        hidden = _told(never, [f"{spot.field}={spot.own!r}" for spot in report.blind])
        table.add(kind, (len(matter) + len(never), len(matter), time.process_time() - began, hidden))
    table.total()


def _told(*lists: list[str]) -> str:
    return "; ".join(", ".join(each) or "-" for each in lists)


def ports(names: list[str]) -> None:
    """Print a row for each port: how its fields fared, and each that it does not follow."""
    verdicts = ("agrees", "refused", "ignored", "differs")
    table = command.Table("port", "matter", *verdicts, "s", "ignored; differing")
    for pair in (pair for pair in PORTS if not names or any(name in pair.name for name in names)):
        began = time.process_time()
        try:
            report = pair.sweep()
        except Exception as error:  # noqa: BLE001 - a port that cannot be held is told, and left out
            print(f"{pair.name}: not held: {str(error).splitlines()[0][:150]}")
            continue
        rows = [row for row in report.rows if row.verdict != "never"]
        moves = {verdict: [f"{row.field} ({row.own} -> {row.value})" for row in rows if row.verdict == verdict]
                 for verdict in verdicts}  # fmt: skip
        named = _told(moves["ignored"], moves["differs"])
        table.add(pair.name, (len(rows), *map(len, moves.values()), time.process_time() - began, named))
    table.total()


def blind(names: list[str]) -> None:
    """Print the blind spots of goldens of the tests' models, with a bug in each."""
    table = command.Table("golden of", "field", "the bug computes with", "instead of", "passes", "seen at", "fails")
    for name in names or padding_models.ARCHITECTURES:  # those of models.py among them
        model, inputs = padding_models.build(name)
        for spot, passes, fails in planted(model, inputs) if isinstance(model, transformers.PreTrainedModel) else ():
            table.add(name, (spot.field, repr(spot.instead), repr(spot.own), str(passes), repr(spot.value), str(fails)))


def main() -> None:
    """Print the table that is asked for."""
    parser = command.parser(__doc__)
    parser.add_argument("table", choices=("alone", "blind", "ports"))
    parser.add_argument("names", nargs="*", help="architectures, or parts of names of ports")
    given = parser.parse_args()
    command.quiet()
    {"alone": alone, "blind": blind, "ports": ports}[given.table](given.names)


if __name__ == "__main__":
    main()
