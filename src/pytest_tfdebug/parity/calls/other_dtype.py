"""A model that computes in another dtype as a whole: under autocast, or converted to half precision."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pytest_tfdebug.records import culprit_of

if TYPE_CHECKING:
    from pytest_tfdebug.parity.calls.call_tree import CallTree
    from pytest_tfdebug.records import CallComparison, Culprit, Divergence, LeafComparison

#: Share of the innermost modules that must compute in the other dtype: autocast leaves norms and embeddings alone.
_MOST = 0.5
#: Fewer modules than this do not tell a model from one module of it.
_FEWEST = 3


def blame_dtype(tree: CallTree, first: Divergence) -> Culprit | None:
    """Return a culprit that names the dtype, where most modules compute in another one; None where they do not."""
    if first.comparison.problem != "dtype":
        return None
    outputs = [leaf for item in tree.compared.calls for leaf in _of_innermost(tree, item)]
    pairs = Counter(_dtypes(leaf) for leaf in outputs if leaf.problem == "dtype")
    (expected, actual), count = pairs.most_common(1)[0] if pairs else (("", ""), 0)
    if len(outputs) < _FEWEST or count < _MOST * len(outputs):
        return None
    call = tree.roots[0].call
    wrong = f"computes in {actual}, and the expected forward in {expected}"
    why = (
        f"Of its innermost modules {count} of {len(outputs)} do, so the model was converted or runs under autocast. "
        f"No module's code is to blame, and values were not compared. Run it in {expected}, or compare it with a "
        f"forward recorded in {actual}."
    )
    return culprit_of(call, "dtype", why, first, wrong=wrong)


def _of_innermost(tree: CallTree, item: CallComparison) -> list[LeafComparison]:
    """Return the outputs of floating point of a call that makes no others."""
    if item.expected is None or item.call.index in tree.children:
        return []
    return [leaf for leaf in item.outputs if all("float" in dtype for dtype in _dtypes(leaf))]


def _dtypes(leaf: LeafComparison) -> tuple[str, str]:
    return ("" if leaf.expected is None else leaf.expected.dtype, leaf.dtype)
