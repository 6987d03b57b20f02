"""Where a scan and a real run of pytest disagree, and how much their agreement proves.

    PYTHONPATH=utils python -m pytest -p scan_truth.plugin --skip-report=run.json tests/models/bert
    PYTHONPATH=utils python -m scan_truth run.json --repo .

The first writes what a run did, from live classes and reports alone. The second lists every pair of test and model on
which the scan and the run disagree, and exits with 1 where there is one.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, permutations
from pathlib import Path
from typing import Any, NamedTuple

from pytest_tfdebug.scan import ScanError, ScanResult, scan
from pytest_tfdebug.scan.resolve.conditions import RAN, Condition, State, alternatives, is_condition
from scan_truth.plugin import Row

#: What a real run may do with a test of a class, by what the scan says of it.
_AGREES = {
    "absent": {"absent"},
    "conditional": {"ran", "conditional", "skipped", "collected"},
    "empty": {"ran", "collected"},
    "partial": {"conditional", "skipped", "collected"},
    "ran": {"ran", "collected"},
    "skipped": {"skipped"},
    "vanished": {"vanished", "absent"},
}
#: Skips that only running a test shows, not collecting it.
_RUN_TIME = frozenset({"body", "guard"})
_DECORATORS = frozenset({"decorator", "class-decorator"})
#: Orders that are tried of the classes of one name, of which no model has more than a few.
_ORDERS = 120
_ABSENT = State("absent")
#: Test and model -> class -> the states of the classes of that name.
States = defaultdict[tuple[str, str], defaultdict[str, list[State]]]


class Both(NamedTuple):
    """A test in a class, as the scan and the run see it."""

    test: str
    model: str
    cls: str
    says: State
    does: State

    def __str__(self) -> str:
        is_told = self.says.condition and self.does.state == "skipped"
        scanned = f"conditional on {self.says.condition}" if is_told else self.says.state
        known = next((state for state in (self.does, self.says) if state.file or state.reason), self.does)
        where = (f" ({known.file}:{known.line})" if known.file else "") + (f": {known.reason}" if known.reason else "")
        return f"{self.test} of {self.model} ({self.cls}): scanned {scanned}, really {self.does.state}{where}"


class Comparison(NamedTuple):
    """A scan held to a real run."""

    disagreements: list[Both]  # the pairs of test and model that differ, each by a class that does
    agreed: Counter[str]  # how many pairs agree, by what decides them

    def lines(self) -> Iterator[str]:
        """Yield the disagreements, the share of pairs that agree, and what that share is made of."""
        yield from (f" - {disagreement}" for disagreement in self.disagreements)
        count = self.agreed
        agreed = count["decided"] + count["conditional"]
        pairs = agreed + len(self.disagreements)
        share = f" ({agreed / pairs:.3%})" if pairs else ""
        yield f"Agreed : {agreed}/{pairs} pairs of test and model{share}"
        yield f"Decided by the scan : {count['decided']}"
        yield f"Conditional, decided by the run : {count['conditional']} (skipped {count['skipped']})"
        yield f"Of these, as the same decorators did elsewhere in the run : {count['confirmed']}"
        yield f"Collected and not run, so not counted : {count['collected']}"


def compare(scanned: ScanResult, run: Mapping[str, Any]) -> Comparison:
    """Compare a scan with the report of a run, for the models of the run.

    A pair of test and model agrees when each class of the model does what the scan says of it.

    Raises:
        ScanError: If there is no pair to compare, which would prove nothing.
    """
    pairs = list(_pairs(scanned, [Row(**row) for row in run["rows"]], set(run["broken"])))
    if not pairs:
        raise ScanError("Nothing to compare: the run collected no common test of a model of this repository.")
    switches = _Switches([both for classes in pairs for both in classes if both.says.condition])
    disagreements, agreed = list[Both](), Counter[str]()
    for classes in pairs:
        does = {both.does.state for both in classes}
        conditional = [both.says for both in classes if both.says.condition]
        wrong = [both for both in classes if not _agrees(both.says, both.does) or switches.contradict(both)]
        if wrong:
            disagreements.append(wrong[0])
        elif "collected" in does or not conditional:
            agreed["collected" if "collected" in does else "decided"] += 1
        else:
            agreed["conditional"] += 1
            agreed["skipped"] += "skipped" in does and does <= {"skipped", "vanished", "absent"}
            agreed["confirmed"] += all(map(switches.decide, conditional))
    return Comparison(disagreements, agreed)


def _pairs(scanned: ScanResult, rows: list[Row], broken: set[str]) -> Iterator[list[Both]]:
    """Yield both sides' view of each class, for each test and model that either side has."""
    says: States = defaultdict(lambda: defaultdict(list))
    does: States = defaultdict(lambda: defaultdict(list))
    for test, common in scanned.tests.items():
        for case in common.cases:
            says[test, case.model][case.cls].append(case.state)
    variants = defaultdict[tuple[str, str, str, str], list[Row]](list)
    for row in rows:
        if row.state != "deselected":
            variants[row.test, row.model, row.cls, row.node].append(row)
    for (test, model, cls, _node), found in variants.items():
        does[test, model][cls].append(_state(found))
    left_out = {(row.test, row.model) for row in rows if row.state == "deselected"}
    models = {model for test, model in does.keys() - left_out if model not in broken}
    for test, model in sorted({*says, *does} - left_out):
        if model in models:
            ours, theirs = says[test, model], does[test, model]
            names = sorted({*ours, *theirs})
            yield [both for cls in names for both in _paired((test, model, cls), ours[cls], theirs[cls])]


