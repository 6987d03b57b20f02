"""How many mistakes are named in ports that nobody had shown the tool: each through pytest, with a golden on disk.

``fixtures/fresh/ports`` has ports of 200 lines with names and layouts of their own, and eight mistakes each, written
by somebody who had not seen the tool, with the lines that a good answer names. ``fixtures/fresh/cases`` has models
around those of transformers that give them something wrong, or run them wrongly, each with a right twin. What was found
on the first try is in docs/evidence.md; what was mended since counts here.

line     one of these lines is named, in at most four
called   one of them calls the function that holds the named line
within   one of them is among more lines that are named, or among those of another fault that is told
words    no line of them, but one of the words that say what is wrong
else     none of this; ``certain`` counts those that were told for certain
alarm    a right port that fails; ``less`` is one that returns less than its reference, and is told so
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import linecache
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch

import command

# isort: split
from as_checked import checked
from cases import Case

from pytest_tfdebug import ParityReport
from pytest_tfdebug.records import CulpritRecord, SourceRange

_FRESH = command.ROOT / "fixtures" / "fresh"
_COLUMNS = ("line", "called", "within", "words", "else", "certain", "passed", "raised", "alarm", "less")
#: More lines than this name none.
_WIDEST = 4


class Expected(NamedTuple):
    """What a good answer names."""

    lines: frozenset[str]  # of the source, without what stands around them
    words: tuple[str, ...] = ()


class Trial(NamedTuple):
    """A port that is held to its reference."""

    name: str
    reference: Any
    port: Any
    inputs: dict[str, Any]
    expected: Expected | None  # None for a right one


def _module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"fresh_{path.parent.name}_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def of_ports(folder: Path, scratch: Path, dtype: torch.dtype) -> Iterator[Trial]:
    """Yield a right port and each with one mistake; the changed files are written to a folder."""
    ref, text = _module(folder / "ref.py"), (folder / "port.py").read_text()
    inputs = {name: _cast(value, dtype) for name, value in ref.inputs().items()}
    right = {"id": "right", "old": "", "new": "", "lines": None}
    for mistake in (right, *json.loads((folder / "mistakes.json").read_text())):
        file = scratch / f"{folder.name}_{mistake['id']}" / "port.py"
        file.parent.mkdir()
        file.write_text(text.replace(mistake["old"], mistake["new"]) if mistake["old"] else text)
        expected = None if mistake["lines"] is None else Expected(frozenset(map(str.strip, mistake["lines"])))
        port = _module(file).convert(ref.reference()).to(dtype)
        yield Trial(mistake["id"], ref.reference().to(dtype), port, inputs, expected)


def of_case(folder: Path) -> Iterator[Trial]:
    """Yield the wrong model of a case and its right twin."""
    case, told = _module(folder / "case.py"), json.loads((folder / "expected.json").read_text())
    expected = Expected(frozenset(map(str.strip, told["lines"])), tuple(told["words"]))
    for name, expects in (("right", None), ("port", expected)):
        reference = case.reference()
        yield Trial(name, reference, getattr(case, name)(reference), case.inputs(), expects)


def _cast(value: Any, dtype: torch.dtype) -> Any:
    return value.to(dtype) if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def verdict_on(trial: Trial) -> tuple[str, ParityReport | None]:
    """Hold a port to its reference, and return what its report is worth."""
    try:
        inputs = trial.inputs
        report = checked(Case(trial.reference, trial.port, (), inputs, (), inputs))
    except Exception as error:  # noqa: BLE001 - it is what the column counts
        return f"raised {type(error).__name__}", None
    if report.ok:
        return "passed" if trial.expected else "right", report
    if trial.expected is None:
        return "less" if "not compared" in str(report).partition("\n")[0] else "alarm", report
    return _worth(report, trial.expected), report


def _worth(report: ParityReport, expected: Expected) -> str:
    culprit = report.culprit
    if culprit is not None:
        if _names(culprit.source, expected, _WIDEST):
            return "line"
        if any(_names(caller, expected, _WIDEST) for caller in culprit.callers):
            return "called"
        others: Iterable[CulpritRecord] = (culprit, *report.behind)
        if any(_names(each.source, expected) for each in others):
            return "within"
    return "words" if any(word.lower() in str(report).lower() for word in expected.words) else "else"


def _names(source: SourceRange | None, expected: Expected, widest: float = float("inf")) -> bool:
    if source is None or source.last - source.first >= widest:
        return False
    lines = (linecache.getline(source.file, line).strip() for line in range(source.first, source.last + 1))
    return not expected.lines.isdisjoint(lines)


def main() -> None:
    """Print what is named, a row for each port and one for all cases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], help="names of ports, or beginnings of those of cases")
    parser.add_argument("--half", action="store_true", help="the ports in bfloat16")
    parser.add_argument("--show", action="store_true", help="print each report that names none of the lines")
    options = parser.parse_args()
    command.only_work_counts()
    dtype = torch.bfloat16 if options.half else torch.float32
    table = command.Table("fresh", *_COLUMNS)
    for folder in sorted((_FRESH / "ports").iterdir()):
        if not options.only or folder.name in options.only:
            with tempfile.TemporaryDirectory() as scratch:
                table.add(folder.name, _counts(of_ports(folder, Path(scratch), dtype), folder.name, show=options.show))
    cases = [] if options.half else sorted((_FRESH / "cases").iterdir())
    for folder in (each for each in cases if not options.only or each.name.startswith(tuple(options.only))):
        table.add(folder.name, _counts(of_case(folder), folder.name, show=options.show))
    table.total()


def _counts(trials: Iterable[Trial], name: str, *, show: bool) -> Counter[str]:
    counts: Counter[str] = Counter()
    for trial in trials:
        verdict, report = verdict_on(trial)
        counts[verdict.partition(" ")[0]] += 1
        is_certain = report is not None and report.culprit is not None and report.culprit.certain
        counts["certain"] += verdict == "else" and is_certain
        if show and verdict not in ("line", "right"):
            print(f"{name} {trial.name}: {verdict}\n{report or ''}\n", flush=True)
    return counts


if __name__ == "__main__":
    main()
