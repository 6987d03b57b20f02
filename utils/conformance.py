"""Whether the model classes of the installed transformers keep their promises, and why not: failures in groups.

The models and inputs are those of the test suite of a transformers checkout (text, vision, audio, multimodal): give its
directory. Each model class is held to each promise, but for one that is another head on a body. Failures are put in
groups by promise, culprit and diagnosis: look at one of each by hand. What varies by design is listed with its reason
in ``conformance_varies.json``. A class that cannot be built or called is named, and no failure.

With ``--mutations N`` each kind of ``promise_mutations.py`` is planted in N classes of modules, drawn at random,
and the promise that it breaks is asked for again: how many are caught, and at the class that has it?
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import random
import re
import sys
import time
import unittest
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import command
from promise_mutations import MUTATIONS, Mutation, Seen, parts_of, seen_in
from pytest_tfdebug.conform.mixin import PROMISES, Promise, judge
from pytest_tfdebug.conform.subject import Subject, prepared
from pytest_tfdebug.errors import ConformanceError, TFDebugError

#: Promise -> class of the model -> why it does not keep the promise by design.
_VARIES = json.loads(Path(__file__).with_name("conformance_varies.json").read_text(encoding="utf-8"))


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


class Judged:
    """The verdicts on models, and why others have none."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.not_built: list[str] = []

    def subjects(self, kind: str, case_class: Any) -> Iterator[Subject]:
        """Judge each model of a test class, and yield it."""
        try:
            case = case_class()
            case.setUp()
            for subject in without_heads(prepared(case)):
                try:
                    self.rows += [{"kind": kind, **verdict(subject, promise)} for promise in PROMISES]
                except TFDebugError as error:  # noqa: PERF203 - few, and slow
                    self.not_built.append(f"{subject.name}: {error}".partition("\n")[0])
                else:
                    yield subject
        except Exception as error:  # noqa: BLE001 - a tester that the installed transformers does not fit
            self.not_built.append(f"{case_class.__name__}: {type(error).__name__}: {error}".partition("\n")[0])
        gc.collect()

    def show(self) -> None:
        """Print the groups of failures, the states by promise, and the time."""
        kept = {(row["promise"], row["model"]) for row in self.rows if row["model"] in _VARIES.get(row["promise"], ())}
        groups = defaultdict[tuple[str, str], list[str]](list)
        for row in self.rows:
            if row["state"] == "varies":
                kept.discard((row["promise"], row["model"]))
            elif row["state"] == "fails":
                groups[row["promise"], row["why"][:150]].append(f"{row['model']} [{row['culprit'] or '?'}]")
        for promise, model in sorted(kept):
            print(f"{model} keeps {promise}: take it out of conformance_varies.json")
        for (promise, why), members in sorted(groups.items(), key=lambda item: (item[0][0], -len(item[1]))):
            print(f"{promise}: {len(members)} × {why}\n    {', '.join(dict.fromkeys(members))}")
        table = command.Table("promise", "passes", "does not apply", "varies", "fails", "seconds")
        for promise in dict.fromkeys(row["promise"] for row in self.rows):
            own = [row for row in self.rows if row["promise"] == promise]
            table.add(promise, {**Counter(row["state"] for row in own), "seconds": sum(row["seconds"] for row in own)})
        models = len({(row["kind"], row["model"]) for row in self.rows})
        print(f"\n{models} model classes in {sum(row['seconds'] for row in self.rows):.0f} s; not looked at:")
        for told in self.not_built:
            print(f"  {told[:200]}")


def verdict(subject: Subject, promise: Promise) -> dict[str, Any]:
    """Return what became of a promise of a model, with its seconds of process time, and why it fails, without names."""
    began, why, at = time.process_time(), "", ""
    try:
        found = judge(subject, promise)
    except ConformanceError as error:
        found, culprit = error.verdict, error.culprit
        if found.model in _VARIES.get(found.promise, ()):
            found = found._replace(state="varies")
        text = re.sub(r"^\S+:\d+ in .*\): |\d+", "#", found.text.replace(found.model, "the model"))
        why, at = error.finding.diagnosis or text, f"{culprit.class_name} ({culprit.kind})" if culprit else ""
    return {**found._asdict(), "why": why, "culprit": at, "seconds": time.process_time() - began}


def mutants(options: argparse.Namespace) -> None:
    """Plant each kind of mutation in some classes of modules, and print how many are caught, and where."""
    judged, found = Judged(), list[tuple[Subject, Seen]]()
    drawn, draw = list(cases(options.checkout, options.only or [])), random.Random(options.seed)  # noqa: S311
    draw.shuffle(drawn)
    for kind, case_class in drawn:
        if len({row["model"] for row in judged.rows}) >= options.models:
            break
        for subject in judged.subjects(kind, case_class):
            found += [(subject, seen) for seen in seen_in(subject)]
    judged.show()
    keeps = {(row["model"], row["promise"]) for row in judged.rows if row["state"] == "passes"}
    table = command.Table("mutation", "planted", "caught", "at its module")
    for mutation in MUTATIONS:
        fitting = [(one, seen) for one, seen in found if (one.name, mutation.promise) in keeps]
        fitting = [(one, seen) for one, seen in fitting if mutation.part in parts_of(seen)]
        draw.shuffle(fitting)
        cells = Counter[str]()
        for subject, seen in fitting:
            if cells["planted"] < options.mutations:
                cells.update(mutant(subject, seen, mutation))
        table.add(f"{mutation.promise}: {mutation.name}", cells)
    table.total()


def mutant(subject: Subject, seen: Seen, mutation: Mutation) -> list[str]:
    """Return what became of a mutation: nothing if the model cannot be called with it."""
    promise = next(promise for promise in PROMISES if promise.name == mutation.promise)
    kind = seen.kind.__name__
    label = f"{subject.name}, {kind}"
    with mutation.planted(seen):
        broken = Subject(subject.model_class, subject.config, subject.inputs)
        try:
            finding = promise.find(broken)
        except TFDebugError as error:
            print(f"  {label}: {error}".partition("\n")[0])
            return []
        paths = [path for path, module in broken.model.named_modules() if type(module) is seen.kind]
    if not finding.failure:
        print(f"  missed: {label}: {finding.absent or finding.note}")
        return ["planted"]
    culprit = finding.culprit
    names = [rf"(?<![\w.]){re.escape(path)}\.?\b" if path else r"\bweights\b" for path in paths]  # of a weight of it
    if any(re.search(name, finding.failure) for name in names) if culprit is None else culprit.class_name == kind:
        return ["planted", "caught", "at its module"]
    at = culprit and f"{culprit.path} ({culprit.class_name})"
    print(f"  elsewhere: {label}: at {at}: {finding.diagnosis or finding.failure[:300]}")
    return ["planted", "caught"]


def main() -> None:
    """Look at every model class, and print the groups and the time."""
    parser = command.parser(__doc__, "only", "seed")
    parser.add_argument("checkout", type=Path, help="directory of a transformers checkout, with its tests")
    parser.add_argument("--mutations", type=int, default=0, metavar="N", help="plant each kind of mutation N times")
    parser.add_argument("--models", type=int, default=60, help="in so many model classes (default %(default)s)")
    options = parser.parse_args()
    command.quiet()
    if options.mutations:
        mutants(options)
        return
    judged = Judged()
    for kind, case_class in cases(options.checkout, options.only or []):
        deque(judged.subjects(kind, case_class), maxlen=0)
    judged.show()


if __name__ == "__main__":
    main()
