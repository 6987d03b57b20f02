"""What is said of compared calls, in sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_tfdebug.errors import listed
from pytest_tfdebug.parity.calls.call_tree import is_identity, other_arguments
from pytest_tfdebug.parity.pair.pairing import leaf_key, leaf_parts
from pytest_tfdebug.parity.tensors.outputs import shown
from pytest_tfdebug.records import FAILING, FORMS
from pytest_tfdebug.tracing.record.modules import adapted_layer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_tfdebug.parity.calls.call_tree import CallTree
    from pytest_tfdebug.parity.tensors.compared import Compared
    from pytest_tfdebug.records import Call, CallComparison, LeafComparison


def given_to_model(roots: list[CallComparison]) -> Iterator[str]:
    """Mention what models are given, beside tensors, that the expected ones are not, and masks in other numbers."""
    for leaf in (leaf for root in roots for leaf in root.inputs if leaf.problem == "recoded"):
        yield (
            f"{leaf.leaf} is a mask with other numbers than in the expected forward. If both models read them the same "
            "way, this one was given another mask."
        )
    for root in roots:
        if given := other_arguments(root, is_strict=True):
            yield told_arguments(root.call, given)


def harmless_differences(compared: Compared) -> Iterator[str]:
    """Mention inputs that differ and, of modules with names in common, calls that one side alone makes."""
    changed = [item.call.path for item in compared.calls if any(leaf.problem in FAILING for leaf in item.inputs)]
    unpaired = [item.call for item in compared.calls if item.expected is None]
    layers = {adapted_layer(call.path) for call in (*unpaired, *compared.unpaired_expected)} - {None}
    of_adapters = tuple(f"{layer}." for layer in layers)  # said in a note of the forward's own
    absent = [
        call for call in compared.unpaired_expected if not is_identity(call) and not call.path.startswith(of_adapters)
    ]
    extra = [call for call in unpaired if not call.path.startswith(of_adapters)]
    is_named = 2 * len(compared.unpaired_expected) <= len(compared.expected)
    if changed:
        yield f"Inputs of {len(changed)} calls differ and change no output, the first of {changed[0]!r}."
    if absent and is_named:
        yield f"Never called here: {names(absent)}."
    if extra and is_named:
        yield f"Called only here: {names(extra)}."


def called_otherwise(compared: Compared) -> Iterator[str]:
    """Mention outputs of the golden's classes that have another name here, and the same values."""
    found: dict[tuple[str, str], int] = {}
    for item in (item for item in compared.calls if item.is_of_one_class):
        for leaf in item.outputs:
            if leaf.expected is not None and not leaf.problem and leaf_key(leaf.leaf) != leaf_key(leaf.expected.leaf):
                names = _apart_from_ends(leaf.expected.leaf, leaf.leaf)
                found[names] = found.get(names, 0) + 1
    told = listed([f"{old!r} is {new!r}" for old, new in found if old and new], 3)
    if told:
        yield f"Only called otherwise here, with the expected values: {told}."


def _apart_from_ends(old: str, new: str) -> tuple[str, str]:
    """Return two leaf paths without the parts at their ends that are the same."""
    mine, theirs = leaf_parts(new), leaf_parts(old)
    while len(mine) > 1 and len(theirs) > 1 and leaf_key(mine[-1]) == leaf_key(theirs[-1]):
        mine, theirs = mine[:-1], theirs[:-1]
    return shown("".join(theirs)), shown("".join(mine))


def told_form(leaf: LeafComparison) -> str:
    """Say in a few words what became of a tensor whose values differ nowhere."""
    name = shown(leaf.leaf) or "the only one"
    was = leaf.expected
    if leaf.problem == "missing":
        return f"an output is gone: {name}"
    if was is None or leaf.problem not in FORMS:
        return ""
    here, there = (leaf.dtype, was.dtype) if leaf.problem == "dtype" else (leaf.shape, was.shape)
    return f"an output has another {leaf.problem}: {name} is {here}, and was {there}"


def non_finite(compared: Compared) -> Iterator[str]:
    """Mention inf and nan that both sides have in the same places: they agree, and may not be meant."""
    names = [
        f"{item.call.name!r}"
        for item in compared.calls
        for leaf in item.outputs
        if leaf.metrics is not None and leaf.metrics.non_finite_expected
    ]
    if names:
        yield f"inf or nan in the same places on both sides in {len(names)} outputs, the first of {names[0]}."


def told_adapters(tree: CallTree, item: CallComparison) -> str:
    """Say that one side of a call has an adapter of peft around its layer, in a sentence without its subject."""
    if item.expected is None:
        return ""
    here = any(adapted_layer(path) == item.call.path for path in tree.compared.own_paths.values())
    there = any(adapted_layer(call.path) == item.expected.path for call in tree.compared.expected)
    wrong = "is adapted by peft, and the expected one is not"
    return "" if here == there else wrong if here else "is not adapted, and the expected one is, by peft"


def told_arguments(call: Call, given: dict[str, tuple[str, str]]) -> str:
    """Say which arguments other than tensors a call was given, by name, and which it should have been given."""
    named = ", ".join(f"{name}={own} instead of {expected}" for name, (own, expected) in given.items())
    return f"{call.name!r} is given {named}."


def input_problem(leaf: LeafComparison) -> str:
    """Say in a few words how an input differs."""
    return {
        "values": "other values",
        "shape": f"shape {leaf.shape} instead of {leaf.expected.shape if leaf.expected else ()}",
        "dtype": f"{leaf.dtype} instead of {leaf.expected.dtype if leaf.expected else ''}",
        "missing": "not given",
        "extra": "not given in the expected forward",
        "recoded": "a mask with other numbers",
    }[leaf.problem]


def where(previous: CallComparison | None, following: CallComparison | None) -> str:
    """Say between which of its calls some lines of a forward are."""
    if previous and following:
        return f"between its calls of {previous.call.name!r} and {following.call.name!r}"
    if previous:
        return f"after its call of {previous.call.name!r}"
    return f"before its call of {following.call.name!r}" if following else "of its own"


def names(calls: list[Call]) -> str:
    """Return the names of calls, of many the first."""
    return listed([repr(call.name) for call in calls], 4)
