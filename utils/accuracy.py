"""How many injected port bugs are placed at the right module: this package, pytest-torch and the usual gates.

This package is asked as users ask it: ``tf_golden.check`` in pytest, the golden on disk, the reference at hand.
Every bug of ``fixtures/bugs.py`` goes into a copy of its model; each tool sees the right and the wrong model and the
same inputs.

caught            the wrong model is not called right
named             the answer is the module whose code or parameters are wrong (for this package the kind too)
in three lines    named by a range of three lines at most, by one statement, or by the parameter
named or inside   it is that module or one within it, which is all that a tool without glue can say of glue
proved            a change of one place was tried, and after it every output agrees
by floors         what is allowed is a multiple of what float64 says (``tolerance="fp64"``)
without names     every module of the wrong model has another name, and no ``rename=`` says which is which

With ``--ports``, the bugs of ``tests/ports``, which nobody here wrote, without ``rename=``:

line              the edited line, or the reference's for what is left out, in a range of at most ten
module            the module, those with the line among them
unsure, wrong     another place, said to be uncertain; another place, with certainty
alarm             the clean port is called wrong

With ``--ports --together 2``, so many of these bugs at once, at different lines of one port, drawn ``--cases`` times:

later             faults beside the one that the first entry names that another entry names by line
line, module      faults that an entry names by line, by module
false, wrong      entries that name another place; those of them that do so with certainty
agree, mended     cases where every output agrees behind the last entry; after changes alone

With ``--half``, the catalogue in float32, bfloat16 and float16, each against a golden on disk beside a live reference,
with the clean copies that are called wrong (``alarms``). ``--seconds 0`` leaves out the search for proofs.

With ``--own LAYERS``, a Llama of so many layers (hidden 512) and a port of it with names of its own, right and with
small bugs in its middle layer, in the same three dtypes: who is named, and how long a check takes. What passes with a
note that names the module is ``told``: an epsilon that no output shows.

With ``--controls``, models that no edit makes: noise on a weight, or a module that gives a fixed tensor. None may be
proved.
"""

from __future__ import annotations

import copy
import tempfile
import time
from collections import Counter
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import command

# isort: split
import argparse
from collections.abc import Callable

from as_checked import checked
from cases import Case
from corpus import all_ports
from judging import alarm, compared, is_installed, judged
from together import drawn, judged_together

import llama_port
from bugs import BUGS, Bug
from edits import disguised, head, is_narrow, without_names
from injections import Inject, edit, reload, set_to
from models import ARCHITECTURES, IS_V5, build
from pytest_tfdebug import ParityReport, compare, trace
from pytest_tfdebug.constructed import noted
from pytest_tfdebug.goldens.golden_file import load, save
from pytest_tfdebug.goldens.held_model import compare_with
from pytest_tfdebug.goldens.port_call import PortCall
from pytest_tfdebug.goldens.settings import CheckSettings
from pytest_tfdebug.parity.tensors.tolerance import Tolerances
from pytest_tfdebug.tracing.record.leaves import replaced
from pytest_tfdebug.tracing.trace import in_float32
from pytest_tfdebug.tracing.values.rerun import Rerun

_VERDICTS = ("line", "module", "unsure", "wrong", "missed", "error")
#: Kinds that may be told instead: a wrong parameter as the code that uses it; as itself, where a golden has its hash.
_ALIKE = {("weights", "module"), ("weights", "glue"), ("module", "weights")}
_NOISE = 0.1


class Answer(NamedTuple):
    """Whether a tool calls the wrong model wrong, the module that it names and its kind, and how well."""

    is_caught: bool
    path: str = ""
    kind: str = ""
    is_narrow: bool = False
    is_proved: bool = False
    told: str = ""  # what a pass says that no output shows


class Pair(NamedTuple):
    """A right and a wrong model, and their inputs."""

    right: torch.nn.Module
    wrong: torch.nn.Module
    inputs: dict[str, Any]


def pair_of(architecture: str, corrupt: Callable[[torch.nn.Module], object]) -> Pair:
    """Return a model and a copy of it with something wrong."""
    right, inputs = build(architecture)
    wrong = copy.deepcopy(right)
    corrupt(wrong)
    return Pair(right, wrong, inputs)


