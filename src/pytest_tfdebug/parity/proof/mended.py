"""The changes that mend two forwards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_tfdebug.parity.proof.elsewhere import Elsewhere, Ran
from pytest_tfdebug.parity.proof.forward import NOT_COMPUTED

if TYPE_CHECKING:
    from pytest_tfdebug.parity.proof.changes import Change


@dataclass(frozen=True)
class Mended:
    """Changes after which every output of two forwards agrees."""

    ran: tuple[Ran, Ran]  # the port and the reference, unchanged
    port: tuple[tuple[Change, ...], ...] = ()  # changes of the port; each set is of the forward after those before it
    reference: tuple[Change, ...] = ()  # changes of the reference, which then gives what the port gives

    def on(self, port: Ran, reference: Ran) -> tuple[Elsewhere, Elsewhere] | None:
        """Return both forwards on other inputs after the same changes; None where a step to change is not run there."""
        own, other = Elsewhere.of(self.ran[0], port), Elsewhere.of(self.ran[1], reference)
        try:
            for changes in filter(None, self.port):
                own = own.after(changes)
            return own, other.after(self.reference) if self.reference else other
        except (KeyError, *NOT_COMPUTED):
            return None
