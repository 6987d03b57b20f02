"""Whether the model classes of the installed transformers keep their promises, and why not: failures in groups.

The models and inputs are those of the test suite of a transformers checkout (text, vision, audio, multimodal): give its
directory. Each model class is held to each promise. Failures are put in groups by promise, culprit and diagnosis: look
at one of each by hand. What varies by design is listed with its reason in ``conformance_varies.json``. A class that
cannot be built or called is named, and no failure.
"""

from __future__ import annotations

import gc
import importlib
import json
import re
import sys
import time
import unittest
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import command
from pytest_tfdebug.conform.judge import judge
from pytest_tfdebug.conform.promises import PROMISES
from pytest_tfdebug.conform.tester_inputs import prepared
from pytest_tfdebug.errors import ConformanceError, TFDebugError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_tfdebug.conform.subject import Subject

#: Promise -> class of the model -> why it does not keep the promise by design.
_VARIES = Path(__file__).with_name("conformance_varies.json")


def cases(checkout: Path, kinds: list[str]) -> Iterator[tuple[str, Any]]:
    """Yield model type and test class of each model of a checkout; those that cannot be imported are printed."""
    sys.path.insert(0, str(checkout))
    for file in sorted((checkout / "tests" / "models").glob("*/test_modeling_*.py")):
        kind = file.parent.name
        if kinds and kind not in kinds:
            continue
        try:
            module = importlib.import_module(".".join(file.relative_to(checkout).with_suffix("").parts))
        except Exception as error:  # noqa: BLE001 - what a test file imports may be missing
            print(f"{kind}: not imported: {type(error).__name__}: {error}")
            continue
        for value in vars(module).values():
            is_case = isinstance(value, type) and issubclass(value, unittest.TestCase)
            if is_case and value.__module__ == module.__name__ and hasattr(value, "all_model_classes"):
                yield kind, value


def without_heads(found: Iterator[Subject]) -> Iterator[Subject]:
    """Yield one model for each body, and one that generates with it: other heads on a body break what it breaks."""
    seen = set()
    for subject in found:
        model = subject.model
        body = getattr(model, getattr(model, "base_model_prefix", ""), model)
        key = type(body), hasattr(model, "can_generate") and model.can_generate()
        if key not in seen:
            seen.add(key)
            yield subject


def verdicts(kind: str, subject: Subject) -> Iterator[dict[str, Any]]:
    """Yield what became of each promise of a model, with its seconds of process time."""
    for promise in PROMISES:
        began = time.process_time()
        text, told = "", {}
        try:
            verdict = judge(subject, promise)
        except ConformanceError as error:
            verdict, text = error.verdict, str(error)
            culprit = error.culprit
            told = {
                "diagnosis": error.finding.diagnosis,
                "culprit": f"{culprit.class_name} ({culprit.kind})" if culprit is not None else "",
            }
        seconds = time.process_time() - began
        yield {"kind": kind, **verdict._asdict(), **told, "report": text, "seconds": seconds}


def group(row: dict[str, Any]) -> tuple[str, str]:
    """Return what a failure has in common with those like it."""
    told = row["diagnosis"] or re.sub(r"^\S+:\d+ in .*\): |\d+", "#", row["text"].replace(row["model"], "the model"))
    return row["promise"], told[:150]


def subjects(kind: str, case_class: Any, *, is_bodies: bool) -> Iterator[list[dict[str, Any]] | str]:  # noqa: ANN401
    """Yield the verdicts on each model of a test class, or why there are none."""
    try:
        case = case_class()
        case.setUp()
        found = prepared(case)
        for subject in without_heads(found) if is_bodies else found:
            try:
                yield list(verdicts(kind, subject))
            except TFDebugError as error:  # noqa: PERF203 - few, and slow
                yield f"{subject.name}: {error}".partition("\n")[0]
    except Exception as error:  # noqa: BLE001 - a tester that the installed transformers does not fit
        yield f"{case_class.__name__}: {type(error).__name__}: {error}".partition("\n")[0]
    gc.collect()


def main() -> None:
    """Look at every model class, and print the groups and the time."""
    parser = command.parser(__doc__, "only", "every")
    parser.add_argument("checkout", type=Path, help="directory of a transformers checkout, with its tests")
    parser.add_argument("--bodies", action="store_true", help="leave out classes that are another head on a body")
    options = parser.parse_args()
    command.quiet()
    rows: list[dict[str, Any]] = []
    not_built: list[str] = []
    for kind, case_class in [*cases(options.checkout, options.only or [])][:: options.every]:
        for found in subjects(kind, case_class, is_bodies=options.bodies):
            if isinstance(found, str):
                not_built.append(found)
            else:
                rows += found
    show(rows, not_built)


def show(rows: list[dict[str, Any]], not_built: list[str]) -> None:
    """Print the groups of failures, the states by promise, and the time."""
    varies = json.loads(_VARIES.read_text(encoding="utf-8"))
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        reason = varies.get(row["promise"], {}).get(row["model"])
        if reason is not None and row["state"] == "fails":
            row["state"] = "varies"
        if row["state"] == "fails":
            groups.setdefault(group(row), []).append(row)
    for (promise, told), members in sorted(groups.items(), key=lambda item: (item[0][0], -len(item[1]))):
        names = ", ".join(dict.fromkeys(f"{row['model']} [{row['culprit'] or '?'}]" for row in members))
        print(f"{promise}: {len(members)} × {told}\n    {names}")
    looked_at = {(row["promise"], row["model"]) for row in rows}
    varying = {(row["promise"], row["model"]) for row in rows if row["state"] == "varies"}
    for promise, models in varies.items():
        for model in models:
            if (promise, model) in looked_at - varying:
                print(f"{model} keeps {promise}: take it out of {_VARIES.name}")
    table = command.Table("promise", "passes", "does not apply", "varies", "fails", "seconds")
    for promise in dict.fromkeys(row["promise"] for row in rows):
        own = [row for row in rows if row["promise"] == promise]
        table.add(promise, {**Counter(row["state"] for row in own), "seconds": sum(row["seconds"] for row in own)})
    models = len({(row["kind"], row["model"]) for row in rows})
    print(f"\n{models} model classes in {sum(row['seconds'] for row in rows):.0f} s of process time; not looked at:")
    for told in not_built:
        print(f"  {told[:200]}")


if __name__ == "__main__":
    main()
