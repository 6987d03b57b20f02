"""Where a scan and a real run of pytest disagree, and how much their agreement proves."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import islice, permutations, repeat
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from msgspec import ValidationError, convert

from pytest_tfdebug.scan import baseline
from pytest_tfdebug.scan.errors import ScanError
from pytest_tfdebug.scan.resolve.conditions import Condition, State, alternatives, is_condition

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

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
_WORDS = ("ran", "partial", "skipped", "vanished", "empty")


class Disagreement(NamedTuple):
    """A test and model of which the scan says one thing and pytest another."""

    test: str
    model: str
    cls: str
    scanned: str
    real: str
    where: str
    reason: str

    def __str__(self) -> str:
        cls = f" ({self.cls})" if self.cls else ""
        where = f" ({self.where})" if self.where else ""
        reason = f": {self.reason}" if self.reason else ""
        return f"{self.test} of {self.model}{cls}: scanned {self.scanned}, really {self.real}{where}{reason}"


class Comparison(NamedTuple):
    """A scan held to a real run.

    Attributes:
        disagreements: The pairs of test and model that differ.
        decided: How many pairs agree of which the scan knows the state, by state.
        conditional: How many pairs agree of which the run decides, by what it did.
        steady: How many of these are also decided by what the same decorators did elsewhere in the run.
        not_run: How many pairs the run only collected, so that they prove little.
    """

    disagreements: list[Disagreement]
    decided: Counter[str]
    conditional: Counter[str]
    steady: int
    not_run: int

    @property
    def pairs(self) -> int:
        """How many pairs of test and model were run, or need no run."""
        return len(self.disagreements) + self.decided.total() + self.conditional.total()

    def lines(self) -> Iterator[str]:
        """Yield the disagreements, the share of pairs that agree, and what that share is made of.

        Raises:
            ScanError: If there is no pair to compare, which would prove nothing.
        """
        if not self.pairs + self.not_run:
            raise ScanError("Nothing to compare: the run collected no common test of a model of this repository.")
        yield from (f" - {disagreement}" for disagreement in self.disagreements)
        agreed = self.pairs - len(self.disagreements)
        share = f" ({agreed / self.pairs:.3%})" if self.pairs else ""
        yield f"Agreed : {agreed}/{self.pairs} pairs of test and model{share}"
        yield f"Decided by the scan : {_counted(self.decided)}"
        steady = f"; {self.steady} of them as the same decorators did elsewhere in the run" if self.steady else ""
        yield f"Conditional, decided by the run : {_counted(self.conditional)}{steady}"
        if self.not_run:
            yield f"Collected and not run, so not counted : {self.not_run}"


def _counted(counter: Counter[str]) -> str:
    words = ", ".join(f"{word} {counter[word]}" for word in _WORDS if counter[word])
    return f"{counter.total()}{f' ({words})' if words else ''}"


class _Both(NamedTuple):
    """A test in a class, as the scan and the run see it."""

    cls: str
    says: State
    does: State


def load(path: Path) -> dict[str, dict[str, Any]]:
    """Return the report of a run.

    Raises:
        ScanError: If the file cannot be read or is no such report.
    """
    found = baseline.load(path, f"pytest -p scan_truth.plugin --skip-report={path}")
    try:
        convert(found, dict[str, _TestOfARun])
    except ValidationError as error:
        raise ScanError(
            f"{path} is not the report of a run; write one with pytest -p scan_truth.plugin --skip-report=FILE."
        ) from error
    return found


class _CaseOfARun(TypedDict):
    form: str
    condition: str


class _TestOfARun(TypedDict):
    """What a run says of a test and a scan does not."""

    classes_ran: dict[str, list[str]]
    models_not_run: list[str]
    models_incomplete: list[str]
    tests: list[_CaseOfARun]


def compare(scanned: Mapping[str, dict[str, Any]], real: Mapping[str, dict[str, Any]]) -> Comparison:
    """Compare the report of a scan with that of a run, for the models of the run.

    A pair of test and model agrees when each class of the model does what the scan says of it.
    """
    pairs = list(_pairs(scanned, real))
    switches = _Switches([both for _, _, classes in pairs for both in classes if both.says.condition])
    found = Comparison([], Counter(), Counter(), 0, 0)
    steady = not_run = 0
    for test, model, classes in pairs:
        states = {both.does.state for both in classes}
        conditional = [both.says for both in classes if both.says.condition]
        wrong = [both for both in classes if not _agrees(both.says, both.does) or switches.contradict(both)]
        if wrong:
            found.disagreements.append(_disagreement(test, model, wrong[0]))
        elif "collected" in states:
            not_run += 1
        elif conditional:
            found.conditional[_word(states)] += 1
            steady += all(map(switches.decide, conditional))
        else:
            found.decided[_word({both.says.state for both in classes})] += 1
    return found._replace(steady=steady, not_run=not_run)


def _pairs(
    scanned: Mapping[str, dict[str, Any]], real: Mapping[str, dict[str, Any]]
) -> Iterator[tuple[str, str, list[_Both]]]:
    """Yield each test and model that either side has, with both sides' view of each class."""
    models = {
        model
        for report in real.values()
        for model in (*report["models_ran"], *report["models_skipped"], *report["models_not_run"])
        if model not in report["models_incomplete"]
    }
    for test in sorted({*scanned, *real}):
        expected, actual = _by_model(scanned.get(test, {})), _by_model(real.get(test, {}))
        incomplete = set(real[test]["models_incomplete"]) if test in real else ()
        for model in sorted(models.difference(incomplete)):
            says, does = expected[model], actual[model]
            # a scan lists no class that simply runs a test: where it knows of one, the others of the model do
            other = State("ran" if model in scanned.get(test, {}).get("models_ran", ()) else "absent")
            classes = [both for cls in sorted({*says, *does}) for both in _paired(cls, says[cls], does[cls], other)]
            if other.state == "ran" and not classes:
                classes = [_Both("", other, State("absent"))]
            if classes:
                yield test, model, classes


