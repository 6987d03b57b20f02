"""Hold models to goldens that were recorded under older versions of transformers, as their users do.

``python utils/upgrades.py record DIR`` in the environment of each older version, a ``DIR`` per version, then ``...
check DIR DIR`` in the present one. ``DIR`` gets a test of pytest with ``tf_golden.check``, and its goldens;
docs/evidence.md has one run, and how the environments are made. Weights are those of ``fill``, and inputs are seeded
apart from them: both are the same in every version. The models are those of the catalogue, and others of small
configurations.

``bugs DIR DIR`` puts each bug of the catalogue into its model, and holds that to the golden of the right one: without
the reference, which is of another version.
"""

from __future__ import annotations

import json
import linecache
import tempfile
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import command

# isort: split
import argparse

import pytest_tfdebug
from architectures import small
from bugs import BUGS, Bug
from edits import is_narrow
from models import ARCHITECTURES, IS_V5
from pytest_tfdebug.goldens.golden_file import load
from pytest_tfdebug.goldens.held_model import compare_with
from pytest_tfdebug.goldens.port_call import PortCall
from pytest_tfdebug.goldens.settings import CheckSettings
from pytest_tfdebug.parity.tensors.tolerance import Tolerances
from pytest_tfdebug.publish.reports import ANSWER

#: Architectures of small configurations, beside those of the catalogue.
FURTHER = (
    "albert", "bart", "bloom", "codegen", "cohere", "deberta-v2", "deepseek_v3", "distilbert", "electra", "falcon",
    "gemma", "gemma2", "glm4", "gpt_neo", "gpt_neox", "gptj", "granite", "m2m_100", "marian", "mbart",
    "mistral", "mpnet", "mt5", "nemotron", "olmo", "olmo2", "opt", "pegasus", "persimmon", "phi", "phi3", "qwen2",
    "qwen2_moe", "qwen3_moe", "roberta", "stablelm", "starcoder2",
)  # fmt: skip
MODELS = (*ARCHITECTURES, *FURTHER)
_TEST = """\
import pytest
from upgrades import MODELS, built


@pytest.mark.parametrize("name", MODELS)
def test_model(tf_golden, name):
    model, inputs = built(name)
    tf_golden.check(model, **inputs)
"""
_INI = f"[pytest]\npythonpath = {command.ROOT / 'utils'}\n"
_GOLDEN = "goldens/test_upgrade/test_model[{}].safetensors"
#: What two outputs may differ by that are called equal.
_RTOL, _ATOL = 1e-4, 1e-5


def built(name: str) -> tuple[Any, dict[str, Any]]:
    """Return a model, which is the same under every version, and its inputs."""
    if name not in ARCHITECTURES:
        model, inputs = small(name)
        return pytest_tfdebug.fill(model), inputs
    make_model, make_inputs = ARCHITECTURES[name]
    model = pytest_tfdebug.fill(make_model().eval())
    torch.manual_seed(1)
    return model, make_inputs()


class _Told:
    """What pytest was told of each test."""

    def __init__(self) -> None:
        self.answers: dict[str, str] = {}  # by model; empty where the test has passed

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "call" or report.failed:
            name = report.nodeid.partition("[")[2].removesuffix("]")
            self.answers[name] = vars(report).get(ANSWER, "it failed") if report.failed else ""


