"""Is a model left as it was by every check, and are goldens never lost?

Every check on 25 architectures, in both modes, in the main thread and in another, also where the forward raises. Then
many checks in one process and on four workers, two runs that update at once, runs that Ctrl-C ends, writers of goldens
that are killed, and files of 100 MB that are made to be slow.

python utils/harden.py                     the whole of it, some minutes; the exit status is 1 where anything failed
python utils/harden.py --only llama,bert --checks 300
"""

from __future__ import annotations

import os
import pickle
import random
import re
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch

import command
import padding_models
import pytest_tfdebug
from architectures import FAMILIES, small
from pytest_tfdebug.github import workflow_command
from pytest_tfdebug.goldens.golden_file import load, save
from pytest_tfdebug.redaction import leaving
from pytest_tfdebug.tracing.record.state import random_state_kept
from safety.goldens import play_interrupts, play_kills, play_many, play_two_updates
from safety.large_files import play_large

#: What is tried, what tries it so often in a folder and says in a line each what went wrong, and how often.
Row = tuple[str, Callable[[Path, int], list[str]], int]

ARCHITECTURES = """
llama mistral qwen2 qwen3 gemma2 phi3 gpt2 gpt_neox gptj opt bloom falcon mixtral mamba olmo2 stablelm bert roberta
distilbert electra deberta-v2 t5 bart wav2vec2 vit
""".split()  # noqa: SIM905 - a table to read
_WAYS = [*product((False, True), repeat=2)]
Inputs = dict[str, Any]
#: What a forward may raise.
RAISED = (ValueError, KeyboardInterrupt, pytest.skip.Exception, SystemExit)
#: What a failed check of ours raises: it is no matter here whether a check passes.
_OURS = (AssertionError, pytest_tfdebug.TFDebugError)
_INVARIANCES = ("padding", "batch", "cache", "attention", "save_load", "dtype")
_GLOBAL_HOOKS = [name for name in vars(torch.nn.modules.module) if name.startswith("_global_") and "hooks" in name]


