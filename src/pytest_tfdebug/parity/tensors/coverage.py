"""How much of a comparison was really compared.

A check does not pass that has held an output of the reference to nothing.
"""

from __future__ import annotations

import math
import re
from textwrap import shorten
from typing import TYPE_CHECKING

from pytest_tfdebug.errors import counted, listed
from pytest_tfdebug.parity.claims import Evidence, claim_of
from pytest_tfdebug.parity.pair.pairing import chosen, likeness
from pytest_tfdebug.parity.tensors.outputs import UNUSUAL, is_of_numbers, is_uncompared, shown
from pytest_tfdebug.parity.tensors.plain_outputs import TO_OPEN, unopened
from pytest_tfdebug.records import FAILING, Coverage, Divergence
from pytest_tfdebug.tensors import varies, widen

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_tfdebug.parity.claims import Claim
    from pytest_tfdebug.parity.tensors.compared import Compared
    from pytest_tfdebug.records import CallComparison, Culprit, LeafComparison, TensorRecord

#: Share of the calls of which fewer say little of what is inside.
_LITTLE = 0.5
_FILL = "Take inputs and weights that give more: pytest_tfdebug.fill(model) for weights."
_RETURN_MORE = (
    "Return what they are computed from as well, logits or hidden states, in the port and in the reference, or give "
    "rename= to compare the modules inside."
)


def measured_coverage(compared: Compared) -> Coverage:
    """Return which of the expected calls had an output that was compared by value.

    An expected call that returned no tensor cannot be compared, and does not count.
    """
    expected = {call.index for call in compared.expected if call.outputs}
    measured = {item.expected.index for item in compared.calls if item.expected is not None and has_output(item)}
    roots = [item for item in compared.calls if item.call.parent is None and item.expected is not None]
    return Coverage(len(expected & measured), len(expected), bool(roots) and all(map(has_output, roots)))


def has_output(item: CallComparison) -> bool:
    """Tell whether an output of a call was compared by value."""
    return any(leaf.is_measured for leaf in item.outputs)


def is_without_outputs(item: CallComparison) -> bool:
    """Tell whether none of a call's expected outputs was there."""
    return all(leaf.problem == "missing" for leaf in item.outputs)


def told_unseen(compared: Compared, coverage: Coverage) -> Iterator[str]:
    """Say what a comparison in which all agrees does not show, in sentences."""
    roots = [item for item in compared.calls if item.call.parent is None]
    some = f"{coverage.compared} of {counted(coverage.expected, 'call')}"
    outputs = [leaf for item in roots for leaf in item.outputs if leaf.expected is not None]
    unread = [shown(leaf.leaf) or "the output" for leaf in outputs if not leaf.problem and not leaf.is_measured]
    left_out = [*told_unopened(compared), *(f"Not compared: {name}, whose values cannot be read." for name in unread)]
    yield from left_out
    if not coverage.root and not left_out:
        names = listed(list(dict.fromkeys(item.call.class_name for item in roots)), 3)
        yield f"The output of {names} was not compared: no tensor of it has a counterpart. Compared: {some}. {TO_OPEN}"
    leaves = [leaf for leaf in outputs if leaf.is_measured]
    yield from compared.coarse
    yield from (_told_exchanged(leaf) for leaf in leaves if leaf.how is not None and leaf.how.endswith(UNUSUAL))
    numbers = [leaf for leaf in leaves if is_of_numbers(leaf)]
    if not leaves or any(leaf.expected is not None and _varies(leaf.expected) for leaf in numbers):
        return
    told = listed([f"{shown(leaf.leaf) or 'the output'} {leaf.dtype} {leaf.shape}" for leaf in leaves], 3)
    told = f"Compared: {told}; and {some}."
    are, advice = "empty, one number throughout, or mostly inf and nan", _FILL
    if all(math.prod(leaf.shape) == 1 for leaf in numbers):
        are, advice = "integers, booleans or single numbers", _RETURN_MORE
        if coverage.share >= _LITTLE:
            return
    yield f"Most faults would pass: the outputs agree, but they are {are}. {told} {advice}"


def _told_exchanged(leaf: LeafComparison) -> str:
    """Say that an output agrees only with axes exchanged, as width and height."""
    name = shown(leaf.leaf) or "the output"
    how = (leaf.how or "").removesuffix(UNUSUAL).rpartition(", its axes")[2]
    return (
        f"{name} agrees with its axes{how} alone: that is not one axis moved, so width and height may be exchanged. "
        "Compare sizes that differ, or permute the port's output."
    )


def _varies(record: TensorRecord) -> bool:
    """Tell whether a tensor holds different finite numbers, as far as is known."""
    held, digest = record.tensor, record.digest
    if held is not None or digest is None:
        return held is None or varies(held)
    first = widen(digest.elements[:1])
    even = math.sqrt(math.prod(record.shape)) * float(first.abs())  # the norm if all elements are the first one
    return varies(digest.elements) or (math.isfinite(even) and not math.isclose(digest.norm, even, rel_tol=1e-3))


#: What the path of a leaf begins with: a cache is told as one.
_FIRST_PART = re.compile(r"[^.\[]*")


def outputs_fail(compared: Compared) -> bool | None:
    """Tell whether the models' outputs differ; None where one of the reference's was not compared, or it has none."""
    leaves = [leaf for root in _roots(compared) for leaf in root.outputs]
    if any(leaf.problem in FAILING for leaf in leaves):
        return True
    return None if any(map(is_uncompared, leaves)) or not any(leaf.is_measured for leaf in leaves) else False


