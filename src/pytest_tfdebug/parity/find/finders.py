"""The finders: each looks at one kind of evidence of a comparison, and claims who may be to blame.

A finder is a function from a :class:`View` to claims. It knows no other finder and decides nothing: the tables of
:mod:`pytest_tfdebug.parity.settle` say which claim wins. To add a finder, write it, put it into :data:`FINDERS`, and
give its evidence a row there.

Example: in a Llama, ``eps`` of one norm is 0.01 instead of 1e-06.

| finder | claims |
|---|---|
| calls | ``model.layers.0.input_layernorm``: its inputs agree, its output does not |
| statements | narrows that to the line that reads ``eps``, an attribute that is not the reference's |
| values | the same line: the first value that the reference never computes |
| proofs | narrows that: with ``eps`` 1e-06 instead of 0.01 every output agrees |
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from pytest_tfdebug.parity.calls.call_notes import told_adapters
from pytest_tfdebug.parity.calls.call_tree import CallTree, call_around
from pytest_tfdebug.parity.claims import Evidence
from pytest_tfdebug.parity.find.made_with import made_otherwise as modules_made_otherwise
from pytest_tfdebug.parity.find.one_statement import one_statement
from pytest_tfdebug.parity.find.returned import where_returned
from pytest_tfdebug.parity.tensors.coverage import blame_uncompared, is_of_uncompared, uncompared

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_tfdebug.parity.claims import Claim
    from pytest_tfdebug.parity.find.values import Explained
    from pytest_tfdebug.parity.tensors.compared import Compared
    from pytest_tfdebug.records import CallComparison


@dataclass(frozen=True)
class View:
    """A comparison as finders see it."""

    compared: Compared  # the calls, side by side
    called: Claim | None  # whom these blame; None where they agree
    is_named: bool  # whether the two sides are the same code, under the same names
    fails: bool | None  # whether the roots' outputs differ; None if they could not be matched
    look: Explained | None = None  # what the values of both say; None where they were not asked
    paired: Claim | None = None  # whom calls blame under names that were found; None where none were, or these agree

    @property
    def is_pointless(self) -> bool:
        """Whether nothing can be found below the roots: an output was held to nothing, or no values are known."""
        return self.look is None or (self.fails is None and is_of_uncompared(self.called))

    @property
    def item(self) -> CallComparison | None:
        """The call that is blamed, beside the expected one; None where there is none."""
        path = self.called.path if self.called is not None else None
        return next((item for item in self.compared.calls if item.call.path == path and item.expected), None)

    @property
    def wrong_weights(self) -> dict[str, str]:
        """The parameters of the module that is blamed that are not those of the reference's module of its name."""
        item, pair = self.item, self.look.pair if self.look is not None else None
        if item is None or item.expected is None or pair is None:
            return {}
        return pair.wrong_weights(*(("", "") if item.call.parent is None else (item.call.path, item.expected.path)))


Finder: TypeAlias = "Callable[[View], Iterator[Claim]]"


def calls(view: View) -> Iterator[Claim]:
    """Claim the module, or the lines between two calls, where the first output outside tolerance arose.

    Names that do not pair tell little: then it claims only what values do not tell. Of an output that is gone it claims
    the statement that should return it.
    """
    pair = view.look.pair if view.look is not None else None
    for claim in _of_calls(view):
        is_gone = claim.evidence is Evidence.NOT_COMPARED
        yield (
            where_returned(claim, view.compared, pair.reference.table if pair is not None else None)
            if is_gone
            else claim
        )


def made_otherwise(view: View) -> Iterator[Claim]:
    """Claim the line that makes a module with another argument, for which it calls what the reference's does not.

    Example: ``Convolution(4, 8)`` calls a norm, and ``Convolution(4, 8, conv_only=True)`` of the reference none.
    """
    claim, look = view.called, view.look
    if claim is None or claim.kind not in ("not-called", "extra-call") or look is None or look.again is None:
        return
    port, reference = (side.model for side in look.again)
    for made in modules_made_otherwise(port, reference, view.compared.own_paths):
        is_of_call = any(f"{claim.path}.".startswith(f"{path}.") for path in made.partners)
        if is_of_call and made.reference is not None:
            around = call_around([item.call for item in view.compared.calls], made.around)
            yield replace(
                claim,
                path=around.path,
                class_name=around.class_name,
                kind="module",
                wrong=made.told,
                source=made.lines,
                reference=made.reference,
                narrows=claim,
            )