def _paired(of: tuple[str, str, str], says: list[State], does: list[State]) -> Iterator[Both]:
    """Pair both views of the classes of one name; two files of a model may each have such a class."""
    says = says + [_ABSENT] * (len(does) - len(says))
    does = does + [_ABSENT] * (len(says) - len(does))
    fitting = (order for order in islice(permutations(does), _ORDERS) if all(map(_agrees, says, order)))
    yield from (Both(*of, *sides) for sides in zip(says, next(fitting, does), strict=True))


def _state(rows: list[Row]) -> State:
    """Return the state of a test in a class from what became of its variants."""
    stopped = [row for row in rows if row.state != "ran"]
    if not stopped or any(row.state == "collected" for row in rows):
        return State("collected") if stopped else RAN
    first = stopped[0]
    state = State(first.state, reason=first.reason, file=first.file, line=first.line)
    if len(stopped) == len(rows):
        return state
    some = f"only {', '.join(row.name for row in stopped)}"
    return state._replace(state="conditional", condition=Condition.of([(some,)]))


def _agrees(says: State, does: State) -> bool:
    """Tell whether a run did to a class what the scan says."""
    if does.state == "collected" and says.state == "skipped":
        return says.form in _RUN_TIME
    if says.form == "vanished" and says.condition:
        return does.state in _AGREES["conditional"]  # a name that ``expand`` has left nothing of may vanish as well
    conditional = "partial" if says.condition.startswith("only ") else "conditional"
    return does.state in _AGREES[conditional if says.condition else says.state]


class _Switches:
    """The conditions that hold in the whole run or not at all, and what the run shows of them."""

    def __init__(self, conditional: list[Both]) -> None:
        known = [(alternatives(both.says.condition), both.does.state) for both in conditional]
        forms = (both.says.form for both in conditional)
        first = {parts[0] for (parts, _), form in zip(known, forms, strict=True) if form in _DECORATORS}
        listed = {part for parts, _ in known for part in parts if is_condition(part.partition("(")[0])}
        switches = {part for part in first | listed if _is_switch(part)}  # and no local name of a guard
        self._off = switches.intersection(part for parts, state in known if state == "ran" for part in parts)
        rest = [self._left(parts) for parts, state in known if state == "skipped"]
        self._on = switches.intersection(parts[0] for parts in rest if len(parts) == 1)

    def _left(self, parts: list[str]) -> list[str]:
        return [part for part in parts if part not in self._off]

    def contradict(self, both: Both) -> bool:
        """Tell whether a class skipped a test although none of its conditions holds in this run."""
        condition = both.says.condition
        return bool(condition) and both.does.state == "skipped" and not self._left(alternatives(condition))

    def decide(self, says: State) -> bool:
        """Tell whether the run decides a condition by what the same decorators did to other tests."""
        left = self._left(alternatives(says.condition))
        return not left or not self._on.isdisjoint(left)


def _is_switch(part: str) -> bool:
    """Tell whether a condition is a decorator, such as ``require_torch``: it holds in a whole run or not at all."""
    name, bracket, given = part.partition("(")
    is_call = given.find(")") == len(given) - 1 and "(" not in given
    return name.isidentifier() and (not bracket or is_call)


def main(argv: Sequence[str] | None = None) -> int:
    """Print the disagreements; 1 where there is one."""
    parser = argparse.ArgumentParser()
    parser.add_argument("run", type=Path, help="what pytest -p scan_truth.plugin --skip-report=FILE wrote")
    parser.add_argument("--repo", default=".")
    parser.add_argument("--models-dir", default="")
    options = parser.parse_args(argv)
    run = json.loads(options.run.read_text(encoding="utf-8"))
    found = compare(scan(options.repo, models_dir=options.models_dir), run)
    print("\n".join(found.lines()))
    return 1 if found.disagreements else 0


if __name__ == "__main__":
    sys.exit(main())
