"""How many ports with random mistakes are mended by what a failed comparison prints, in how many runs.

The port is ``fixtures/llama_port.py`` with one to five random edits of its forwards, each of which changes an output by
itself. A run compares it with its reference and applies the diffs of all faults that were found, no more; it ends when
the outputs agree, when there is no diff, or after as many runs as there are edits and two.

mended     the outputs agree in the end
elsewhere  of these, those that agree on other inputs as well
named      edits of which a fault of the first run names the line, or one at most two lines off
"""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
import tempfile
import time
import types
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import torch

import command

# isort: split
import pytest_tfdebug
from pytest_tfdebug.certify.edits import edits_of
from pytest_tfdebug.parity.proof import prove

llama_port: Any = import_module("llama_port")
_NEAR = 2
_IDS = torch.arange(3, 23).view(2, 10)


class Outcome(NamedTuple):
    """What became of one port."""

    edits: int
    runs: int
    is_mended: bool
    is_mended_elsewhere: bool
    named: int
    seconds: float


def loaded(file: Path) -> Any:
    """Return the module of a file, as it is now."""
    module = types.ModuleType(file.stem)
    module.__file__ = str(file)
    sys.modules[file.stem] = module
    exec(compile(file.read_text(), str(file), "exec"), vars(module))  # noqa: S102 - a port of ours
    return module


def port_of(file: Path, reference: torch.nn.Module) -> torch.nn.Module:
    """Return the port of a file with the weights of the reference."""
    port: Any = loaded(file).load_port(reference)
    stored = reference.state_dict()
    with torch.no_grad():
        for number, block in enumerate(port.blocks):
            for own, name in (("attention_norm", "input_layernorm"), ("mixer_norm", "post_attention_layernorm")):
                block.get_submodule(own).scale.copy_(stored[f"model.layers.{number}.{name}.weight"])
        port.norm.scale.copy_(stored["model.norm.weight"])
    made: torch.nn.Module = port
    return made


def agrees(reference: torch.nn.Module, port: torch.nn.Module, ids: torch.Tensor) -> bool:
    """Tell whether both give the same for some ids."""
    with torch.no_grad():
        return torch.allclose(reference(input_ids=ids).logits, port(ids), rtol=1e-4, atol=1e-4)


def mistakes(text: str, reference: torch.nn.Module, folder: Path, seed: int) -> list[Any]:
    """Return edits that each change the outputs, one a line, in a random order."""
    lines = range(36, text[: text.index("def load_reference")].count("\n"))
    every = list(edits_of(text, lines, str(folder)))
    random.Random(seed).shuffle(every)  # noqa: S311 - a sample
    found: dict[int, Any] = {}
    for count, edit in enumerate(every):
        file = folder / f"alone_{seed}_{count}.py"
        file.write_text(edited(text, [edit]))
        try:
            changes = not agrees(reference, port_of(file, reference), _IDS)
        except Exception:  # noqa: BLE001 - an edit may break anything
            changes = False
        if changes:
            found.setdefault(edit.line, edit)
        if len(found) == 5:  # noqa: PLR2004 - one to five
            break
    return list(found.values())


def edited(text: str, edits: list[Any]) -> str:
    """Return a text with some lines edited."""
    lines = text.splitlines()
    for edit in edits:
        lines[edit.line - 1] = edit.text
    return "\n".join(lines) + "\n"


def repaired(file: Path, reference: torch.nn.Module, lines: list[int]) -> Outcome:
    """Compare, apply, and so on."""
    begun, named, runs = time.thread_time(), 0, 0
    for runs in range(1, len(lines) + 3):
        port = port_of(file, reference)
        traces = (pytest_tfdebug.trace(model, input_ids=_IDS) for model in (reference, port))
        report = pytest_tfdebug.compare(*traces)
        if runs == 1:
            places = {each.source.first for each in report.culprits if each.source is not None}
            places |= {change.line for each in report.culprits for change in each.changes if change.side == "port"}
            named = sum(any(abs(line - place) <= _NEAR for place in places) for line in lines)
        diffs = "".join(each.patch for each in report.culprits)
        if report.ok or not diffs:
            break
        done = subprocess.run(["git", "apply", "-"], cwd="/", input=diffs, text=True, check=False)  # noqa: S607
        if done.returncode:
            break
    port = port_of(file, reference)
    others = torch.arange(40, 79).view(3, 13)
    is_mended = agrees(reference, port, _IDS)
    elsewhere = is_mended and agrees(reference, port, others)
    return Outcome(len(lines), runs, is_mended, elsewhere, named, time.thread_time() - begun)


def main() -> None:
    """Mend ports and print what became of each."""
    options = command.parser(__doc__, "seed")
    options.add_argument("--ports", type=int, default=20, help="ports (default %(default)s)")
    options.add_argument("--seconds", type=float, default=20.0, help="work of a search (default %(default)s)")
    given = options.parse_args()
    command.quiet()
    vars(prove)["SECONDS"] = given.seconds
    reference = pytest_tfdebug.fill(llama_port.load_reference(), seed=0)
    text = Path(llama_port.__file__).read_text()
    outcomes = []
    with tempfile.TemporaryDirectory() as folder:
        for number, count in zip(range(given.ports), itertools.cycle((1, 2, 3, 4, 5))):
            edits = mistakes(text, reference, Path(folder), given.seed + number)[:count]
            file = Path(folder) / f"port_{number}.py"
            file.write_text(edited(text, edits))
            try:
                outcome = repaired(file, reference, [edit.line for edit in edits])
            except Exception as error:  # noqa: BLE001 - a port of several random edits may not run
                print(f"| {number} | {type(error).__name__} |")
                continue
            outcomes.append(outcome)
            print(f"| {number} | {' | '.join(map(str, outcome))} |", flush=True)
    edits_, named = sum(each.edits for each in outcomes), sum(each.named for each in outcomes)
    mended, elsewhere = (sum(each[place] for each in outcomes) for place in (2, 3))
    print(f"{mended} of {len(outcomes)} mended, {elsewhere} on other inputs too")
    print(f"{named} of {edits_} edits named in the first run")


if __name__ == "__main__":
    main()
