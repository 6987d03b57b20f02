"""A second call of both forwards, on inputs that no search has seen: what a change is worth shows there."""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

import torch

from pytest_tfdebug.parity.closeness import AGREE
from pytest_tfdebug.parity.proof.elsewhere import Elsewhere, Ran, after
from pytest_tfdebug.parity.proof.forward import NOT_COMPUTED
from pytest_tfdebug.tracing.record.masks import has_two_numbers
from pytest_tfdebug.tracing.values.tape import Tape
from pytest_tfdebug.values import Fingerprint, distance

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pytest_tfdebug.parity.proof.changes import Change
    from pytest_tfdebug.parity.proof.search import Mend, Search
    from pytest_tfdebug.tracing.values.rerun import Rerun

#: How many more tokens and rows the second call has: the first that both forwards take counts.
_LONGER = ((3, 1), (0, 1), (0, 0))
#: Axes of batch and tokens.
_BATCH_AND_TOKENS = 2
#: Values behind a change that are looked at there, the nearest first.
_LOOKED_AT = 8


class SecondCall(NamedTuple):
    """Both forwards on other inputs: other numbers, and where both take them, a row and some tokens more."""

    port: Elsewhere
    reference: Elsewhere
    is_alike: bool  # whether the same operators run as on the inputs that were searched
    again: Rerun  # the port's forward there

    def holds(self, mend: Mend, search: Search, *, is_reverse: bool) -> bool | None:
        """Tell whether a change makes the outputs agree there, too; None where that cannot be told."""
        own, other = (self.reference, self.port) if is_reverse else (self.port, self.reference)
        try:
            agrees = search.agrees_on(own.tensor_after(mend.changes), other.tensor)
        except (KeyError, *NOT_COMPUTED):
            return None
        return agrees or (False if self.is_alike else None)  # steps may be taken for others where others run

    def holds_run(self, mend: Mend, search: Search) -> bool | None:
        """Tell the same of a change of the port, from its forward run again with it."""
        try:
            changed = after(self.again, self.port.ran, map(self.port.there, mend.changes))
            leaves = {index: leaf for leaf, index in search.forward.side.table.results}
            return search.agrees_on(lambda index: changed[leaves[index]], self.reference.tensor)
        except Exception:  # noqa: BLE001 - it is the model's own code that runs
            return None

    def gives(
        self,
        changes: Sequence[Change],
        found: Mapping[int, int],
        given: Iterable[tuple[int, Iterable[int]]],
    ) -> bool | None:
        """Tell whether changes of the port give the reference's values there, too; None where that cannot be told.

        Args:
            changes: The changes.
            found: Values of the reference that they give on the inputs that were searched -> those of the port.
            given: What the first step that is changed is given that is right, each with the reference's values like it.
        """
        nearest = sorted(found.items(), key=itemgetter(1))[:_LOOKED_AT]
        try:
            if not all(any(self._are_alike(self.port.tensor(own), each) for each in others) for own, others in given):
                return None  # another fault shows on these inputs alone
            now = self.port.tensor_after(changes)
            right = [self._are_alike(now(own), other) for other, own in nearest]
        except (KeyError, *NOT_COMPUTED):
            return None
        return 2 * sum(right) > len(right) or (False if self.is_alike else None)

    def after(self, changes: Sequence[Change], given: Mapping[int, int]) -> SecondCall | None:
        """Return them with some changes of the port made for good; None where that cannot be done.

        ``given`` are values of the port -> those of the reference that stand for them.
        """
        try:
            return self._replace(
                port=self.port.after(changes, {own: self.reference.tensor(other) for own, other in given.items()})
            )
        except (KeyError, *NOT_COMPUTED):
            return None

    def _are_alike(self, own: torch.Tensor, other: int) -> bool:
        return distance(Fingerprint.of(own), Fingerprint.of(self.reference.tensor(other))) <= AGREE


class OtherInputs:
    """Inputs that were not searched: both forwards are made on them once a change is found."""

    def __init__(self, ran: tuple[Ran, Ran], again: tuple[Rerun, Rerun] | None) -> None:
        self.ran, self.again = ran, again

    @cached_property
    def call(self) -> SecondCall | None:
        """Both forwards there; None where these cannot be made."""
        return None if self.again is None else second_call(*self.again, *self.ran)

    def after(self, changes: Sequence[Change], given: Mapping[int, int] | None) -> OtherInputs:
        """Return them with some changes of the port made for good, see :meth:`SecondCall.after`; none without values.

        ``given`` is None where values were given that are not known there.
        """
        new = OtherInputs(self.ran, self.again)
        new.call = None if self.call is None or given is None else self.call.after(changes, given)
        return new

    def judged(self, mends: list[Mend], search: Search, *, is_reverse: bool) -> list[tuple[Mend, bool | None]]:
        """Return the changes that hold there, as far as that is known; else all, each with whether it does."""
        if self.call is None:
            return [(mend, None) for mend in mends]
        found = [(mend, self.call.holds(mend, search, is_reverse=is_reverse)) for mend in mends]
        return [each for each in found if each[1]] or [each for each in found if each[1] is None] or found

    def holds_run(self, mend: Mend, search: Search) -> bool | None:
        """Tell whether a change of the port holds there, from its forward run again with it; None where unknown."""
        return None if self.call is None else self.call.holds_run(mend, search)

    def told_narrow(self, mend: Mend) -> str:
        """Say what mends these inputs alone, and of which size of them it has its number."""
        new, told = mend.change.new, f"{mend.change.text} for this input alone"
        if self.again is None or mend.change.kind != "number":
            return told
        sizes = _sizes_of(self.again[0])
        return next((f"{told}: {new} is {name}" for size, name in sizes if _is_number(new, size)), told)


