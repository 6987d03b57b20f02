"""How many injected port bugs are placed at the right module: this package and pytest-torch, side by side.

Every bug of ``fixtures/bugs.py`` goes into a copy of its model; each tool sees the right and the wrong model and the
same inputs.

named             the answer is the module whose code or parameters are wrong (for this package the kind too)
in three lines    named by a range of three lines at most, by one statement, or by the parameter
named or inside   it is that module or one within it, which is all that a tool without glue can say of glue
golden of 64 kB   the right model is a golden that keeps so much beside its table of operators
by floors         what is allowed is a multiple of what float64 says (``tolerance="fp64"``)
without names     every module of the wrong model has another name, and no ``rename=`` says which is which

With ``--ports``, the bugs of ``tests/ports``, which nobody here wrote, without ``rename=``:

line              the edited line, or the reference's for what is left out, in a range of at most ten
module            the module, those with the line among them
unsure, wrong     another place, said to be uncertain; another place, with certainty
alarm             the clean port is called wrong without rename=, with one by hand, with each that a report suggested
"""

from __future__ import annotations

import copy
import time
from collections import Counter
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

import command

# isort: split
from corpus import all_ports
from judging import alarm, built, is_installed, judged

from bugs import BUGS
from edits import head, is_narrow
from models import IS_V5, build
from pytest_tfdebug import Trace, compare, trace
from pytest_tfdebug.tracing.file.samples import sampled

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

_VERDICTS = ("line", "module", "unsure", "wrong", "missed", "error")


class Answer(NamedTuple):
    """The module that a tool names, if the kind is right too, and whether by three lines at most or one statement."""

    path: str
    is_narrow: bool = False


def ours(
    right: torch.nn.Module,
    wrong: torch.nn.Module,
    inputs: dict[str, Any],
    bug: Any,  # noqa: ANN401 - a row of the catalogue
    *,
    hold: Callable[[Trace], Trace] = lambda recorded: recorded,
    **settings: Any,  # noqa: ANN401 - of compare
) -> Answer:
    """Return the module that this package names, if the kind is right too."""
    expected, actual = hold(trace(right, **inputs)), trace(wrong, **inputs)
    return _answer(compare(expected, actual, internal="fail", **settings).culprit, bug)


def _of_64_kb(recorded: Trace) -> Trace:
    return replace(sampled(recorded), again=recorded.again)


def without_names(right: torch.nn.Module, wrong: torch.nn.Module, inputs: dict[str, Any], bug: Any) -> Answer:  # noqa: ANN401
    """Return the module that this package names if no name is common, if the kind is right too."""
    actual = trace(wrong, **inputs)
    own = {_disguised(path): path for path in (*actual.modules, *(call.path for call in actual.calls))}
    root = actual.calls[0].path
    renamed = replace(
        actual,
        calls=[call if call.path == root else replace(call, path=_disguised(call.path)) for call in actual.calls],
        modules=tuple(map(_disguised, actual.modules)),
        aliases={_disguised(path): tuple(map(_disguised, others)) for path, others in actual.aliases.items()},
        unrecorded=tuple(map(_disguised, actual.unrecorded)),
    )
    found = _answer(compare(trace(right, **inputs), renamed, internal="fail").culprit, bug)
    return found._replace(path=own.get(found.path, found.path))


def _answer(culprit: Any, bug: Any) -> Answer:  # noqa: ANN401 - a row of the catalogue
    """Return the answer if its kind is right; a wrong parameter may be told as the code that uses it."""
    if culprit is None or (culprit.kind != bug.kind and (bug.kind, culprit.kind) not in _ALIKE):
        return Answer("")
    return Answer(culprit.path, culprit.kind == "weights" or is_narrow(culprit.source))


_ALIKE = {("weights", "module"), ("weights", "glue")}


def _disguised(path: str) -> str:
    """Return a module path in which each name is spelt backwards; numbers stay."""
    return ".".join(part if part.isdigit() else f"x{part[::-1]}" for part in path.split("."))


def pytest_torch(
    right: torch.nn.Module,
    wrong: torch.nn.Module,
    inputs: dict[str, Any],
    _bug: Any,  # noqa: ANN401
    *,
    leaf_only: bool,
) -> Answer:
    """Return pytest-torch's first diverging row."""
    from pytest_torch import localize_divergence

    row = localize_divergence(right, wrong, inputs, leaf_only=leaf_only).first
    return Answer("" if row is None else str(row.name))


