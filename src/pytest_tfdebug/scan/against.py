"""Where a scan and a real run of pytest disagree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_tfdebug.scan.errors import ScanError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: What a real run may do with a test, by what the scan says of it.
_AGREES = {
    "absent": {"absent"},
    "conditional": {"ran", "partial", "conditional", "skipped"},
    "partial": {"partial"},
    "ran": {"ran"},
    "skipped": {"skipped"},
    "vanished": {"vanished", "absent"},
}
#: Skips that only running a test shows, not collecting it.
_RUN_TIME = frozenset({"body", "guard"})


class Disagreement(NamedTuple):
    """A test and model of which the scan says one thing and pytest another."""

    test: str
    model: str
    scanned: str
    real: str
    where: str
    reason: str

    def __str__(self) -> str:
        where = f" ({self.where})" if self.where else ""
        reason = f": {self.reason}" if self.reason else ""
        return f"{self.test} of {self.model}: scanned {self.scanned}, really {self.real}{where}{reason}"


class Comparison(NamedTuple):
    """A scan held to a real run: how many pairs of test and model there are, and those that differ."""

    pairs: int
    disagreements: list[Disagreement]

    def lines(self) -> Iterator[str]:
        """Yield the disagreements and the share of pairs that agree.

        Raises:
            ScanError: If there is no pair to compare, which would prove nothing.
        """
        if not self.pairs:
            raise ScanError("Nothing to compare: the run collected no common test of a model of this repository.")
        yield from (f" - {disagreement}" for disagreement in self.disagreements)
        agreed = self.pairs - len(self.disagreements)
        yield f"Agreed : {agreed}/{self.pairs} pairs of test and model ({agreed / self.pairs:.3%})"


def compare(scanned: Mapping[str, dict[str, Any]], real: Mapping[str, dict[str, Any]]) -> Comparison:
    """Compare the report of a scan with that of ``pytest --tf-skip-report``, for the models of the run."""
    models = {model for report in real.values() for model in (*report["models_ran"], *report["models_skipped"])}
    pairs, found = 0, []
    for test in sorted({*scanned, *real}):
        expected, actual = scanned.get(test, {}), real.get(test, {})
        unseen = set(actual.get("models_deselected", ()))
        for model in sorted(models - unseen):
            says, does = _pair(expected, model), _pair(actual, model)
            if says == does == "absent":
                continue
            pairs += 1
            is_run_time = not actual.get("is_run", True) and _is_run_time(expected, model)
            if does not in (_AGREES["conditional"] if is_run_time else _AGREES[says]):
                found.append(Disagreement(test, model, says, does, *_why(expected, actual, model)))
    return Comparison(pairs, found)


def _pair(report: Mapping[str, Any], model: str) -> str:
    """Return what a report says of a model, of all its classes together."""
    if model in report.get("models_skipped", ()):
        states = {entry["state"] for entry in report["tests"] if entry["model"] == model}
        return "vanished" if states == {"vanished"} else "skipped"
    for key, state in (("models_partially_skipped", "partial"), ("models_ran", "ran")):
        if model in report.get(key, ()):
            is_conditional = any(entry["model"] == model and entry["condition"] for entry in report["tests"])
            return "conditional" if is_conditional else state
    return "absent"


def _is_run_time(report: Mapping[str, Any], model: str) -> bool:
    """Tell whether a model skips a test in the body of a function, which a run without running does not see."""
    return any(entry["model"] == model and entry["form"] in _RUN_TIME for entry in report.get("tests", ()))


def _why(expected: Mapping[str, Any], actual: Mapping[str, Any], model: str) -> tuple[str, str]:
    for report in (actual, expected):
        for entry in report.get("tests", ()):
            if entry["model"] == model and (entry["reason"] or entry["file"]):
                return (f"{entry['file']}:{entry['line']}" if entry["file"] else ""), entry["reason"]
    return "", ""
