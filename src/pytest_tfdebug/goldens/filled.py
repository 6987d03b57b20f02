"""Weights of ``fill`` for parameters that another version calls otherwise, or packs into one.

``fill`` gives numbers by name, so a parameter with a new name gets others than its golden has. A golden knows the name,
the shape, the hash and the place of each of its parameters; the numbers of a name that is gone are made again, held to
that hash, and given to the parameter that is used in its place.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from pytest_tfdebug.errors import counted, listed
from pytest_tfdebug.goldens.weights import drawn_alike, hash_of
from pytest_tfdebug.module_path import holder
from pytest_tfdebug.parity.pair.pairing import likeness
from pytest_tfdebug.tracing.record.modules import Selection
from pytest_tfdebug.tracing.trace import recorded_forward
from pytest_tfdebug.tracing.values.rerun import Rerun

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_tfdebug.goldens.port_call import PortCall
    from pytest_tfdebug.records import Call
    from pytest_tfdebug.tracing.file.codec import TraceFile
    from pytest_tfdebug.tracing.trace import Trace

#: Seeds of ``fill`` that are tried; nobody counts far.
_SEEDS = range(10)
_NUMBER = re.compile(r"\.\d+\.(?!.*\.\d+\.)")  # the innermost: of an expert, not of its layer


@dataclass(frozen=True)
class Gone:
    """A parameter of the golden whose name this model does not have, or several that are numbered."""

    name: str  # its name, with a star for the number
    members: tuple[torch.Tensor, ...]  # its numbers; of several those of each
    is_numbered: bool

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of each of its members, with how many there are where they are numbered."""
        own = tuple(self.members[0].shape)
        return (len(self.members), *own) if self.is_numbered else own

    @property
    def whole(self) -> torch.Tensor:
        """Its numbers as one tensor."""
        return torch.stack(self.members) if self.is_numbered else self.members[0]


@dataclass
class FilledAlike:
    """The numbers of the golden for parameters of other names."""

    values: dict[str, torch.Tensor] = field(default_factory=dict)  # by own name
    names: dict[str, tuple[str, ...]] = field(default_factory=dict)  # own name -> names in the golden
    unknown: tuple[str, ...] = ()  # own names that the golden does not have, and nothing stands for

    @contextmanager
    def applied(self, model: torch.nn.Module) -> Iterator[None]:
        """Give the model these numbers for as long as the block lasts."""
        parameters = dict(model.named_parameters())
        kept = {name: parameters[name].detach().clone() for name in self.values}
        try:
            self._give(parameters, self.values)
            yield
        finally:
            self._give(parameters, kept)

    @staticmethod
    @torch.no_grad()
    def _give(parameters: Mapping[str, torch.nn.Parameter], values: Mapping[str, torch.Tensor]) -> None:
        for name, value in values.items():
            parameters[name].copy_(value)

    @property
    def told(self) -> str:
        """Which names are other ones, in a sentence."""
        own, theirs = next(iter(self.names.items()))
        several = f" and {counted(len(theirs) - 1, 'other')}" if len(theirs) > 1 else ""
        return (
            f"{counted(len(self.names), 'parameter')} called otherwise, filled like the golden's: {own!r} like "
            f"{theirs[0]!r}{several}."
        )

    @property
    def told_unknown(self) -> list[str]:
        """Which names nothing stands for, and what to do, in sentences."""
        if not self.unknown:
            return []
        names = listed(list(map(repr, self.unknown)), 3)
        told = f"fill gives numbers by name, and {names} are no names of the golden, so they have other numbers, and "
        told += "nothing in the golden stands for them. Save the weights of the old version (model.state_dict()) and "
        return [f"{told}load them, or record again with --tf-golden=update."]


def filled_alike(
    model: torch.nn.Module,
    calls: Sequence[Call],
    recorded: Mapping[str, str],
    shapes: Mapping[str, tuple[int, ...]],
    recorded_calls: Sequence[Call],
) -> FilledAlike:
    """Return the numbers that ``fill`` gave to the golden's names, for the parameters that are used in their place.

    Those that ``fill`` gave no numbers to were loaded, and are left as they are.

    Args:
        model: The model under test; it is not changed.
        calls: Its calls, in order.
        recorded: Hash of each parameter and buffer of the golden, by name.
        shapes: Shape of each parameter of the golden that its forward used.
        recorded_calls: The golden's calls.
    """
    parameters = dict(model.named_parameters())
    least, seed = _seed_of_others(parameters, recorded)
    new = _as_used([name for name in parameters if name not in recorded], calls)
    gone = _as_used([name for name in shapes if name in recorded and name not in parameters], recorded_calls)
    if seed is None or not gone:  # these were loaded
        return FilledAlike()
    new = [name for name in new if _is_filled(name, parameters[name], seed)]
    dtype = parameters[least].dtype
    made = {name: drawn_alike(name, shapes[name], dtype, recorded[name], [seed]) for name in gone}
    left = [Gone(name, (tensor,), is_numbered=False) for name, tensor in made.items() if tensor is not None]
    found = FilledAlike()
    for take in (_taken, _packed):
        for name in (name for name in new if name not in found.values):
            parts = take(name, tuple(parameters[name].shape), left)
            if parts:
                made_of = parts[0].whole if len(parts) == 1 else _joined(parts)
                found.values[name] = made_of.to(parameters[name].device)
                found.names[name] = tuple(part.name for part in parts)
                left = [part for part in left if part not in parts]
        left = list(_numbered(left))
    found.unknown = tuple(name for name in new if name not in found.values)
    return found