OURS: dict[str, Callable[..., Answer]] = {
    "pytest-tfdebug": ours,
    "golden of 64 kB": partial(ours, hold=_of_64_kb),
    "by floors": partial(ours, tolerance="fp64"),
    "without names": without_names,
}
PEERS: dict[str, Callable[..., Answer]] = {
    "pytest-torch, leaves": partial(pytest_torch, leaf_only=True),
    "pytest-torch, all": partial(pytest_torch, leaf_only=False),
}


def of_catalogue(every: int) -> None:
    """Print how many bugs of the catalogue each tool places."""
    bugs = [bug for bug in BUGS if IS_V5 or not bug.needs_v5][::every]
    table = command.Table(f"of {len(bugs)} bugs", "named", "in three lines", "named or inside")
    for name, answer in (OURS | (PEERS if find_spec("pytest_torch") else {})).items():
        found: Counter[str] = Counter()
        for bug in bugs:
            right, inputs = build(bug.architecture)
            wrong = copy.deepcopy(right)
            bug.inject(wrong)
            path, is_line = answer(right, wrong, inputs, bug)
            found["named"] += path == bug.culprit
            found["in three lines"] += path == bug.culprit and is_line
            found["named or inside"] += path == bug.culprit or path.startswith(f"{bug.culprit}.")
        table.add(name, found)


def of_ports(ports: list[Any], *, show: bool) -> None:
    """Print how the bugs of each port are judged, and the alarms of the clean ports."""
    table, started = command.Table("port", "bugs", *_VERDICTS, "alarm", "hand", "suggested"), time.monotonic()
    for port in ports:
        built(port)
        counts: Counter[str] = Counter()
        suggestions: dict[tuple[tuple[str, str], ...], None] = {}
        for bug in port.bugs:
            try:
                outcome = judged(port, bug)
            except (AssertionError, ValueError) as error:
                print(f"{port.name}: {bug.name}: {error}")
                continue
            counts[outcome.verdict] += 1
            suggestions |= {tuple(sorted(outcome.suggested.items())): None} if outcome.suggested else {}
            if show and outcome.verdict != "line":
                _print(outcome, lines=3)
        bugs = sum(counts[verdict] for verdict in _VERDICTS)
        renames = {
            "alarm": [None],
            "hand": [port.rename] if port.rename else [],
            "suggested": [*map(dict, suggestions)],
        }
        for name, all_rules in renames.items():
            texts = [text for text in (alarm(port, rules) for rules in all_rules) if text]
            counts[name] = len(texts)
            if show and texts:
                print(f"{port.name}: clean, rename {name}: ALARM\n{head(texts[0], 3)}")
        table.add(port.name, {**counts, "bugs": bugs, "module": counts["line"] + counts["module"]})
    table.total()
    print(f"{time.monotonic() - started:.0f} s")


def _print(outcome: Any, *, lines: int) -> None:  # noqa: ANN401
    culprit, named = outcome.culprit, "-"
    if culprit is not None:
        named = f"{culprit.path} ({culprit.kind}, {culprit.source}, {getattr(culprit, 'reference', None)})"
    print(f"{outcome.port}: {outcome.bug.name}: {outcome.verdict.upper()}: {named}, expected {outcome.bug.at}")
    print(head(outcome.text, lines))


def main() -> None:
    """Print the table that is asked for."""
    parser = command.parser(__doc__, "every", "only", "show", "bug")
    parser.add_argument(
        "--ports", action="store_true", help="the bugs of tests/ports; the other options but one are its"
    )
    options = parser.parse_args()
    command.quiet()
    if not options.ports:
        of_catalogue(options.every)
        return
    known = {port.name: port for port in all_ports()}
    unknown = sorted({*(options.only or ())} - known.keys())
    if unknown:
        parser.error(f"no port {', '.join(unknown)}; there are {', '.join(known)}")
    ports = [known[name] for name in options.only or known if is_installed(known[name])]
    if options.bug:
        for port in ports:
            for bug in filter(lambda bug: options.bug in bug.name, port.bugs):
                _print(judged(port, bug), lines=100)
    else:
        of_ports(ports, show=options.show)


if __name__ == "__main__":
    main()
