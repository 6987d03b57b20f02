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

``--together`` puts all mistakes of a port into it at once, and does what its reader would: a mistake that a report
names is mended, and the rest is run again. Where none is named, the first that is left is mended: ``helped``.
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
from pytest_tfdebug.constructed import noted
from pytest_tfdebug.records import CulpritRecord, SourceRange

_FRESH = command.ROOT / "fixtures" / "fresh"
_TOGETHER = ("mistakes", "entries", "true", "named", "helped", "runs")
_COLUMNS = ("line", "called", "within", "words", "else", "certain", "passed", "raised", "alarm", "less")
#: More lines than this name none.
_WIDEST = 4


class Expected(NamedTuple):
    """What a good answer names."""

    lines: frozenset[str]  # of the source, without what stands around them
    words: tuple[str, ...] = ()


class Mistake(NamedTuple):
    """What was done to a right port."""

    name: str
    old: str
    new: str
    expected: Expected


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
    mistakes = mistakes_of(folder)
    for name, made, expected in (("right", (), None), *((each.name, (each,), each.expected) for each in mistakes)):
        port = _in(dtype, _with(made, text, scratch / f"{folder.name}_{name}").convert(ref.reference()))
        yield Trial(name, _in(dtype, ref.reference()), port, inputs, expected)


def mistakes_of(folder: Path) -> list[Mistake]:
    """Return the mistakes that are kept for a port."""
    return [
        Mistake(each["id"], each["old"], each["new"], Expected(frozenset(map(str.strip, each["lines"]))))
        for each in json.loads((folder / "mistakes.json").read_text())
    ]


def _with(mistakes: Iterable[Mistake], text: str, folder: Path) -> ModuleType:
    for each in mistakes:
        text = text.replace(each.old, each.new)
    folder.mkdir()
    (folder / "port.py").write_text(text)
    return _module(folder / "port.py")


def to_green(folder: Path, dtype: torch.dtype, *, show: bool) -> Counter[str]:
    """Mend a port with all of its mistakes by what each run names, and count entries, runs and what was named."""
    ref, text = _module(folder / "ref.py"), (folder / "port.py").read_text()
    inputs = {name: _cast(value, dtype) for name, value in ref.inputs().items()}
    left = [each for each in mistakes_of(folder) if text.count(each.old) == 1]
    counts: Counter[str] = Counter(mistakes=len(left))
    with tempfile.TemporaryDirectory() as scratch:
        while left:
            counts["runs"] += 1
            made = _with(left, text, Path(scratch) / f"{folder.name}_{counts['runs']}")
            port = _in(dtype, made.convert(ref.reference()))
            _, report = verdict_on(Trial("together", _in(dtype, ref.reference()), port, inputs, None))
            entries = [report.culprit, *report.behind] if report is not None and report.culprit else []
            named = [each for each in left if any(_tells(entry, each.expected) for entry in entries)]
            if counts["runs"] == 1:
                true = [entry for entry in entries if any(_tells(entry, each.expected) for each in left)]
                counts.update(entries=len(entries), true=len(true), named=len(named))
            if show:
                names = " ".join(f"{each.name}{'*' if each in named else ''}" for each in left)
                print(f"{folder.name} run {counts['runs']}, of these, a star for what is named: {names}")
                print(report, flush=True)
            counts["helped"] += not named
            mended = named or left[:1]
            left = [each for each in left if each not in mended]
    return counts


def _tells(entry: CulpritRecord, expected: Expected) -> bool:
    places = (entry.source, *entry.callers)
    return any(_names(place, expected, _WIDEST) for place in places)


def of_case(folder: Path) -> Iterator[Trial]:
    """Yield the wrong model of a case and its right twin."""
    case, told = _module(folder / "case.py"), json.loads((folder / "expected.json").read_text())
    expected = Expected(frozenset(map(str.strip, told["lines"])), tuple(told["words"]))
    for name, expects in (("right", None), ("port", expected)):
        reference = case.reference()
        yield Trial(name, reference, getattr(case, name)(reference), case.inputs(), expects)


def _in(dtype: torch.dtype, model: torch.nn.Module) -> torch.nn.Module:
    return model if dtype is torch.float32 else model.to(dtype)  # which makes complex tables real


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
    parser.add_argument("--ports", type=Path, default=_FRESH / "ports", help="a folder of ports (default %(default)s)")
    parser.add_argument("--half", action="store_true", help="the ports in bfloat16")
    parser.add_argument("--together", action="store_true", help="all mistakes of a port at once, ports alone")
    parser.add_argument("--show", action="store_true", help="print each report that names none of the lines")
    options = parser.parse_args()
    command.only_work_counts()
    with noted():  # as the modules of a test are made
        _look(options)


def _look(options: argparse.Namespace) -> None:
    dtype = torch.bfloat16 if options.half else torch.float32
    table = command.Table("fresh", *(_TOGETHER if options.together else _COLUMNS))
    for folder in sorted(each for each in options.ports.iterdir() if (each / "mistakes.json").exists()):
        if options.only and folder.name not in options.only:
            continue
        if options.together:
            table.add(folder.name, to_green(folder, dtype, show=options.show))
        else:
            with tempfile.TemporaryDirectory() as scratch:
                table.add(folder.name, _counts(of_ports(folder, Path(scratch), dtype), folder.name, show=options.show))
    cases = [] if options.half or options.together else sorted((_FRESH / "cases").iterdir())
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
            print(f"{name} {trial.name}: {verdict}\n{'' if report is None else report}\n", flush=True)
    return counts


if __name__ == "__main__":
    main()