def _is_number(text: str, number: float) -> bool:
    try:
        return float(text) == number
    except ValueError:
        return False


def second_call(port: Rerun, reference: Rerun, own: Ran, theirs: Ran) -> SecondCall | None:
    """Make both forwards on other inputs; None where these cannot be made.

    Args:
        port: The port and its inputs.
        reference: The reference and its inputs; the port must have been given the same tensors.
        own: What ran in the port.
        theirs: What ran in the reference.
    """
    found = None
    for forwards in _on_others(port, reference):
        ran = [_ran(each) for each in forwards]
        if ran[0] is not None and ran[1] is not None:
            is_alike = (ran[0].operators, ran[1].operators) == (own.operators, theirs.operators)
            call = SecondCall(Elsewhere.of(own, ran[0]), Elsewhere.of(theirs, ran[1]), is_alike, forwards[0])
            if is_alike:
                return call
            found = found or call
    return found


def other_calls(port: Rerun, reference: Rerun) -> Iterator[tuple[Rerun, Rerun]]:
    """Yield both forwards on other inputs, if these can be made and the reference takes them."""
    yield from islice((each for each in _on_others(port, reference) if each[1].values() is not None), 1)


def _on_others(port: Rerun, reference: Rerun) -> Iterator[tuple[Rerun, Rerun]]:
    """Yield both forwards on other inputs, the longest first."""
    known = reference.tensors()
    if not _are_given(port, known):
        return
    for tokens, rows in _LONGER:
        with suppress(UnknownFormError):
            change = turned(known, tokens, rows)
            yield port.on(change), reference.on(change)


def _sizes_of(forward: Rerun) -> Iterator[tuple[int, str]]:
    """Yield the sizes of the inputs of a forward, and what each is called."""
    tensors = forward.tensors()
    for rows, tokens in (tuple(each.shape) for each in tensors if each.dim() == _BATCH_AND_TOKENS):
        yield tokens, "its length"
        yield rows, "its number of rows"
    yield from ((size, "a size of its inputs") for each in tensors for size in each.shape)


class UnknownFormError(ValueError):
    """An input of which it is not known how a longer one looks."""


def _ran(forward: Rerun) -> Ran | None:
    tape = Tape()
    with torch.random.fork_rng(devices=[]):
        values = forward.values(tape=tape)
    return None if values is None else Ran(values, tape)


def _are_given(forward: Rerun, known: Sequence[torch.Tensor]) -> bool:
    """Tell whether a forward is given none but known tensors."""
    return all(
        any(each.shape == tensor.shape and torch.equal(each, tensor) for each in known) for tensor in forward.tensors()
    )


def turned(known: Sequence[torch.Tensor], tokens: int, rows: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return what makes another input of one: in another order of tokens, and with some more of them."""
    whole = (each for each in known if each.dim() == _BATCH_AND_TOKENS and not each.is_floating_point())
    shape = next((tuple(each.shape) for each in whole), None)
    first = next((len(each) for each in known if each.dim()), 0)
    batch, length = shape or (first, None)
    if tokens and length is None:  # of series, sounds and images nobody knows how they go on
        raise UnknownFormError

    def other(tensor: torch.Tensor) -> torch.Tensor:
        is_whole = tensor.dim() > 1 and len(tensor) == batch and (length is None or tensor.shape[1] == length)
        if not is_whole:
            if (tokens or rows) and tensor.dim() and not (tensor.dim() > 1 and len(tensor) == batch and not tokens):
                raise UnknownFormError
            is_by_row = rows and tensor.dim() > 1 and len(tensor) == batch
            return torch.cat((tensor, tensor[:rows])) if is_by_row else tensor
        if has_two_numbers(tensor) or is_count(tensor):
            more = tensor if not tokens else torch.cat((tensor, _continued(tensor, tokens)), 1)
            return torch.cat((more, more[:1].expand(rows, *more.shape[1:]))) if rows else more
        back = tensor.flip(1) if tensor.dim() == _BATCH_AND_TOKENS or length is not None else tensor.flip(-1)
        longer = back if length is None else back[:, torch.arange(length + tokens) % length]
        return torch.cat((longer, longer[:rows].roll(1, 1))) if rows else longer

    return other


def is_count(tensor: torch.Tensor) -> bool:
    """Tell whether rows count on: positions."""
    return not tensor.is_floating_point() and tensor.shape[1] > 1 and bool((tensor.diff(dim=1) == 1).all())


def _continued(tensor: torch.Tensor, tokens: int) -> torch.Tensor:
    last, features = tensor[:, -1:], tensor.shape[_BATCH_AND_TOKENS:]
    if has_two_numbers(tensor):
        return last.expand(-1, tokens, *features)
    steps = torch.arange(1, tokens + 1, dtype=tensor.dtype, device=tensor.device)
    return last + steps.view(-1, *(1 for _ in features))
