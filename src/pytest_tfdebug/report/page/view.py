"""What the templates show, computed from the records alone, and a failed check as Markdown; no HTML here."""

from __future__ import annotations

import shlex
from collections import Counter
from math import isfinite, log10
from typing import TYPE_CHECKING, Any

from pytest_tfdebug.check_record import CallRecord, CheckRecord, ForwardRecord, HeadroomRecord, SourceText, ValueRecord
from pytest_tfdebug.environment import as_text
from pytest_tfdebug.report.parity import rename_argument

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


#: Name of a check -> its name on a page.
KINDS = {
    "parity": "Parity",
    "padding_invariant": "Padding",
    "batch": "Batch",
    "cache": "Cache",
    "attention": "Attention",
    "save_load": "Save and load",
    "dtype": "Dtype",
    "overflow_free": "Overflow",
    "clean_load": "Load",
    "conformance": "Promise",
    "sweep": "Sweep",
    "triage": "Failure",
}
#: Name of a check -> titles of its sides: the one under test, and the one that it is held to.
_SIDES = {
    "parity": ("Here", "Reference"),
    "padding_invariant": ("Padded", "As the test called it"),
    "overflow_free": ("Here", ""),
}
_OTHER_SIDES = ("Made again", "As the test called it")
#: What the index shows of a check as it is.
_SHOWN_AS_THEY_ARE = ("test", "status", "model", "headline", "culprit", "coverage", "worst", "repeats", "name")
#: Calls as columns: a page of 5,000 calls stays small.
_COLUMNS = ("path", "class_name", "call", "parent", "ended", "state", "share", "max_abs", "allowed", "relative_l2")


def card(check: CheckRecord) -> dict[str, Any]:
    """Return what the index shows of a check."""
    file, _, name = check.test.partition("::")
    coverage = check.coverage
    return {
        **{key: getattr(check, key) for key in _SHOWN_AS_THEY_ARE},
        "id": check.slug,
        "file": file,
        "title": (name or file).replace("::", " › ") + (f" · {check.name}" if check.name else ""),
        "kind": KINDS.get(check.check, check.check),
        "covered": coverage.share if coverage is not None and coverage.expected else None,
    }


