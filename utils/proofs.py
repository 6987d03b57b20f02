"""How many bugs are proved: by a change of one place that was tried, and after which every output agrees.

``catalogue``: every bug of ``fixtures/bugs.py``, the right model beside the wrong one. ``ports``: every bug of
``tests/ports`` whose package is installed. ``controls``: models that no edit makes, with noise on all elements of a
weight, or a module that gives a fixed tensor of another seed; none of these may be proved.

``mend``: the port was changed until it gave what is expected. ``reverse``: the reference, until it gave what the port
gives. ``wrong``: proved, said to be certain, and at another module than the bug's. ``median s``: of the comparison.
"""

from __future__ import annotations

import argparse
import copy
import sys
import time
import warnings
from collections import Counter
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "fixtures"), str(ROOT / "tests" / "ports")]

from corpus import all_ports  # type: ignore[import-not-found]
from judging import is_installed, judged  # type: ignore[import-not-found]

import pytest_tfdebug
from bugs import BUGS  # type: ignore[import-not-found]  # the folder is put on the path above
from models import ARCHITECTURES, IS_V5, build  # type: ignore[import-not-found]
from pytest_tfdebug.parity.explain import proof, search

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_tfdebug.records import Culprit

#: Controls whose module gives a fixed tensor; of the others a weight is noisy.
_FIXED = 9
_NOISE = 0.1
#: Seconds that may pass for each of work: only work counts here, whatever else the machine does.
_WAITING = 100.0


class Row(NamedTuple):
    """What came of one bug: its name, whom the report names, and whether that is right."""

    name: str
    culprit: Culprit | None
    is_right: bool
    seconds: float


def catalogue() -> Iterator[Callable[[], Row]]:
    """Yield a trial for each bug of the catalogue."""
    for bug in BUGS:
        if IS_V5 or not bug.needs_v5:
            yield partial(_of_catalogue, bug)


def _of_catalogue(bug: Any) -> Row:  # noqa: ANN401 - a row of the catalogue
    right, inputs = build(bug.architecture)
    wrong = copy.deepcopy(right)
    bug.inject(wrong)
    culprit, seconds = _compared(right, wrong, inputs)
    return Row(bug.name, culprit, culprit is not None and culprit.path == bug.culprit, seconds)


def ports() -> Iterator[Callable[[], Row]]:
    """Yield a trial for each bug of the ports that are installed."""
    for port in filter(is_installed, all_ports()):
        for bug in port.bugs:
            yield partial(_of_port, port, bug)


def _of_port(port: Any, bug: Any) -> Row:  # noqa: ANN401 - of the corpus
    begun = time.monotonic()
    outcome = judged(port, bug)
    is_right = outcome.verdict in ("line", "module", "unsure")
    return Row(f"{port.name}: {bug.name}", outcome.culprit, is_right, time.monotonic() - begun)


def controls() -> Iterator[Callable[[], Row]]:
    """Yield a trial for each model that no edit makes."""
    for architecture in ARCHITECTURES:
        yield partial(_of_control, architecture, _with_noise)
    for architecture in [*ARCHITECTURES][:_FIXED]:
        yield partial(_of_control, architecture, _with_a_fixed_tensor)


def _of_control(architecture: str, corrupt: Callable[[torch.nn.Module], str]) -> Row:
    right, inputs = build(architecture)
    wrong = copy.deepcopy(right)
    what = corrupt(wrong)
    culprit, seconds = _compared(right, wrong, inputs)
    return Row(f"{architecture}: {what}", culprit, is_right=False, seconds=seconds)


def _with_noise(model: torch.nn.Module) -> str:
    """Add noise to all elements of the weight of the linear module in the middle."""
    path, module = _middle(model)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        module.weight += _NOISE * torch.randn(module.weight.shape, generator=generator)
    return f"noise in {path}"


def _with_a_fixed_tensor(model: torch.nn.Module) -> str:
    """Let the linear module in the middle give a tensor of another seed, whatever it is given."""
    path, module = _middle(model)

    def forward(given: torch.Tensor) -> torch.Tensor:
        generator = torch.Generator().manual_seed(1)
        return torch.randn(*given.shape[:-1], module.weight.shape[0], generator=generator)

    module.forward = forward
    return f"another seed in {path}"


def _middle(model: torch.nn.Module) -> tuple[str, Any]:
    found = [(path, module) for path, module in model.named_modules() if isinstance(module, torch.nn.Linear)]
    if not found:  # gpt2 has modules of its own for that
        found = [(path, module) for path, module in model.named_modules() if type(module).__name__ == "Conv1D"]
    return found[len(found) // 2]


def _compared(right: torch.nn.Module, wrong: torch.nn.Module, inputs: dict[str, Any]) -> tuple[Culprit | None, float]:
    expected, actual = pytest_tfdebug.trace(right, **inputs), pytest_tfdebug.trace(wrong, **inputs)
    begun = time.monotonic()
    culprit = pytest_tfdebug.compare(expected, actual, internal="fail").culprit
    return culprit, time.monotonic() - begun


SETS = {"catalogue": catalogue, "ports": ports, "controls": controls}


def main(arguments: list[str] | None = None) -> None:
    """Print a line for each set."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("sets", nargs="*", help="which sets; all of them if none is named")
    parser.add_argument("--seconds", type=float, default=proof.SECONDS, help="how long each is explained")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="every N-th bug only")
    parser.add_argument("--only", default="", metavar="TEXT", help="bugs with this in their names only")
    parser.add_argument("--show", action="store_true", help="print what came of each")
    options = parser.parse_args(arguments)
    proof.SECONDS = options.seconds
    search.WAITING = _WAITING
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    rows = {name: _rows(SETS[name], options) for name in options.sets or SETS}
    print(f"{'':10}  bugs  proved  mend  reverse  certain  wrong  median s")
    for name, found in rows.items():
        counts = Counter(kind for row in found for kind in _kinds(row))
        cells = "  ".join(f"{counts[kind]:{len(kind)}}" for kind in ("proved", "mend", "reverse", "certain", "wrong"))
        print(f"{name:10}  {len(found):4}  {cells}  {median(row.seconds for row in found):8.1f}")


def _rows(trials: Callable[[], Iterator[Callable[[], Row]]], options: argparse.Namespace) -> list[Row]:
    found = []
    for trial in [*trials()][:: options.every]:
        if options.only and not any(options.only in str(getattr(each, "name", each)) for each in trial.args):  # type: ignore[attr-defined] # partial
            continue
        try:
            row = trial()
        except (AssertionError, ValueError) as error:
            print(f"not a bug: {error}")
            continue
        found.append(row)
        if options.show:
            told = row.culprit and f"{row.culprit.path}, {row.culprit.source}: {row.culprit.proved}"
            print(f"{' '.join(_kinds(row)):26} {row.seconds:5.1f} s  {row.name}: {told}", flush=True)
    return found


def _kinds(row: Row) -> list[str]:
    """Return the columns that a bug counts in."""
    culprit = row.culprit
    if culprit is None or not culprit.proved:
        return []
    kinds = ["proved", "reverse" if culprit.proved.startswith("the reference") else "mend"]
    return [
        *kinds,
        *(["certain"] if culprit.certain else []),
        *(["wrong"] if culprit.certain and not row.is_right else []),
    ]


if __name__ == "__main__":
    main()