def _of_calls(view: View) -> Iterator[Claim]:
    claim, look = view.called, view.look
    has_nothing = view.fails is None and bool(uncompared(view.compared))
    if view.is_named:
        if claim is not None:
            is_of_nothing = look is not None and view.fails is None and is_of_uncompared(claim)
            yield _gone(view, replace(claim, evidence=Evidence.NOT_COMPARED)) if is_of_nothing else claim
    elif look is not None and look.claim is not None:
        return
    elif has_nothing:
        yield blame_uncompared(view.compared)
    elif claim is not None and (look is None or not look.is_known):
        yield claim
    elif claim is not None and view.fails:
        yield replace(claim, evidence=Evidence.UNNAMED_CALLS)


def _gone(view: View, claim: Claim) -> Claim:
    """Return a claim on an output that was not compared, at the statement of the port that is not the reference's."""
    item, look = view.item, view.look
    if item is None or look is None or not item.is_of_one_class:
        return claim
    found = one_statement(claim, view.compared, look)
    return replace(found, evidence=claim.evidence, narrows=None) if found.source != claim.source else claim


def weights(view: View) -> Iterator[Claim]:
    """Narrow the module of the calls to its parameters, where these are not the reference's of the same name."""
    claim, look, wrong = view.called, view.look, view.wrong_weights
    if not view.is_named or view.is_pointless or claim is None or look is None or look.pair is None or not wrong:
        return
    known = look.pair.weights
    is_sure = all(each not in known.unknown or known.is_sure(each) for each in wrong)
    yield replace(
        claim,
        kind="weights",
        evidence=Evidence.WEIGHT if is_sure else Evidence.NAMED_WEIGHT,
        wrong="",
        why=" ".join(wrong.values()),
        weights=tuple(wrong),
        narrows=claim,
    )


def statements(view: View) -> Iterator[Claim]:
    """Narrow the lines of the calls to the statement that values, texts or attributes single out.

    Of an adapter no line is wrong, and where another function does what a module does there, values tell the line.
    """
    claim, look, item = view.called, view.look, view.item
    if not view.is_named or view.is_pointless or claim is None or look is None or view.wrong_weights:
        return
    is_adapter = item is not None and bool(told_adapters(CallTree(view.compared), item))
    is_left_out = look.finding is not None and look.finding.fault == "left-out"
    if not is_adapter and (claim.evidence is not Evidence.OTHER_CALL or look.claim is None or is_left_out):
        yield one_statement(claim, view.compared, look)


def values(view: View) -> Iterator[Claim]:
    """Claim the line of the first value of the port that the reference never computes, whatever its modules' names."""
    if view.look is not None and view.look.claim is not None:
        yield view.look.claim


def found_calls(view: View) -> Iterator[Claim]:
    """Claim the module that calls blame under names that were found, where values blame nothing in it.

    Calls compare elements, and values a few numbers of each tensor: errors of both signs, as rounding makes them, are
    plain in elements and cancel out in sums.
    """
    claim, look = view.paired, view.look
    if claim is None or look is None or look.claim is None or claim.evidence is not Evidence.CALLS:
        return
    is_inside = f"{look.claim.path}.".startswith(f"{claim.path}.")
    if claim.kind in ("module", "glue") and not is_inside:
        yield replace(claim, evidence=Evidence.FOUND_CALLS)


def proofs(view: View) -> Iterator[Claim]:
    """Claim the lines of which a change was tried after which every output agrees."""
    yield from view.look.proofs if view.look is not None else ()


FINDERS: tuple[Finder, ...] = (made_otherwise, calls, weights, statements, values, found_calls, proofs)


def find(view: View) -> list[Claim]:
    """Return what all finders claim of a comparison."""
    return [claim for finder in FINDERS for claim in finder(view)]
