"""A second call of both forwards, on inputs that no search has seen: what a change is worth shows there."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from pytest_tfdebug.parity.proof.forward import NOT_COMPUTED, Replay
from pytest_tfdebug.tracing.record.masks import has_two_numbers
from pytest_tfdebug.tracing.values.tape import Tape

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pytest_tfdebug.parity.proof.forward import Edit
    from pytest_tfdebug.parity.proof.search import Mend, Search
    from pytest_tfdebug.tracing.values.rerun import Rerun
    from pytest_tfdebug.values import Values

#: How many more tokens and rows the second call has: the first that both forwards take counts.
_LONGER = ((3, 1), (0, 1), (0, 0))
#: Axes of batch and tokens.
_BATCH_AND_TOKENS = 2


class Ran(NamedTuple):
    """A forward that has run."""

    values: Values
    tape: Tape

    @property
    def outputs(self) -> dict[str, torch.Tensor]:
        """What it gave, with all elements, by leaf path."""
        return {leaf: self.tape.tensors[index] for leaf, index in self.values.results}

    @property
    def weights(self) -> dict[str, torch.Tensor]:
        """The parameters that it used, by name."""
        values, tensors = self.values.values, self.tape.tensors
        return {v.name: tensors[v.index] for v in values if v.origin == "parameter" and v.index in tensors}


class SecondCall(NamedTuple):
    """Both forwards on other inputs: other numbers, and where both take them, a row and some tokens more."""

    port: Ran
    reference: Ran

    def holds(self, mend: Mend, search: Search, *, is_reverse: bool) -> bool | None:
        """Tell whether a change makes the outputs agree there, too; None where it cannot be made there."""
        own, other = (self.reference, self.port) if is_reverse else (self.port, self.reference)
        edits: dict[int, Edit] = {}
        instead: dict[int, torch.Tensor] = {}
        for change in mend.changes:
            edits |= change.edits
            instead |= change.instead or {}
        try:
            with torch.no_grad():
                changed = Replay(own.tape).run(edits, instead)
        except NOT_COMPUTED:
            return None

        def tensor(index: int) -> torch.Tensor:
            found = changed.get(index)
            return own.tape.tensors[index] if found is None else found

        return search.agrees_on(tensor, other.tape.tensors.__getitem__)


def second_call(port: Rerun, own: Tape, reference: Rerun, theirs: Tape) -> SecondCall | None:
    """Make both forwards on other inputs; None where these cannot be made, or other operators run on them.

    Args:
        port: The port and its inputs.
        own: What ran in it.
        reference: The reference and its inputs; the port must have been given the same tensors.
        theirs: What ran in that.
    """
    known = reference.tensors()
    if not _are_given(port, known):
        return None
    for tokens, rows in _LONGER:
        try:
            change = _other(known, tokens, rows)
            found = [_ran(forward, change, tape) for forward, tape in ((port, own), (reference, theirs))]
        except (_UnknownFormError, *NOT_COMPUTED):
            continue
        if found[0] is not None and found[1] is not None:
            return SecondCall(found[0], found[1])
    return None


def other_calls(port: Rerun, reference: Rerun) -> Iterator[tuple[Rerun, Rerun]]:
    """Yield both forwards on other inputs, if these can be made and the reference takes them."""
    known = reference.tensors()
    if not _are_given(port, known):
        return
    for tokens, rows in _LONGER:
        try:
            change = _other(known, tokens, rows)
            own, theirs = (forward.on(change) for forward in (port, reference))
        except _UnknownFormError:
            continue
        if theirs.values() is not None:
            yield own, theirs
            return


def sizes_of(forward: Rerun) -> Iterator[tuple[int, str]]:
    """Yield the sizes of the inputs of a forward, and what each is called."""
    tensors = forward.tensors()
    for rows, tokens in (tuple(each.shape) for each in tensors if each.dim() == _BATCH_AND_TOKENS):
        yield tokens, "its length"
        yield rows, "its number of rows"
    yield from ((size, "a size of its inputs") for each in tensors for size in each.shape)


class _UnknownFormError(ValueError):
    """An input of which it is not known how a longer one looks."""


def _ran(forward: Rerun, change: Callable[[torch.Tensor], torch.Tensor], like: Tape) -> Ran | None:
    """Make a forward on other inputs; None where it does not run the same operators there."""
    tape = Tape()
    with torch.random.fork_rng(devices=[]):
        values = forward.on(change).values(tape=tape)
    if values is None or [step.operator for step in tape.steps] != [step.operator for step in like.steps]:
        return None
    return Ran(values, tape)


def _are_given(forward: Rerun, known: Sequence[torch.Tensor]) -> bool:
    """Tell whether a forward is given none but known tensors."""
    return all(
        any(each.shape == tensor.shape and torch.equal(each, tensor) for each in known) for tensor in forward.tensors()
    )


def _other(known: Sequence[torch.Tensor], tokens: int, rows: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return what makes another input of one: in another order of tokens, and with some more of them."""
    whole = (each for each in known if each.dim() == _BATCH_AND_TOKENS and not each.is_floating_point())
    shape = next((tuple(each.shape) for each in whole), None)
    first = next((len(each) for each in known if each.dim()), 0)
    batch, length = shape or (first, None)

    def other(tensor: torch.Tensor) -> torch.Tensor:
        is_whole = tensor.dim() > 1 and len(tensor) == batch and (length is None or tensor.shape[1] == length)
        if not is_whole:
            if (tokens or rows) and tensor.dim() and not (tensor.dim() > 1 and len(tensor) == batch and not tokens):
                raise _UnknownFormError
            return tensor
        if has_two_numbers(tensor) or _is_count(tensor):
            more = tensor if not tokens else torch.cat((tensor, _continued(tensor, tokens)), 1)
            return torch.cat((more, more[:1].expand(rows, *more.shape[1:]))) if rows else more
        turned = tensor.flip(1) if tensor.dim() == _BATCH_AND_TOKENS or length is not None else tensor.flip(-1)
        longer = torch.cat((turned, turned[:, :tokens]), 1) if tokens and length is not None else turned
        return torch.cat((longer, longer[:rows].roll(1, 1))) if rows else longer

    return other


def _is_count(tensor: torch.Tensor) -> bool:
    """Tell whether rows count on: positions."""
    return not tensor.is_floating_point() and tensor.shape[1] > 1 and bool((tensor.diff(dim=1) == 1).all())


def _continued(tensor: torch.Tensor, tokens: int) -> torch.Tensor:
    last = tensor[:, -1:]
    if has_two_numbers(tensor):
        return last.expand(-1, tokens)
    return last + torch.arange(1, tokens + 1, dtype=tensor.dtype, device=tensor.device)
