"""``use_cache``: a forward that fills a cache gives the same answer as one that does not."""

from __future__ import annotations

from pytest_tfdebug.invariance.calls import model_traits
from pytest_tfdebug.invariance.checks.base import Check
from pytest_tfdebug.invariance.repeat.repetition import Repetition

_NAME = "use_cache"
_DIAGNOSIS = (
    "filling a cache changes what is computed: another path through attention, or keys that are altered in place."
)


class UseCacheCheck(Check):
    """The call is made with and without a cache."""

    needs = "Call a model whose forward takes use_cache"
    verdict = "gives another answer when it fills a cache"

    def check(self) -> None:
        """Report the first output that differs."""
        call = self.call
        if _NAME not in model_traits.parameters(call.model):
            self.skip(f"{call.name}: its forward takes no {_NAME}")
            return
        off, on = ({**call.inputs, _NAME: value} for value in (False, True))
        repetition = Repetition("use_cache=True against use_cache=False", on, self.unpadded, off, recorded="")
        expected, actual = self.outputs(repetition)
        mismatch = self.compare(repetition.label, expected, actual, repetition.alignment, with_caches=False)
        if mismatch is not None:
            self.fail(repetition, mismatch, _DIAGNOSIS)
