"""How many wrong lines are found in copies of modeling files: the commonest port, with the reference's own names.

A modeling file of transformers is copied, one line that runs is edited at random (in a forward, an ``__init__`` or a
helper such as ``rotate_half``), the copy takes the reference's weights, and both are compared. Edits that raise, do not
take the weights or change no output are passed over. ``line``: the edited line, or the same line of the reference, is
named in at most three lines or one statement. ``module``: a module that runs the line, those with the line among them.
``unsure``: another place, said to be uncertain. ``wrong``: another place, with certainty. ``missed``: no culprit.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import itertools
import random
import sys
import tempfile
import warnings
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import transformers

from mutants import changed, is_narrow

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "fixtures"))

import pytest_tfdebug
from models import ARCHITECTURES, DECODER, build  # type: ignore[import-not-found]  # the folder is put on the path above
from pytest_tfdebug.tracing.record.leaves import walk

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType, ModuleType

    from pytest_tfdebug.records import Culprit, SourceRange

#: Relative L2 difference of an output from which an edit is a bug.
_DIFFERS = 1e-4
_DECODERS: dict[str, tuple[str, dict[str, Any]]] = {
    "mistral": ("Mistral", {"sliding_window": 4}),
    "gemma2": ("Gemma2", {"head_dim": 16, "sliding_window": 4, "query_pre_attn_scalar": 24}),
    "phi": ("Phi", {"partial_rotary_factor": 0.5}),
    "qwen2": ("Qwen2", {"use_sliding_window": False}),
    "falcon": ("Falcon", {"alibi": False, "new_decoder_architecture": False, "multi_query": True}),
    "opt": ("OPT", {"ffn_dim": 96, "word_embed_proj_dim": 64}),
}
_serial = itertools.count()


class Edit(NamedTuple):
    """A line of a file, from 1, and the text that takes its place."""

    line: int
    text: str


def _decoder(name: str, more: dict[str, Any]) -> torch.nn.Module:
    config = getattr(transformers, f"{name}Config")(**{**DECODER, **more})
    model: torch.nn.Module = getattr(transformers, f"{name}ForCausalLM")(config)
    return model


ARCHITECTURES.update({name: (partial(_decoder, *of), ARCHITECTURES["llama"][1]) for name, of in _DECODERS.items()})


def edits_of(text: str, ran: set[int]) -> Iterator[Edit]:
    """Yield every edit of the lines that ran, one line each."""
    lines = text.splitlines()
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
    for function in (function for function in functions if function.name != "_init_weights"):
        for node in (inner for statement in function.body for inner in ast.walk(statement)):
            where: Any = node
            number = getattr(node, "lineno", 0)
            if number not in ran or number != getattr(node, "end_lineno", None):
                continue
            line = lines[number - 1].encode()
            for new in changed(node, lambda part: ast.get_source_segment(text, part) or ""):
                edited = (line[: where.col_offset] + new.encode() + line[where.end_col_offset :]).decode()
                if edited.strip() != lines[number - 1].strip():
                    yield Edit(number, edited)


class Copy:
    """A modeling file beside the model that it is of.

    Args:
        reference: The model.
        edit: What is edited.
        folder: Where the copy is written.
    """

    def __init__(self, reference: torch.nn.Module, edit: Edit | None, folder: Path) -> None:
        self._reference = reference
        original = Path(sys.modules[type(reference).__module__].__file__ or "")
        lines = original.read_text(encoding="utf-8").splitlines()
        if edit is not None:
            lines[edit.line - 1] = edit.text
        self.text = "\n".join(lines) + "\n"
        self.original, self.path = original, folder / f"{next(_serial)}" / f"my_{original.name}"
        self.path.parent.mkdir()
        self.path.write_text(self.text, encoding="utf-8")

    def built(self) -> torch.nn.Module:
        """Return a model of the copy with the reference's weights."""
        package = type(self._reference).__module__.rpartition(".")[0]
        spec = importlib.util.spec_from_file_location(f"{package}.{self.path.stem}_{self.path.parent.name}", self.path)
        assert spec is not None  # noqa: S101 - the file is there
        assert spec.loader is not None  # noqa: S101 - and it is Python
        module: ModuleType = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        try:
            spec.loader.exec_module(module)
            port: torch.nn.Module = getattr(module, type(self._reference).__name__)(self._reference.config)
        finally:
            del sys.modules[spec.name]
        port.load_state_dict(self._reference.state_dict(), strict=True)
        return port.eval()

    def runs(self, inputs: dict[str, Any], line: int = 0) -> tuple[set[int], set[str]]:
        """Build the model and call it; return the lines that ran, and the paths of the modules that ran one of them."""
        ran: set[int] = set()
        owners: set[tuple[int, bool]] = set()

        def seen(frame: FrameType, event: str, _argument: object) -> Any:  # noqa: ANN401 - a trace function
            if frame.f_code.co_filename != str(self.path):
                return None
            if event == "line":
                ran.add(frame.f_lineno)
                if frame.f_lineno == line:
                    owners.update(_owners(frame))
            return seen

        before = sys.gettrace()
        sys.settrace(seen)
        try:
            port = self.built()
            with torch.no_grad():
                port(**inputs)
        finally:
            sys.settrace(before)
        named = {id(module): path for path, module in port.named_modules()}
        paths = {(named[owner], is_made) for owner, is_made in owners if owner in named}
        inside = {path for path in named.values() if any(made and path.startswith(f"{at}.") for at, made in paths)}
        return ran, {path or type(port).__name__ for path in {*inside, *(path for path, _ in paths)}}