def index(cards: Sequence[Mapping[str, Any]], run: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the head of the index says about all checks."""
    states = Counter(each["status"] for each in cards)
    environment = {name: as_text(value) for name, value in run["environment"].items() if value not in (None, {}, [])}
    return {
        "failed": states["failed"],
        "passed": states["passed"],
        "promises": _promises(cards),
        "kinds": sorted(Counter(each["kind"] for each in cards).items()),
        "command": shlex.join(run["command"]),
        "environment": environment,
    }


def _promises(cards: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for each in cards:
        if each["kind"] == KINDS["conformance"]:
            found.setdefault(each["model"], {})[each["name"].rpartition(" ")[2]] = each
    return found


def page(check: CheckRecord) -> dict[str, Any]:
    """Return what the page of a check shows beside the record itself."""
    forward = check.forward or ForwardRecord()
    values = [forward.values, forward.reference_values]
    command = f"pytest {shlex.quote(check.test)}"
    return {
        "command": command,
        "sides": _SIDES.get(check.check, _OTHER_SIDES),
        "rename": rename_argument(check.rename),
        "issue": issue(check, command),
        "codes": [_code(source) for source in forward.sources],
        "near": list(_side_by_side(*values)),
        "shown": [[row.index for row in rows] for rows in values],
        "has_values": any(values),
        "headroom": [_headroom(row) for row in check.headroom],
        "data": {
            "measure": forward.measure,
            "culprit": forward.culprit,
            "own": _columns(forward.own) if forward.own else None,
            "reference": _columns(forward.reference),
            "pairs": [[pair.own, pair.reference, pair.by] for pair in forward.pairs],
            "elements": forward.elements,
        },
    }


def _side_by_side(
    own: Sequence[ValueRecord], reference: Sequence[ValueRecord]
) -> Iterator[tuple[ValueRecord | None, ValueRecord | None]]:
    """Yield the values of both sides row by row: one beside its partner, the others between them in their order."""
    places = {row.index: place for place, row in enumerate(reference)}
    at = 0
    for row in own:
        place = places.get(row.partner, -1) if row.partner is not None else -1
        if place >= at:
            yield from ((None, between) for between in reference[at:place])
            at = place + 1
            yield row, reference[place]
        else:
            yield row, None
    yield from ((None, rest) for rest in reference[at:])


def _columns(calls: Sequence[CallRecord]) -> dict[str, list[Any]]:
    columns = {name: [_rounded(getattr(row, name)) for row in calls] for name in ("index", *_COLUMNS)}
    columns["shape"] = [" × ".join(map(str, row.shape)) + (f" {row.dtype}" if row.dtype else "") for row in calls]
    for name in ("path", "class_name", "state", "shape"):  # each word is written once, and then its number
        words = list(dict.fromkeys(columns[name]))
        at = {word: place for place, word in enumerate(words)}
        columns[name] = [at[word] for word in columns[name]]
        columns[f"{name}_words"] = words
    return columns


def _rounded(value: object) -> object:
    return float(f"{value:.4g}") if isinstance(value, float) else value


def _code(source: SourceText | None) -> dict[str, Any] | None:
    if source is None:
        return None
    marked, text = source.marked, list(source.text)
    while text and not text[-1].strip():
        text.pop()
    lines = [
        (number, line, marked is not None and marked.first <= number <= marked.last)
        for number, line in enumerate(text, source.first)
    ]
    return {"file": source.file, "line": marked.first if marked else source.first, "lines": lines}


def _headroom(row: HeadroomRecord) -> dict[str, Any]:
    used = row.value / row.limit if row.limit else 1.0
    ratio = row.limit / row.value if row.value else float("inf")
    return {"row": row, "ratio": ratio, "used": on_log_scale(used), "fits": ratio > 1}


def on_log_scale(used: float) -> float:
    """Return a share of a range as a length from 0 to 1 on a logarithmic scale that begins at 1e-6."""
    decades = 6.0
    return 1.0 if not isfinite(used) else min(1.0, max(0.0, 1 + log10(max(used, 1e-30)) / decades))


def share(value: object) -> str:
    """Return a share of a tolerance in words: ``0.2×``."""
    number = float(str(value))
    return "equal" if number == 0 else f"{number:.2g}×"


def figure(value: object) -> str:
    """Return a number in three places."""
    return f"{float(str(value)):.3g}"


def first_line(code: str) -> str:
    """Return the first line of a statement, with an ellipsis if there are more."""
    first, _, rest = code.partition("\n")
    return f"{first} …" if rest else first


def short(file: str) -> str:
    """Return the last part of a path."""
    return str(file).replace("\\", "/").rpartition("/")[2]


def issue(check: CheckRecord, command: str) -> str:
    """Return a check as the text of an issue."""
    return "\n".join(_lines(check, command)) + "\n"


def _lines(check: CheckRecord, command: str) -> Iterator[str]:
    yield f"**{check.headline}**"
    culprit, forward = check.culprit, check.forward
    if culprit is not None and culprit.explanation:
        yield f"\n{culprit.explanation}"
    if check.diagnosis:
        yield f"\n{check.diagnosis}"
    for title, source in zip(("Here", "Reference"), forward.sources if forward else (), strict=False):
        if source is not None and source.marked is not None:
            yield from _quoted(f"{title}, `{source.marked}`", source, source.marked.first, source.marked.last)
    if culprit is not None and culprit.figures:
        yield f"\n{culprit.tensor}"
        yield from (f"- {figure}" for figure in culprit.figures)
    for title, lines in (
        ("Changed since the golden was recorded", check.changed),
        ("Weights that are not the recorded ones", check.weights),
    ):
        if lines:
            yield f"\n{title}: {', '.join(lines)}"
    yield f"\n```\n{command}\n```"


def _quoted(title: str, source: SourceText, first: int, last: int) -> Iterator[str]:
    text = source.text[first - source.first : last - source.first + 1]
    fence = "```" if not any("```" in line for line in text) else "~~~~"
    yield f"\n{title}\n"
    yield f"{fence}python"
    yield from text
    yield fence
