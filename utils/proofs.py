"""How many bugs are proved: by a change of one place that was tried, and after which every output agrees.

``catalogue``: every bug of ``fixtures/bugs.py``, the right model beside the wrong one. ``ports``: every bug of
``tests/ports`` whose package is installed. ``controls``: models that no edit makes, with noise on all elements of a
weight, or a module that gives a fixed tensor of another seed; none of these may be proved.

``mend``: the port was changed until it gave what is expected. ``reverse``: the reference, until it gave what the port
gives. ``wrong``: proved, said to be certain, and at another module than the bug's. ``median s``: of the comparison.
"""

from __future__ import annotations

import copy
import time
from collections import Counter
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

import command

# isort: split
from corpus import all_ports
from judging import is_installed, judged

from bugs import BUGS
from models import ARCHITECTURES, IS_V5, build
from pytest_tfdebug import compare, trace
from pytest_tfdebug.parity.explain import proof, search

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

    from pytest_tfdebug.records import Culprit

#: Controls whose module gives a fixed tensor; of the others a weight is noisy.
_FIXED = 9
_NOISE = 0.1
#: Seconds that may pass for each of work: only work counts here, whatever else the machine does.
_WAITING = 100.0
_KINDS = ("proved", "mend", "reverse", "certain", "wrong")


class Row(NamedTuple):
    """What came of one bug: its name, whom the report names, and whether that is right."""

    name: str
    culprit: Culprit | None
    is_right: bool
    seconds: float

    @property
    def kinds(self) -> list[str]:
        """The columns that it counts in."""
        culprit = self.culprit
        if culprit is None or not culprit.proved:
            return []
        found = ["proved", "reverse" if culprit.proved.startswith("the reference") else "mend"]
        found += ["certain"] if culprit.certain else []
        return found + (["wrong"] if culprit.certain and not self.is_right else [])


Trial = tuple[str, "Callable[[], Row]"]


def catalogue() -> Iterator[Trial]:
    """Yield a trial for each bug of the catalogue."""
    for bug in BUGS:
        if IS_V5 or not bug.needs_v5:
            yield bug.name, partial(_of_models, bug.name, bug.architecture, bug.inject, bug.culprit)


def ports() -> Iterator[Trial]:
    """Yield a trial for each bug of the ports that are installed."""
    for port in filter(is_installed, all_ports()):
        for bug in port.bugs:
            yield f"{port.name}: {bug.name}", partial(_of_port, port, bug)


def _of_port(port: Any, bug: Any) -> Row:  # noqa: ANN401 - of the corpus
    begun = time.monotonic()
    outcome = judged(port, bug)
    is_right = outcome.verdict in ("line", "module", "unsure")
    return Row(f"{port.name}: {bug.name}", outcome.culprit, is_right, time.monotonic() - begun)


def controls() -> Iterator[Trial]:
    """Yield a trial for each model that no edit makes."""
    fixed = [*ARCHITECTURES][:_FIXED]
    for what, corrupt, names in (("noise", _with_noise, ARCHITECTURES), ("another seed", _with_a_fixed_tensor, fixed)):
        for name in names:
            yield f"{name}: {what}", partial(_of_models, f"{name}: {what}", name, corrupt)


def _with_noise(model: torch.nn.Module) -> None:
    """Add noise to all elements of the weight of the linear module in the middle."""
    weight = _middle(model).weight
    with torch.no_grad():
        weight += _NOISE * torch.randn(weight.shape, generator=torch.Generator().manual_seed(1))


def _with_a_fixed_tensor(model: torch.nn.Module) -> None:
    """Let the linear module in the middle give a tensor of another seed, whatever it is given."""
    module = _middle(model)

    def forward(given: torch.Tensor) -> torch.Tensor:
        generator = torch.Generator().manual_seed(1)
        return torch.randn(*given.shape[:-1], module.weight.shape[0], generator=generator)

    module.forward = forward


def _middle(model: torch.nn.Module) -> Any:  # noqa: ANN401 - a module with a weight
    found: list[Any] = [module for module in model.modules() if isinstance(module, torch.nn.Linear)]
    if not found:  # gpt2 has modules of its own for that
        found = [module for module in model.modules() if type(module).__name__ == "Conv1D"]
    return found[len(found) // 2]


def _of_models(name: str, architecture: str, inject: Callable[[torch.nn.Module], object], where: str = "-") -> Row:
    right, inputs = build(architecture)
    wrong = copy.deepcopy(right)
    inject(wrong)
    expected, actual = trace(right, **inputs), trace(wrong, **inputs)
    begun = time.monotonic()
    culprit = compare(expected, actual, internal="fail").culprit
    return Row(name, culprit, culprit is not None and culprit.path == where, time.monotonic() - begun)


SETS = {"catalogue": catalogue, "ports": ports, "controls": controls}


def main() -> None:
    """Print a line for each set."""
    parser = command.parser(__doc__, "every", "show")
    parser.add_argument("sets", nargs="*", help="which sets; all of them if none is named")
    parser.add_argument("--seconds", type=float, default=proof.SECONDS, help="how long each is explained")
    parser.add_argument("--only", default="", metavar="TEXT", help="bugs with this in their names only")
    options = parser.parse_args()
    proof.SECONDS, search.WAITING = options.seconds, _WAITING
    command.quiet()
    table = command.Table("bugs of", "bugs", *_KINDS, "median s")
    for name in options.sets or SETS:
        rows = list(_rows(SETS[name](), options))
        counts = Counter(kind for row in rows for kind in row.kinds)
        middle = median(row.seconds for row in rows) if rows else 0.0
        table.add(name, {**counts, "bugs": len(rows), "median s": middle})


def _rows(trials: Iterator[Trial], options: argparse.Namespace) -> Iterator[Row]:
    for name, trial in [*trials][:: options.every]:
        if options.only not in name:
            continue
        try:
            row = trial()
        except (AssertionError, ValueError) as error:
            print(f"not a bug: {error}")
            continue
        if options.show:
            told = row.culprit and f"{row.culprit.path}, {row.culprit.source}: {row.culprit.proved}"
            print(f"{' '.join(row.kinds):26} {row.seconds:5.1f} s  {row.name}: {told}", flush=True)
        yield row


if __name__ == "__main__":
    main()