def _paired(cls: str, says: list[State], does: list[State], other: State) -> Iterator[_Both]:
    """Pair both views of the classes of one name; two files of a model may each have such a class."""
    says = says + [other] * (len(does) - len(says))
    does = does + [State("absent")] * (len(says) - len(does))
    fitting = (order for order in islice(permutations(does), _ORDERS) if all(map(_agrees, says, order)))
    yield from map(_Both, repeat(cls), says, next(fitting, does))


def _by_model(report: Mapping[str, Any]) -> defaultdict[str, defaultdict[str, list[State]]]:
    """Return what a report says of the classes that it names, by model and name."""
    found: defaultdict[str, defaultdict[str, list[State]]] = defaultdict(lambda: defaultdict(list))
    for model, classes in report.get("classes_ran", {}).items():
        for cls in classes:
            found[model][cls].append(State("ran"))
    for entry in report.get("tests", ()):
        known = {field: entry[field] for field in State._fields}
        state = State(**{**known, "condition": Condition.of([(entry["condition"],)])})
        found[entry["model"]][entry["class"]].append(state)
    return found


def _agrees(says: State, does: State) -> bool:
    """Tell whether a run did to a class what the scan says."""
    if does.state == "collected" and says.state == "skipped":
        return says.form in _RUN_TIME
    if says.form == "vanished" and says.condition:
        return does.state in _AGREES["conditional"]  # a name that ``expand`` has left nothing of may vanish as well
    state = says.state
    if says.condition:
        state = "partial" if says.condition.startswith("only ") else "conditional"
    return does.state in _AGREES[state]


class _Switches:
    """The conditions that hold in the whole run or not at all, and what the run shows of them."""

    def __init__(self, conditional: list[_Both]) -> None:
        known = [(alternatives(both.says.condition), both.does.state) for both in conditional]
        forms = (both.says.form for both in conditional)
        first = {parts[0] for (parts, _), form in zip(known, forms, strict=True) if form in _DECORATORS}
        named = {part for parts, _ in known for part in parts if is_condition(part.partition("(")[0])}
        switches = {part for part in first | named if _is_switch(part)}  # and no local name of a guard
        self._off = switches.intersection(part for parts, state in known if state == "ran" for part in parts)
        rest = [self._left(parts) for parts, state in known if state == "skipped"]
        self._on = switches.intersection(parts[0] for parts in rest if len(parts) == 1)

    def _left(self, parts: list[str]) -> list[str]:
        return [part for part in parts if part not in self._off]

    def contradict(self, both: _Both) -> bool:
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


def _word(states: set[str]) -> str:
    """Return one word for the states of a model's classes."""
    if states <= {"skipped", "vanished", "absent"}:
        return "skipped" if "skipped" in states else "vanished"
    if states <= {"ran", "empty"}:
        return "empty" if states == {"empty"} else "ran"
    return "partial"


def _disagreement(test: str, model: str, both: _Both) -> Disagreement:
    cls, says, does = both
    scanned = f"conditional on {says.condition}" if says.condition and does.state == "skipped" else says.state
    known = next((state for state in (does, says) if state.file or state.reason), does)
    where = f"{known.file}:{known.line}" if known.file else ""
    return Disagreement(test, model, cls, scanned, does.state, where, known.reason)