def run(folder: Path, *options: str, only: list[str] | None = None) -> dict[str, str]:
    """Run the test of a folder, and return the first line of each failure by model."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pytest.ini").write_text(_INI, encoding="utf-8")
    test, told = folder / "test_upgrade.py", _Told()
    test.write_text(_TEST, encoding="utf-8")
    tests = [f"{test}::test_model[{name}]" for name in only or MODELS]
    pytest.main(
        [
            *tests,
            "-q",
            "--no-header",
            "--tb=no",
            "--import-mode=importlib",
            "-p",
            "no:cacheprovider",
            "-W",
            "ignore",
            *options,
        ],
        [told],
    )
    return told.answers


def record(folder: Path, only: list[str] | None) -> None:
    """Record the models under the version that is installed."""
    answers = run(folder, "--tf-golden=update", only=only)
    for name, answer in answers.items():
        print(f"{name:12} {transformers.__version__:8} {answer or 'recorded'}", flush=True)


def check(folder: Path, only: list[str] | None) -> None:
    """Print what is said of each model that has a golden in a folder, and count."""
    names = [name for name in only or MODELS if (folder / _GOLDEN.format(name)).exists()]
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "checks.json"
        answers = run(folder, "--tf-json", str(file), only=names)
        checks = {it["test"].partition("[")[2].removesuffix("]"): it for it in json.loads(file.read_text())["checks"]}
    counts = Counter[str]()
    for name in names:
        found, answer = checks.get(name), answers[name]
        is_equal, is_sure = _is_equal(folder, name), bool(found and found["culprit"] and found["culprit"]["certain"])
        notes = "" if found is None else " ".join(found["notes"])
        counts.update([f"{'equal' if is_equal else 'other'} outputs, {'fails' if answer else 'passes'}"])
        sure = ", certain" * is_sure
        print(f"{folder.name:8} {name:12} {'equal' if is_equal else 'OTHER'} {answer or 'passes'}{sure} | {notes}")
    print(f"{folder.name}, {len(names)} models: {dict(counts)}", flush=True)


@torch.no_grad()
def _is_equal(folder: Path, name: str) -> bool:
    """Whether the first output of a model is that of its golden, as it is."""
    model, inputs = built(name)
    recorded = next(it.tensor for it in load(folder / _GOLDEN.format(name)).trace.calls[0].outputs or ())
    given = next(leaf for leaf in model(**inputs).values() if isinstance(leaf, torch.Tensor))
    return recorded is not None and given.shape == recorded.shape and given.allclose(recorded, _RTOL, _ATOL)


_COLUMNS = ("bugs", "caught", "named", "line", "of lines", "proved", "certain", "wrong", "alarms")
_ALIKE = {("weights", "module"), ("weights", "glue"), ("module", "weights")}


def bugs(folders: list[Path], only: list[str] | None, *, is_shown: bool) -> None:
    """Print how the bugs of the catalogue are placed, held to goldens of other versions."""
    table = command.Table("goldens of", *_COLUMNS)
    for folder in folders:
        counts = Counter[str]()
        for architecture in only or ARCHITECTURES:
            counts["alarms"] += bool(_held(folder, architecture, None))
            for bug in (bug for bug in BUGS if bug.architecture == architecture and (IS_V5 or not bug.needs_v5)):
                verdicts = list(_verdicts(bug, _held(folder, architecture, bug)))
                counts.update(["bugs", *verdicts, *(["of lines"] if bug.lines else [])])
                if is_shown:
                    print(f"{folder.name} {bug.name}: {' '.join(verdicts)}", flush=True)
        table.add(folder.name, counts)


@cache
def _golden(path: Path) -> Any:
    return load(path)


def _held(folder: Path, architecture: str, bug: Bug | None) -> Any:
    """Return the report on a model with a bug, or on the right one; None where it passes."""
    model, inputs = built(architecture)
    if bug is not None:
        bug.inject(model)
    settings = CheckSettings(Tolerances(), internal="fail" if bug is not None else "warn")
    report = compare_with(_golden(folder / _GOLDEN.format(architecture)), model, PortCall((), inputs), settings)
    return None if report.ok else report


def _verdicts(bug: Bug, report: Any) -> Iterator[str]:
    """Yield what a report on a bug is worth."""
    if report is None:
        return
    yield "caught"
    culprit = report.culprit
    is_named = culprit.path == bug.culprit and (culprit.kind == bug.kind or (bug.kind, culprit.kind) in _ALIKE)
    if is_named:
        yield "named"
    if is_named and bug.lines and is_narrow(culprit.source) and bug.lines in _text(culprit.source):
        yield "line"
    if culprit.proved:
        yield "proved"
    if culprit.certain:
        yield "certain" if is_named else "wrong"


def _text(lines: Any) -> str:
    return "".join(linecache.getline(lines.file, number) for number in range(lines.first, lines.last + 1))


def main() -> None:
    """Record, check, or count."""
    parser = command.parser(__doc__, "only", "show")
    parser.add_argument("action", choices=["record", "check", "bugs"])
    parser.add_argument("folders", type=Path, nargs="+", metavar="DIR")
    chosen: argparse.Namespace = parser.parse_args()
    command.quiet()
    if chosen.action == "bugs":
        bugs(chosen.folders, chosen.only, is_shown=chosen.show)
        return
    for folder in chosen.folders:
        (record if chosen.action == "record" else check)(folder.resolve(), chosen.only)


if __name__ == "__main__":
    main()