def uncompared(compared: Compared) -> list[LeafComparison]:
    """Return the outputs of the reference that were held to nothing; none where nothing at all is returned here."""
    roots = (root for root in _roots(compared) if not is_without_outputs(root))
    return [leaf for root in roots for leaf in root.outputs if is_uncompared(leaf)]


def is_of_uncompared(claim: Claim | Culprit | None) -> bool:
    """Tell whether a check fails because an output was not compared."""
    return claim is not None and claim.divergence is not None and is_uncompared(claim.divergence.comparison)


def blame_uncompared(compared: Compared) -> Claim:
    """Return the claim of a check that cannot pass: nothing here was held to an output of the reference."""
    root = next(root for root in _roots(compared) if any(map(is_uncompared, root.outputs)))
    call, leaves = root.call, [leaf for leaf in root.outputs if is_uncompared(leaf)]
    missing = listed([f"{shown(leaf.leaf)!r} {leaf.shape}" for leaf in leaves], 4)
    here = listed([f"{shown(leaf.leaf)!r} {leaf.shape}" for leaf in root.outputs if leaf.problem == "extra"], 4)
    held = listed([_told(leaf) for leaf in root.outputs if leaf.problem != "missing" and leaf.expected is not None], 4)
    wrong = f"returns nothing that could be compared with the reference's {missing}: not compared"
    if root.is_of_one_class:
        wrong = f"an output is gone: {listed([shown(leaf.leaf) for leaf in leaves], 3)}"
    why = (
        f"{f'Compared: {held}. ' if held else ''}"
        f"{f'It also returns {here}, which no output of the reference was found to be.' if here else ''}"
    ).rstrip()
    first = Divergence(call.path, call.class_name, call.call, leaves[0])
    return claim_of(call, "module", why, first, call.source, wrong=wrong, evidence=Evidence.NOT_COMPARED)


def what_to_write(compared: Compared) -> str:
    """Return the ``outputs=`` that says which output is which; empty where every output was compared."""
    left = uncompared(compared)
    if not left:
        return ""
    leaves = [leaf for root in _roots(compared) for leaf in root.outputs]
    held: dict[str, str] = {}
    for leaf in leaves:
        if leaf.expected and leaf.problem != "missing":
            held.setdefault(shown(leaf.leaf), shown(leaf.expected.leaf))
    shapes = {shown(leaf.leaf): sorted(size for size in leaf.shape if size > 1) for leaf in leaves}
    free = [shown(leaf.leaf) for leaf in leaves if leaf.problem == "extra"]
    alike = ((own, theirs) for own in free for theirs in map(shown, (leaf.leaf for leaf in left)))
    alike = (pair for pair in alike if shapes[pair[0]] == shapes[pair[1]])
    pairs = {**held, **dict(chosen(alike, lambda own, theirs: -likeness(own, theirs)))}
    pairs = pairs or {"...": shown(left[0].leaf)}
    written = ", ".join(f'"{own}": "{theirs}"' for own, theirs in pairs.items())
    return (
        f"Return it, or say which output of the port is which: outputs={{{written}}}. "
        "What it does not list is left out of the comparison."
    )


def told_outputs(compared: Compared) -> list[str]:
    """Say of each output of the reference how it was compared, in a few words."""
    leaves = [leaf for root in _roots(compared) for leaf in root.outputs if leaf.expected is not None]
    objects = [
        f"{shown(path) or 'the output'} not compared (no tensor can be found in it)"
        for root in _roots(compared)
        for path in unopened(root.expected or root.call)
    ]
    return list(dict.fromkeys([*map(_told, leaves), *objects]))


def told_unopened(compared: Compared) -> list[str]:
    """Mention what models return that was not compared, for nobody knows what it holds, in sentences."""
    calls = [root.expected or root.call for root in _roots(compared)]
    return [
        f"What {call.class_name} returns{f' as {shown(path)!r}' if path else ''} was not compared, for no tensor can "
        f"be found in it: {shorten(text, 80)}. {TO_OPEN}"
        for call in calls
        for path, text in unopened(call).items()
    ]


def _told(leaf: LeafComparison) -> str:
    expected = leaf.expected
    assert expected is not None  # noqa: S101 - only those of the reference are told
    name = shown(expected.leaf) or "the output"
    if leaf.problem == "missing":
        name = _FIRST_PART.match(name)[0] if leaf.how else name  # type: ignore[index] # it matches any text
        return f"{name} not compared ({leaf.how or 'nothing here matches it'})"
    if not leaf.problem and not leaf.is_measured:
        return f"{name} not compared (its values cannot be read)"
    kept = (
        "has no elements"
        if not math.prod(expected.shape)
        else "element by element"
        if expected.digest is None
        else f"by {expected.digest.elements.numel()} of its elements and sums over all"
    )
    own = shown(leaf.leaf)
    here = f" {own}" if own and own != name else ""
    return f"{name} {kept}" + (f" ({leaf.how}{here})" if leaf.how and leaf.how != "by name" else "")


def _roots(compared: Compared) -> Iterator[CallComparison]:
    modules = {*compared.own_paths.values()}
    return (item for item in compared.calls if item.call.parent is None and item.call.path not in modules)