def ours(pair: Pair, *, has_names: bool = True, **settings: Any) -> Answer:
    """Return the answer of this package."""
    actual, own = trace(pair.wrong, **pair.inputs), dict[str, str]()
    if not has_names:
        own = {disguised(path): path for path in (*actual.modules, *(call.path for call in actual.calls))}
        actual = without_names(actual)
    return _answer(compare(trace(pair.right, **pair.inputs), actual, internal="fail", **settings), own)


def as_users_check(pair: Pair) -> Answer:
    """Return the answer of ``tf_golden.check`` in a test, with the golden on disk."""
    return _answer(checked(Case(pair.right, pair.wrong, (), pair.inputs, (), pair.inputs), internal="fail"), {})


def _answer(report: ParityReport, own: dict[str, str]) -> Answer:
    culprit = report.culprit
    if culprit is None:
        return Answer(not report.ok, told=" ".join(report.unseen))
    is_line = culprit.kind == "weights" or is_narrow(culprit.source)
    return Answer(not report.ok, own.get(culprit.path, culprit.path), culprit.kind, is_line, bool(culprit.proved))


def pytest_torch(pair: Pair, *, leaf_only: bool) -> Answer:
    """Return pytest-torch's first diverging row."""
    from pytest_torch import localize_divergence

    row = localize_divergence(pair.right, pair.wrong, pair.inputs, leaf_only=leaf_only).first
    return Answer(row is not None, "" if row is None else str(row.name))


def gate(pair: Pair, is_close: Callable[[torch.Tensor, torch.Tensor], bool], count: int | None = 1) -> Answer:
    """Return what a gate says that looks at so many outputs of floating point, or at all of them."""
    traces = trace(pair.right, **pair.inputs), trace(pair.wrong, **pair.inputs)
    theirs, own = ([record.tensor for record in side.calls[0].outputs or () if record.dtype.startswith("float")]
                   for side in traces)  # fmt: skip
    pairs = [*zip(theirs, own, strict=False)][:count]
    is_whole = count is not None or len(theirs) == len(own)
    return Answer(not is_whole or any(one.shape != other.shape or not is_close(one, other) for one, other in pairs))


_close = partial(torch.allclose, rtol=0.0, atol=1e-3)


TOOLS: dict[str, Callable[[Pair], Answer]] = {
    "pytest-tfdebug": as_users_check,
    "of two traces": ours,
    "by floors": partial(ours, tolerance="fp64"),
    "without names": partial(ours, has_names=False),
    "pytest-torch, leaves": partial(pytest_torch, leaf_only=True),
    "pytest-torch, all": partial(pytest_torch, leaf_only=False),
    "argmax of the first output": partial(gate, is_close=lambda one, other: one.argmax(-1).equal(other.argmax(-1))),
    "its cosine above 0.98": partial(
        gate,
        is_close=lambda one, other: torch.cosine_similarity(one.flatten(), other.flatten(), 0).item() > 0.98,  # noqa: PLR2004 - as used
    ),
    "it, within atol 1e-3": partial(gate, is_close=_close),
    "all outputs within 1e-3": partial(gate, is_close=_close, count=None),
}


def of_catalogue(architectures: list[str]) -> None:
    """Print how many bugs of the catalogue each tool catches and places."""
    bugs = [bug for bug in BUGS if (IS_V5 or not bug.needs_v5) and bug.architecture in architectures]
    table = command.Table(f"of {len(bugs)} bugs", "caught", "named", "in three lines", "named or inside", "proved")
    for name, tool in TOOLS.items():
        if name.startswith("pytest-torch") and not find_spec("pytest_torch"):
            continue
        found = Counter[str]()
        for bug in bugs:
            answer = tool(pair_of(bug.architecture, bug.inject))
            _score(found, bug, answer)
        table.add(name, found)


_COLUMNS = ("caught", "named", "in three lines", "named or inside", "proved")


def _score(found: Counter[str], bug: Bug, answer: Answer) -> None:
    is_kind = answer.kind in ("", bug.kind) or (bug.kind, answer.kind) in _ALIKE
    is_named = is_kind and answer.path == bug.culprit
    found["caught"] += answer.is_caught
    found["named"] += is_named
    found["in three lines"] += is_named and answer.is_narrow
    found["named or inside"] += is_named or (is_kind and answer.path.startswith(f"{bug.culprit}."))
    found["proved"] += answer.is_proved


