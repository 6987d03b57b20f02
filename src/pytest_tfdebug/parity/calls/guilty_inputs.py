"""Which inputs of a call can have made its outputs wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_tfdebug.parity.calls.arguments import other_arguments
from pytest_tfdebug.parity.tensors.failing_tensors import can_be_given
from pytest_tfdebug.records import FORMS

if TYPE_CHECKING:
    from pytest_tfdebug.parity.calls.call_tree import CallTree
    from pytest_tfdebug.records import CallComparison, LeafComparison


class GuiltyInputs:
    """Which inputs of a call can have made its outputs wrong: not those that right calls were given too."""

    def __init__(self, tree: CallTree, wrong: set[int]) -> None:
        around = {item.call.index for index in wrong for item in tree.around(index)}
        right = [item for item in tree.compared.calls if item.outputs and item.call.index not in around]
        self._tensors = {
            id(leaf.expected.held)
            for item in right
            for leaf in item.inputs
            if leaf.problem and leaf.expected is not None
        }
        self._arguments = {argument for item in right for argument in other_arguments(item).items()}

    def tensors(self, item: CallComparison) -> list[LeafComparison]:
        """Return the tensors among the inputs of a call that can have made its outputs diverge.

        An input in another form (shape, dtype, not given) counts between two modules of one class; a port may write its
        masks in another way, and another version of a class may do without a parameter. No input counts that a call
        with agreeing outputs has taken as well, unless the outputs are in another form as it is: what one call
        broadcasts another keeps.
        """
        forms = {leaf.problem for leaf in item.outputs}.intersection(FORMS)
        return [
            leaf
            for leaf in item.inputs
            if (
                leaf.problem == "values"
                or (leaf.problem and (item.is_of_one_class or forms) and can_be_given(item, leaf))
            )
            and (leaf.problem in forms or leaf.expected is None or id(leaf.expected.held) not in self._tensors)
        ]

    def arguments(self, item: CallComparison) -> dict[str, tuple[str, str]]:
        """Return likewise what else a call was given, beside what is expected."""
        found = other_arguments(item)
        return {name: pair for name, pair in found.items() if (name, pair) not in self._arguments}

    def are_guilty(self, item: CallComparison) -> bool:
        """Tell whether a call's inputs can have made its outputs diverge."""
        return bool(self.tensors(item) or self.arguments(item))