def _owners(frame: FrameType | None) -> set[tuple[int, bool]]:
    """Return the module whose method is under way, and whether it is being made."""
    while frame is not None and not isinstance(frame.f_locals.get("self"), torch.nn.Module):
        frame = frame.f_back
    if frame is None:
        return set()
    module = frame.f_locals["self"]
    return {(id(module), frame.f_code.co_name == "__init__")}


def differs(expected: object, actual: object) -> bool:
    """Tell whether an output of floating point differs."""
    pairs = zip(walk(expected), walk(actual), strict=False)
    floats = [(one.tensor, other.tensor) for one, other in pairs if one.tensor.is_floating_point()]
    return any(one.shape != other.shape or not (one - other).norm() <= _DIFFERS * one.norm() for one, other in floats)


def judged(culprit: Culprit | None, copied: Copy, line: int, owners: set[str]) -> str:
    """Return what a report is worth."""
    if culprit is None:
        return "missed"
    named = (culprit.source, copied.path), (culprit.reference, copied.original)
    if any(_names(lines, str(path), line) for lines, path in named):
        return "line"
    callers = itertools.accumulate(culprit.path.split("."), "{}.{}".format)
    if culprit.path in owners or (culprit.kind in ("not-called", "extra-call") and owners.intersection(callers)):
        return "module"
    return "wrong" if culprit.certain else "unsure"


def _names(lines: SourceRange | None, file: str, line: int) -> bool:
    is_there = lines is not None and lines.file == file and lines.first <= line <= lines.last
    return is_there and is_narrow(lines)


def main() -> None:
    """Print the table."""
    assert __doc__ is not None  # noqa: S101 - it is above
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--edits", type=int, default=10, help="edits of each file that change an output (default 10)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default=",".join(ARCHITECTURES), help="names, with commas")
    parser.add_argument("--show", action="store_true", help="print the reports that do not name the line")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity(transformers.logging.CRITICAL)
    columns = ("line", "module", "unsure", "wrong", "missed", "error")
    print(f"{'copy of':12}  edits  " + "  ".join(columns), flush=True)
    total: Counter[str] = Counter()
    for name in options.only.split(","):
        counted: Counter[str] = Counter()
        for verdict, told in measured(name, options.edits, options.seed):
            counted[verdict] += 1
            if options.show and verdict != "line":
                print(f"{name}: {verdict.upper()}: {told}")
        print_row(name, counted, columns)
        total += counted
    print_row("all", total, columns)


def print_row(name: str, counted: Counter[str], columns: tuple[str, ...]) -> None:
    """Print a row of the table; ``module`` counts those with the line too."""
    counts = {**counted, "module": counted["line"] + counted["module"]}
    cells = "  ".join(f"{counts.get(column, 0):{len(column)}}" for column in columns)
    print(f"{name:12}  {counted.total():5}  {cells}", flush=True)


def measured(name: str, count: int, seed: int) -> Iterator[tuple[str, str]]:
    """Yield the verdict on each edit of a file, and what was edited with the head of the report."""
    reference, inputs = build(name)
    reference.set_attn_implementation("eager")  # the helper that is written out
    expected = pytest_tfdebug.trace(reference, **inputs)
    with torch.no_grad():
        right = reference(**inputs)
    with tempfile.TemporaryDirectory() as folder:
        clean = Copy(reference, None, Path(folder))
        edits = list(edits_of(clean.text, clean.runs(inputs)[0]))
        random.Random(seed).shuffle(edits)  # noqa: S311 - the same edits every time
        lines: set[int] = set()
        for edit in edits:
            if len(lines) == count:
                return
            if edit.line in lines:
                continue
            copied = Copy(reference, edit, Path(folder))
            try:
                port = copied.built()
                with torch.no_grad():
                    is_bug = differs(right, port(**inputs))
            except Exception:  # noqa: BLE001, S112 - most wrong lines do not run at all
                continue
            if not is_bug:
                continue
            lines.add(edit.line)
            told = f"{edit.line}: {clean.text.splitlines()[edit.line - 1].strip()}  ->  {edit.text.strip()}\n"
            try:
                report = pytest_tfdebug.compare(expected, pytest_tfdebug.trace(port, **inputs))
                culprit, text = report.culprit, str(report)
            except Exception as error:  # noqa: BLE001 - whatever is raised is the outcome
                yield "error", f"{told}      {type(error).__name__}: {error}"
                continue
            _, owners = copied.runs(inputs, edit.line)
            told += "\n".join(f"      {line}" for line in text.splitlines()[:12])
            yield judged(culprit, copied, edit.line, owners), told


if __name__ == "__main__":
    main()