def of_half(options: argparse.Namespace) -> None:
    """Print how the catalogue is placed in each dtype, against a golden on disk."""
    bugs = [bug for bug in BUGS if (IS_V5 or not bug.needs_v5) and bug.architecture in (options.only or ARCHITECTURES)]
    table = command.Table(f"of {len(bugs)} bugs", *_COLUMNS, "alarms")
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        found = Counter[str]()
        for architecture in dict.fromkeys(bug.architecture for bug in bugs):
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "golden.safetensors"
                check = _golden(architecture, dtype, path, options.seconds, options.device)
                found["alarms"] += check(lambda _model: None).is_caught
                for bug in (bug for bug in bugs if bug.architecture == architecture):
                    answer = check(bug.inject)
                    _score(found, bug, answer)
                    if options.show and answer.path != bug.culprit:
                        print(f"{dtype} {bug.name}: {answer}, at {bug.culprit}", flush=True)
        table.add(str(dtype).removeprefix("torch."), found)


def _golden(
    architecture: str, dtype: torch.dtype, path: Path, seconds: float | None, device: str
) -> Callable[[Callable[[torch.nn.Module], object]], Answer]:
    """Record a model in a dtype; return what holds a copy of it with something wrong to that, as ``tf_golden`` does."""
    model, inputs = build(architecture)
    model = copy.deepcopy(model).to(device, dtype)
    inputs = replaced(inputs, lambda held: held.to(device, dtype if held.is_floating_point() else held.dtype))
    return _held_to(model, model, inputs, path, seconds)


def _held_to(
    model: torch.nn.Module, port: torch.nn.Module, inputs: dict[str, Any], path: Path, seconds: float | None
) -> Callable[[Callable[[torch.nn.Module], object]], Answer]:
    """Record a model; return what holds a copy of a port of it with something wrong to that."""
    recorded = trace(model, **inputs)
    in_float32(recorded)
    save(path, recorded, model, "port")
    internal: Any = "fail" if port is model else "warn"
    settings = CheckSettings(Tolerances(), internal=internal, explain_seconds=seconds)

    def check(corrupt: Callable[[torch.nn.Module], object]) -> Answer:
        wrong = copy.deepcopy(port)
        corrupt(wrong)
        call = PortCall((), dict(inputs), reference=lambda: Rerun(model, (), dict(inputs)))
        return _answer(compare_with(load(path), wrong, call, settings), {})

    return check