class InThread(torch.nn.Module):
    """A model that runs in a thread."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, **inputs: Any) -> Any:
        """Run the model."""
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(self.model, **inputs).result()


def _golden(model: torch.nn.Module, inputs: Inputs, folder: Path) -> object:
    recorded = pytest_tfdebug.trace(model, **inputs)
    save(folder / "golden.safetensors", recorded, model, "test_it.py::test_it")
    return pytest_tfdebug.compare(load(folder / "golden.safetensors").trace, pytest_tfdebug.trace(model, **inputs))


def _overflow(model: torch.nn.Module, inputs: Inputs, _folder: Path) -> None:
    with random_state_kept(), torch.no_grad(), pytest_tfdebug.overflow_guard(model, dtype="float16"):
        model(**inputs)  # the block is the user's: his forward draws random numbers


def _invariance(name: str, model: torch.nn.Module, inputs: Inputs, _folder: Path) -> object:
    return pytest_tfdebug.assert_invariant(model, inputs, name)


#: Name -> a check of a model with these inputs, which may write to a directory.
CHECKS: dict[str, Callable[[torch.nn.Module, Inputs, Path], object]] = {
    "trace": lambda model, inputs, _: pytest_tfdebug.trace(model, **inputs),
    "golden": _golden,
    "overflow": _overflow,
    **{name.replace("_", " "): partial(_invariance, name) for name in _INVARIANCES},
}


def play(
    check: str, model: torch.nn.Module, inputs: Inputs, folder: Path, error: type[BaseException] | None
) -> list[str]:
    """Make a check in an empty folder, its forward raising an error in the middle; return what is not as before."""
    caught = kept = None
    with _raising(model, inputs, error) if error is not None else nullcontext():
        before = _state(model)
        try:
            # as a test keeps its trace, which may share memory with the model
            kept = CHECKS[check](model, inputs, folder)
        except (*_OURS, *RAISED) as raised:
            caught = raised
        after = _state(model)
    found = [f"{name} changed" for name, value in after.items() if before.pop(name, None) != value]
    found += [f"{name} is gone" for name in before]
    del kept
    if error is not None and not isinstance(caught, error):
        found.append(f"{error.__name__} became {caught!r:.80}")
    return found


@contextmanager
def _raising(model: torch.nn.Module, inputs: Inputs, error: type[BaseException]) -> Iterator[None]:
    """Let the module that is called in the middle of a forward raise."""
    called: list[torch.nn.Module] = []
    leaves = [module for module in model.modules() if not list(module.children())]
    hooks = [module.register_forward_pre_hook(lambda module, _: called.append(module)) for module in leaves]
    with random_state_kept(), torch.no_grad():
        model(**inputs)
    for hook in hooks:
        hook.remove()

    def forward(*_: object, **__: object) -> None:
        raise error("in the middle")

    with patch.object(called[len(called) // 2], "forward", forward):
        yield


def _state(model: torch.nn.Module) -> dict[str, Any]:
    """Return all that may not change, by name."""
    numbers = torch.get_rng_state().tolist(), random.getstate(), pickle.dumps(np.random.get_state())  # noqa: NPY002 - what models draw from
    found: dict[str, Any] = {"random numbers": numbers, "flags": _flags()}
    for path, module in model.named_modules(remove_duplicate=False):
        found |= {f"{path}.{name}": _held(value) for name, value in vars(module).items()}
        found[f"{path}: class"] = type(module)
    return found


def _held(value: Any) -> Any:
    """Return of a value what ``==`` can compare: of a tensor its place and bytes, and which one an object is."""
    if isinstance(value, torch.Tensor):
        held = value.detach().reshape(-1).view(torch.uint8).numpy().tobytes()
        where = value.untyped_storage().data_ptr()
        return id(value), where, value._version, value.requires_grad, _held(value.grad), held  # noqa: SLF001
    if isinstance(value, dict):
        return [(key, _held(item)) for key, item in value.items()]
    if isinstance(value, (list, tuple)):
        return type(value), [_held(item) for item in value]
    return value if isinstance(value, (int, float, str, bytes, type(None))) else (id(value), value)


def _flags() -> list[Any]:
    """Return what holds for the whole process."""
    return [
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_anomaly_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.are_deterministic_algorithms_enabled(),
        str(torch.get_default_dtype()),
        str(torch.get_default_device()),
        torch.get_num_threads(),
        torch.get_float32_matmul_precision(),
        str(torch._tensor_str.PRINT_OPTS),  # noqa: SLF001 - torch shows them nowhere else
        torch.nn.Module.__call__,
        torch.nn.Module.__setattr__,
        list(warnings.filters),
        sys.gettrace(),
        sys.getprofile(),
        *(_held(getattr(torch.nn.modules.module, name)) for name in _GLOBAL_HOOKS),
    ]


def rows(wanted: list[str], checks: int) -> Iterator[Row]:
    """Yield what is tried."""
    for name in CHECKS:
        yield name, partial(_over, wanted, name, is_raising=False), 3 * len(wanted)
        raising = partial(_over, wanted, name, is_raising=True)
        yield f"{name}, the forward raises", raising, len(RAISED) * len(wanted)
    yield "a failure, and its second forward raises", partial(_explained, wanted), len(wanted)
    yield "forwards under torch.func", _transforms, len(_TRANSFORMS)
    yield "texts of strangers, through the one door", _strangers, len(_STRANGE)
    yield "texts of strangers, by every writer", _written, len(_STRANGE) * len(_WRITERS)
    yield "many tests in one process", play_many, checks // 2
    yield "many tests on 4 workers", partial(play_many, options=("-n", "4")), checks // 2
    yield "two updates at once", play_two_updates, 20
    yield "Ctrl-C", play_interrupts, 16
    yield "killed writers", play_kills, checks
    yield "files of 100 MB", play_large, 21


def main() -> int:
    """Try everything, print a table of it, and what failed."""
    parser = command.parser(__doc__, "only", only=ARCHITECTURES)
    parser.add_argument("--checks", type=int, default=1000, help="checks of each long run, and kills")
    options = parser.parse_args()
    command.quiet()
    table, failed = command.Table("check", "tried", "survived", "failed"), 0
    with get_context("fork").Pool(maxtasksperchild=1) as pool:
        for name, tried, problems in pool.imap(_played, rows(options.only, options.checks)):
            failed += len(problems)
            table.add(name, (tried, tried - len(problems), len(problems)))
            for problem in problems:
                print(f"  {problem}")
    table.total()
    return int(bool(failed))


def _played(row: Row) -> tuple[str, int, list[str]]:
    """Try one row, in a process of its own."""
    name, play_it, count = row
    with tempfile.TemporaryDirectory(prefix="tfdebug-") as folder:
        return name, count, play_it(Path(folder), count)


def _over(wanted: list[str], check: str, folder: Path, _count: int, *, is_raising: bool) -> list[str]:
    """Try a check on each architecture, in both modes, alone and in a thread, and return what was found.

    Of the four ways three are tried in an architecture, and where the forward raises each error once, in turn.
    """
    problems = []
    for first, kind in enumerate(wanted):
        model, inputs = built(kind)
        for number, error in enumerate(RAISED if is_raising else (None,) * 3, first):
            is_training, is_threaded = _WAYS[number % len(_WAYS)]
            found = play(check, (InThread(model) if is_threaded else model).train(is_training), inputs, folder, error)
            if found:
                how = f"{'train' if is_training else 'eval'}{', in a thread' if is_threaded else ''}"
                told = f", {error.__name__}" if error else ""
                problems.append(f"{kind} ({how}{told}): {'; '.join(found[:3])}")
    return problems


def _explained(wanted: list[str], _folder: Path, _count: int) -> list[str]:
    """Let each architecture fail a comparison, its second forward skipping the test or ending the process."""
    problems = []
    for number, kind in enumerate(wanted):
        error = (pytest.skip.Exception, SystemExit, ValueError)[number % 3]
        model, inputs = built(kind)
        expected = pytest_tfdebug.trace(model.eval(), **inputs)
        with torch.no_grad():  # a norm's output sums to 0: the same number more in each column would change nothing
            last = list(model.parameters())[-1]
            last.add_(torch.linspace(1, 2, last.numel()).view_as(last))
        actual = pytest_tfdebug.trace(model, **inputs)
        with _raising(model, inputs, error):
            try:
                report = pytest_tfdebug.compare(expected, actual)
            except BaseException as raised:  # noqa: BLE001 - any of them would change what the run says
                problems.append(f"{kind} ({error.__name__}): the comparison raised {raised!r:.80}")
                continue
        if report.ok or error.__name__ not in str(report):
            problems.append(f"{kind} ({error.__name__}): {str(report)[:80]}")
    return problems


#: Transforms under which force fields and score models call their own modules.
_TRANSFORMS: dict[str, Callable[[Any, Any], Any]] = {
    "jacrev": lambda function, x: torch.func.jacrev(function)(x),
    "jacfwd": lambda function, x: torch.func.jacfwd(function)(x),
    "hessian": lambda function, x: torch.func.hessian(lambda y: function(y).sum())(x),
    "functionalize": lambda function, x: torch.func.functionalize(function)(x),
    "vmap": lambda function, x: torch.func.vmap(function)(x),
}


class _Transformed(torch.nn.Module):
    def __init__(self, transform: str) -> None:
        super().__init__()
        self.inner, self.transform = torch.nn.Linear(4, 4), transform

    def forward(self, x: torch.Tensor) -> Any:
        """Call a module under a transform."""
        return _TRANSFORMS[self.transform](lambda y: torch.tanh(self.inner(y)), x)


def _transforms(folder: Path, _count: int) -> list[str]:
    """Make a golden check of a model that calls its module under each transform."""
    problems = []
    torch.func.vmap(torch.sin)(torch.ones(1))  # torch imports more the first time
    for transform in _TRANSFORMS:
        model, inputs = pytest_tfdebug.fill(_Transformed(transform).eval(), seed=0), {"x": torch.ones(3, 4)}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of torch, in forward mode
            model(**inputs)
            problems += [f"{transform}: {found}" for found in play("golden", model, inputs, folder, None)]
    return problems


#: What a golden, a class or a reason of a skip may say, and what of it may reach no terminal, log or file.
_STRANGE = {
    "::stop-commands::x": "\n::stop",
    "a ##[error]x": "##[",
    "##vso[task.complete]": "##vso[",
    "##teamcity[x]": "##teamcity[",
    "a \x1b[31mb": "\x1b",
    "a \u202eb": "\u202e",
    "needs hf_aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0dF3g": "aB3dE6",
}


def _strangers(_folder: Path, _count: int) -> list[str]:
    """Show each text through the one door, on a CI server."""
    with patch.dict("os.environ", GITHUB_ACTIONS="true", CI="true"):
        shown = {text: f"\n{leaving(text)}" for text in _STRANGE}
        commands = {text: workflow_command("error", text) for text in _STRANGE}
    problems = [f"{text!r} is shown as {shown[text]!r}" for text, bad in _STRANGE.items() if bad in shown[text]]
    return problems + [f"{text!r} in {told!r}" for text, told in commands.items() if _STRANGE[text] in told]


_SCANS = ("json", "markdown", "github")
#: Who shows texts of strangers.
_WRITERS = [*(f"scan --format {kind}" for kind in _SCANS), "terminal", "JUnit", "JSON", "page"]
_COMMON = """
class ModelTesterMixin:
    def test_it(self): ...