def is_filled_otherwise(model: torch.nn.Module, recorded: Mapping[str, str]) -> bool:
    """Tell whether a model has parameters that ``fill`` gave numbers to under names that its golden has not."""
    return _seed_of_others(dict(model.named_parameters()), recorded)[1] is not None


def _seed_of_others(
    parameters: Mapping[str, torch.nn.Parameter], recorded: Mapping[str, str]
) -> tuple[str, int | None]:
    """Return the smallest of the parameters whose names a golden has not, and the seed of what fills it."""
    new = [name for name in parameters if name not in recorded]
    least = min(new, key=lambda name: parameters[name].numel(), default="")
    return least, next((seed for seed in _SEEDS if least and _is_filled(least, parameters[least], seed)), None)


@contextmanager
def filled_like(golden: TraceFile[Trace], model: torch.nn.Module, called: PortCall) -> Iterator[None]:
    """Give a model, for as long as the block lasts, what ``fill`` gave to the parameters of a golden.

    Args:
        golden: The golden of an older version of the model.
        model: The model; one whose parameters have the golden's names is left as it is.
        called: How it is called.
    """
    recorded, again = golden.extra["weights"], golden.trace.again
    values = None if again is None else again.values()
    if values is None or all(name in recorded for name, _ in model.named_parameters()):
        yield
        return
    args, kwargs = Rerun(model, called.args, called.kwargs, called.method).inputs()
    with torch.random.fork_rng(devices=[]):
        calls = recorded_forward(model, args, kwargs, Selection(), method=called.method).calls
    shapes = {name: shape for name, (_, shape) in values.parameters.items()}
    with filled_alike(model, calls, recorded, shapes, golden.trace.calls).applied(model):
        yield


def _is_filled(name: str, parameter: torch.Tensor, seed: int) -> bool:
    """Tell whether a parameter holds what ``fill`` gives to its own name."""
    shape, hashed = tuple(parameter.shape), hash_of(parameter.detach())
    return drawn_alike(name, shape, parameter.dtype, hashed, [seed]) is not None


def _as_used(names: Iterable[str], calls: Sequence[Call]) -> list[str]:
    """Return parameters in the order in which their modules are called."""
    first: dict[str, int] = {}
    for call in calls:
        first.setdefault(call.path, call.index)
    return sorted(names, key=lambda name: first.get(holder(name), len(calls)))


def _taken(name: str, shape: tuple[int, ...], left: Sequence[Gone]) -> list[Gone]:
    """Return the first of this shape; of its siblings (query, key, value) the one of the likeliest name."""
    same = [part for part in left if part.shape == shape]
    siblings = [part for part in same if holder(holder(part.name)) == holder(holder(same[0].name))]
    return sorted(siblings, key=lambda part: -likeness(_tail(part.name), _tail(name)))[:1]


def _tail(name: str) -> str:
    return ".".join(name.split(".")[-2:])


def _packed(_name: str, shape: tuple[int, ...], left: Sequence[Gone]) -> list[Gone]:
    """Return the first that are this shape side by side: experts in one tensor, gate and up in one."""
    for numbered in (True, False):
        axis = int(numbered)
        parts, size = [], 0
        for part in left:
            others = (part.shape[:axis], part.shape[axis + 1 :])
            if part.is_numbered != numbered or others != (shape[:axis], shape[axis + 1 :]) or len(part.shape) <= axis:
                continue
            parts.append(part)
            size += part.shape[axis]
            if size >= shape[axis]:
                break
        if parts and size == shape[axis]:
            return parts
    return []


def _joined(parts: Sequence[Gone]) -> torch.Tensor:
    return torch.cat([part.whole for part in parts], dim=int(parts[0].is_numbered))


def _numbered(parts: Sequence[Gone]) -> Iterator[Gone]:
    """Yield parameters of one shape that a number alone tells apart as one, in the place of the first."""
    groups: dict[tuple[str, tuple[int, ...]], list[Gone]] = {}
    for part in parts:
        groups.setdefault((_NUMBER.sub(".*.", part.name), part.shape), []).append(part)
    for (name, _), group in groups.items():
        if len(group) == 1 or name == group[0].name:
            yield from group
        else:
            yield Gone(name, tuple(part.members[0] for part in sorted(group, key=_by_number)), is_numbered=True)


def _by_number(part: Gone) -> int:
    found = _NUMBER.search(part.name)
    return int(found[0].strip(".")) if found else 0