def of_own(options: argparse.Namespace) -> None:
    """Print what is told of a port with names of its own, in each dtype."""
    layers = options.own
    torch.manual_seed(0)
    width = options.width
    sizes = {"hidden_size": width, "intermediate_size": 2 * width, "num_attention_heads": 8, "vocab_size": 1000}
    model = LlamaForCausalLM(LlamaConfig(**sizes, num_hidden_layers=layers, use_cache=False)).eval().to(options.device)
    with torch.no_grad():
        for weight in (each for each in model.parameters() if each.dim() > 1):
            weight.normal_(std=weight.shape[1] ** -0.5)
    ids = torch.randint(0, 1000, (2, 32), generator=torch.Generator().manual_seed(1)).to(options.device)
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        reference, frequencies = copy.deepcopy(model).to(dtype), model.model.rotary_emb.inv_freq.clone()
        reference.model.rotary_emb.inv_freq = frequencies  # as ``from_pretrained`` keeps them
        port = llama_port.load_port(model).to(dtype)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "golden.safetensors"
            check = _held_to(reference, port, {"input_ids": ids}, path, options.seconds)
            for name, (where, injecting) in _SMALL.items():
                begun = time.monotonic()
                at, shown = where.replace("*", str(layers // 2)), str(dtype).removeprefix("torch.")
                answer = check(injecting(at))
                meant = "" if name.endswith(shown) else at  # a cast to the dtype that it has is no bug
                is_right = answer.path == meant and answer.is_caught == bool(meant)
                is_told = not answer.is_caught and f" {at}." in answer.told
                verdict, took = "right" if is_right else "told" if is_told else "WRONG", time.monotonic() - begun
                print(f"{shown:9} {name:22} {verdict:6} {answer.path or 'passes':28} {took:6.1f} s", flush=True)


def _edit(old: str, new: str) -> Callable[[str], Inject]:
    return partial(edit, old=old, new=new)


def _times(parameter: str, factor: float) -> Callable[[str], Inject]:
    return partial(reload, parameter=parameter, transform=lambda weight: weight * factor)


_SUM, _ROOT = "hidden + self.attention(", "torch.rsqrt(hidden.pow(2).mean(-1, keepdim=True) + self.eps)"
#: A small mistake in a port with names of its own -> the module that is to be named, and what makes it there; a star
#: stands for the block in the middle. The rounding of bfloat16 hides most of them.
_SMALL: dict[str, tuple[str, Callable[[str], Inject]]] = {
    "nothing": ("", lambda _at: lambda _port: None),
    "hardswish for silu": ("blocks.*.mixer", _edit("silu(", "hardswish(")),
    "gelu for silu": ("blocks.*.mixer", _edit("silu(", "gelu(")),
    "quick_gelu for silu": ("blocks.*.mixer", _edit("nn.functional.silu(gate)", "gate * torch.sigmoid(1.702 * gate)")),
    "silu in float16": ("blocks.*.mixer", _edit("silu(gate)", "silu(gate.half()).to(gate.dtype)")),
    "gate and widen exchanged": ("blocks.*.mixer", _edit("silu(gate) * wide", "silu(wide) * gate")),
    "mixer x 0.995": ("blocks.*.mixer", _edit("return self", "return 0.995 * self")),
    "residual x 0.99": ("blocks.*", _edit(_SUM, f"0.99 * {_SUM}")),
    "residual of the norm": ("blocks.*", _edit("return hidden +", "return self.mixer_norm(hidden) +")),
    "attention x 1.002": ("blocks.*", _edit(_SUM, _SUM.replace("self", "1.002 * self"))),
    "softmax scale x 1.01": ("blocks.*.attention", _edit("** -0.5", "** -0.5 * 1.01")),
    "softmax in float16": ("blocks.*.attention", _edit("softmax(-1)", "half().softmax(-1).to(value.dtype)")),
    "one key too many": ("blocks.*.attention", _edit("triu(1)", "triu(2)")),
    "halves turned otherwise": ("blocks.*.attention", _edit("+ self.turned(part)", "- self.turned(part)")),
    "value x 0.998": ("blocks.*.attention", _edit("@ value", "@ (value * 0.998)")),
    "a weight x 1.01": ("blocks.*.mixer.narrow", _times("weight", 1.01)),
    "a projection x 1.01": ("blocks.*.attention.merge", _times("weight", 1.01)),
    "a norm's weight x 1.01": ("blocks.*.mixer_norm", _times("scale", 1.01)),
    "epsilon 1e-5": ("blocks.*.attention_norm", partial(set_to, eps=1e-5)),
    "epsilon 1e-4 at the end": ("norm", partial(set_to, eps=1e-4)),
    "norm x 0.999": ("blocks.*.mixer_norm", _edit(_ROOT, _ROOT.replace(" + self.eps)", ") * 0.999"))),
    "rotary base by 1%": ("Llama", _edit("10000.0", "10100.0")),
    "positions x 1.01": ("Llama", _edit("angles = torch.outer(", "angles = 1.01 * torch.outer(")),
    "head x 1.01": ("head", _times("weight", 1.01)),
    "embedding x 1.01": ("tokens", _times("weight", 1.01)),
}


def of_ports(options: argparse.Namespace) -> None:
    """Print how the bugs of each port are judged, and the alarms of the clean ports."""
    table = command.Table("port", "bugs", *_VERDICTS, "proved", "alarm", "s each")
    for port in (port for port in all_ports() if is_installed(port) and port.name in (options.only or port.name)):
        begun, counts = time.monotonic(), Counter[str]()
        for bug in port.bugs:
            outcome = judged(port, bug, hold=None if options.traces else checked)
            counts.update(["bugs", outcome.verdict, *(["module"] if outcome.verdict == "line" else [])])
            culprit = outcome.culprit
            counts["proved"] += culprit is not None and bool(culprit.proved)
            if options.show and outcome.verdict != "line":
                print(f"{port.name}: {bug.name}: {outcome.verdict.upper()}, at {bug.at}\n{head(outcome.text, 9)}")
        counts["alarm"], took = int(bool(alarm(port))), (time.monotonic() - begun) / max(counts["bugs"], 1)
        table.add(port.name, {**counts, "s each": took})
    table.total()


def of_several(options: argparse.Namespace) -> None:
    """Print how the faults of ports with several bugs are named in one run."""
    columns = ("faults", "line", "module", "missed", "error", "of later", "later", "false", "wrong", "agree", "mended")
    table = command.Table(f"{options.together} bugs of", *columns, "s")
    ports = [port for port in all_ports() if is_installed(port) and port.name in (options.only or port.name)]
    for port, bugs in drawn(ports, options.cases, options.together, options.seed):
        begun = time.monotonic()
        found = judged_together(port, bugs, compared if options.traces else checked)
        counts = Counter(
            {"faults": len(bugs), **Counter(found.verdicts), "of later": len(bugs) - 1, "later": found.later}
        )
        counts["wrong"] = found.entries.count("wrong")
        counts["false"] = counts["wrong"] + found.entries.count("unsure")
        counts["agree"], counts["mended"] = int(found.agrees), int(found.is_mended)
        table.add(port.name, {**counts, "s": time.monotonic() - begun})
        print("".join(f"      {told}: {bug.name}\n" for bug, told in zip(bugs, found.verdicts, strict=True)), end="")
        if options.show and counts["line"] < len(bugs):
            print(head(found.text, 30), flush=True)
    table.total()


def of_controls(architectures: list[str]) -> None:
    """Print how many models are proved that no edit makes."""
    table = command.Table("what no edit makes", "models", "proved")
    for what, corrupt in (("noise on a weight", _add_noise), ("a tensor of another seed", _fix_a_tensor)):
        table.add(what, (len(architectures), sum(ours(pair_of(name, corrupt)).is_proved for name in architectures)))


def _add_noise(model: torch.nn.Module) -> None:
    weight = _middle(model).weight
    weight.data += _NOISE * torch.randn(weight.shape, generator=torch.Generator().manual_seed(1))


def _fix_a_tensor(model: torch.nn.Module) -> None:
    """Let a linear module give a tensor of another seed, whatever it is given."""
    module = _middle(model)
    width = module.nf if type(module).__name__ == "Conv1D" else module.out_features
    module.forward = lambda given: torch.randn(*given.shape[:-1], width, generator=torch.Generator().manual_seed(1))


def _middle(model: torch.nn.Module) -> Any:
    found: list[Any] = [module for module in model.modules() if type(module).__name__ in ("Linear", "Conv1D")]
    return found[len(found) // 2]


def main() -> None:
    """Print the table that is asked for."""
    parser = command.parser(__doc__, "only", "show", "traces", "seed")
    parser.add_argument("--ports", action="store_true", help="the bugs of tests/ports; --show is its")
    parser.add_argument("--together", type=int, metavar="BUGS", help="of --ports: so many of them in one port")
    parser.add_argument("--cases", type=int, default=30, help="of --together: how many (default %(default)s)")
    parser.add_argument("--controls", action="store_true", help="models that no edit makes")
    parser.add_argument("--half", action="store_true", help="the catalogue in half precision, too")
    parser.add_argument("--own", type=int, metavar="LAYERS", help="a Llama under names of its own")
    parser.add_argument("--device", default="cpu", help="of --half and --own (default %(default)s)")
    parser.add_argument("--width", type=int, default=512, help="of --own (default %(default)s)")
    parser.add_argument("--seconds", type=float, help="how long to search for each proof of --half and --own")
    options = parser.parse_args()
    command.quiet()
    command.only_work_counts()
    with noted():  # as the modules of a test are made
        if options.together:
            of_several(options)
        elif options.ports:
            of_ports(options)
        elif options.half:
            of_half(options)
        elif options.own:
            of_own(options)
        else:
            (of_controls if options.controls else of_catalogue)(options.only or [*ARCHITECTURES])


if __name__ == "__main__":
    main()