"""
_SKIPS = """import unittest

from ..common import ModelTesterMixin


class ModelTest(ModelTesterMixin, unittest.TestCase):
    @unittest.skip({text!r})
    def test_it(self): ...
"""
_CHECKS = """import pytest
import pytest_tfdebug
import torch
from torch import nn

class Half(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 8)
"""
_CHECK = """
class Reference{number}(Half):
    def forward(self, x):
        return self.inner(x) * len('''
{text}
''')

class Port{number}(Half):
    def forward(self, x):
        return self.inner(x).sin() * len('''
{text}
''')

def test_{number}(tf_golden, request):
    is_port = request.config.getoption("--tf-golden") != "update"
    model = Port{number}() if is_port else Reference{number}()
    tf_golden.check(pytest_tfdebug.fill(model.eval(), seed=0), x=torch.ones(3, 8))
"""


def _written(folder: Path, _count: int) -> list[str]:
    """Let the scan and failing checks show each text on a CI server, and read what they wrote."""
    models, checks = folder / "tests" / "models", folder / "test_checks.py"
    models.mkdir(parents=True)
    (folder / "tests" / "common.py").write_text(_COMMON)
    texts = {f"{text} seen{number}": bad for number, (text, bad) in enumerate(_STRANGE.items())}
    checks.write_text(_CHECKS + "".join(_CHECK.format(number=number, text=text) for number, text in enumerate(texts)))
    for number, text in enumerate(texts):
        (models / f"test_modeling_a{number}.py").write_text(_SKIPS.format(text=text))
    run = partial(
        subprocess.run,
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "GITHUB_ACTIONS": "true", "CI": "true"},
    )
    scan = (sys.executable, "-m", "pytest_tfdebug.scan", "--no-cache", "--verbose", "--format")
    shown = {f"scan --format {kind}": run((*scan, kind), check=True).stdout for kind in _SCANS}
    pytest_ = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(checks))
    run((*pytest_, "--tf-golden=update"), check=True)
    files = ("--junitxml=junit.xml", "--tf-json=checks.json", "--tf-html=pages")
    shown["terminal"] = run((*pytest_, "-vv", *files)).stdout
    written = {"JUnit": "junit.xml", "JSON": "checks.json"}
    shown |= {name: (folder / file).read_text() for name, file in written.items()}
    shown["page"] = "".join(page.read_text() for page in sorted(folder.glob("pages/**/*.html")))
    shown = {name: re.sub(r"(?m)^[ \t]+", "", text) for name, text in shown.items()}  # as GitHub's runner reads a line
    problems = [f"{name} lacks {text!r}" for name, text in product(shown, texts) if text.split()[-1] not in shown[name]]
    is_log = {name: name.startswith("scan") or name == "terminal" for name in _WRITERS}
    return problems + [
        f"{name} shows {text!r}"
        for name, (text, bad) in product(_WRITERS, texts.items())
        if bad in shown[name] and (is_log[name] or not bad.strip().startswith(("::", "##")))
    ]


def built(kind: str) -> tuple[torch.nn.Module, Inputs]:
    """Return a small seeded model of an architecture, and inputs that its forward takes."""
    if kind not in ("wav2vec2", "vit"):
        return small(kind, reversed(FAMILIES))
    model, inputs = padding_models.build(kind)
    model.config.update({"apply_spec_augment": True, "mask_time_length": 2})  # random masks of NumPy, in train mode
    return model, inputs


if __name__ == "__main__":
    sys.exit(main())
