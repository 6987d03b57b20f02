"""A recorded forward: the ordered tree of its calls, with their tensors."""

from __future__ import annotations

from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Protocol

from pytest_tfdebug.errors import listed

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from pytest_tfdebug.records import Call, Direction, TensorRecord
    from pytest_tfdebug.values import Values


class Computed(Protocol):
    """What the operators of a forward computed: recorded, or by making the forward once more."""

    def attributes(self) -> dict[str, dict[str, str]]:
        """Return what the modules hold that is no tensor, by module path and name."""

    def values(self) -> Values | None:
        """Return the table; None where the forward cannot be made as it was."""


@dataclass(eq=False, repr=False)
class RecordedForward:
    """The ordered tree of the calls of one forward, with their tensors."""

    model_class: str  # class name of the root
    calls: list[Call] = field(default_factory=list)  # every recorded call, as they began
    notes: tuple[str, ...] = ()  # what could not be seen, in sentences
    aliases: dict[str, tuple[str, ...]] = field(default_factory=dict)  # other paths of a shared module, by its path
    modules: tuple[str, ...] = ()  # every module path of the model, called or not, the root left out
    unrecorded: tuple[str, ...] = ()  # those of them that were left out, or could not be seen
    # what its operators computed, recorded or by one more forward of the model, which a live trace holds
    again: Computed | None = field(default=None, repr=False)
    # of a model in half precision, the same forward in float32, where that was made
    wide: RecordedForward | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.calls)

    def __iter__(self) -> Iterator[Call]:
        return iter(self.calls)

    def __getitem__(self, name: str) -> Call:
        """Return a call by module path, any of them for a shared module; ``path#1`` is the module's second call."""
        __tracebackhide__ = True
        path, _, number = name.partition("#")
        canonical = next((own for own, others in self.aliases.items() if path in others), path)
        for call in self.calls:
            if call.path == canonical and str(call.call) == (number or "0"):
                return call
        near = [call.name for call in self.calls if call.name.endswith(f".{name}")]
        near = near or get_close_matches(name, [call.name for call in self.calls], 3)
        hint = f". Did you mean {listed([repr(each) for each in near], 3)}?" if near else ""
        raise KeyError(f"{name!r}: no such call among the {len(self.calls)} of this trace{hint}")

    def records(self) -> Iterator[TensorRecord]:
        """Yield every recorded tensor, call by call: inputs, what was written into caches, outputs."""
        for call in self.calls:
            yield from call.inputs
            yield from (write.record for write in call.writes)
            yield from call.outputs or ()

    def dtypes(self) -> frozenset[str]:
        """Return the names of the dtypes of all recorded tensors."""
        return frozenset(record.dtype for record in self.records())

    def tensor(self, path: str, call: int, direction: Direction, leaf: str) -> torch.Tensor | None:
        """Return a leaf of the ``call``-th call of a module; None where there is none, or its elements are not kept."""
        found = (each for each in self.calls if (each.path, each.call) == (path, call))
        return next((it.tensor for each in found for it in each.leaves(direction) if it.leaf == leaf), None)

    def has_tensors(self) -> bool:
        """Tell whether anything is kept of any tensor."""
        return any(record.held is not None for record in self.records())
