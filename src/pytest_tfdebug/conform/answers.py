"""Promises about the plain call: the same with a cache and without, inputs left as they are, the golden's answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from pytest_tfdebug.conform.judge import PromiseFinding
from pytest_tfdebug.errors import GoldenError, ParityError, listed
from pytest_tfdebug.goldens.session.session import GoldenSession
from pytest_tfdebug.goldens.store.modes import RECORDING, golden_mode
from pytest_tfdebug.goldens.store.paths import variants
from pytest_tfdebug.invariance.checks.base import Check
from pytest_tfdebug.invariance.repeat.inputs import Repetition
from pytest_tfdebug.options import Options
from pytest_tfdebug.records import Culprit
from pytest_tfdebug.running import RUNNING
from pytest_tfdebug.sweeping.fixture import goldens_of
from pytest_tfdebug.tracing.record.leaves import duplicate, walk
from pytest_tfdebug.tracing.record.state import preserved

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_tfdebug.conform.subject import Subject

_USE_CACHE = "use_cache"
_CACHE_FILLED = (
    "filling a cache changes what is computed: another path through attention, or keys that are altered in place."
)
_WRITTEN = "it writes into what it is given (clamp_, masked_fill_, an assignment to a slice): let it work on a copy."


class UseCacheCheck(Check):
    """The call is made with and without a cache."""

    needs = "Call a model whose forward takes use_cache"
    verdict = "gives another answer when it fills a cache"

    def repetitions(self) -> Iterator[Repetition]:
        """Yield the call with a cache, against that without."""
        call = self.call
        if _USE_CACHE not in call.parameters:
            self.skip(f"{call.name}: its forward takes no {_USE_CACHE}")
            return
        off, on = ({**call.inputs, _USE_CACHE: value} for value in (False, True))
        label = "use_cache=True against use_cache=False"
        yield Repetition(label, on, self.unpadded, off, recorded="", diagnosis=_CACHE_FILLED)


def leaves_inputs(subject: Subject) -> PromiseFinding:
    """Make the plain call, and look whether it wrote into a tensor that it was given; a cache may be written."""
    model, given = subject.model, duplicate(subject.call.inputs)
    held = walk(given, into_caches=False)
    before = {leaf.path: (leaf.tensor._version, leaf.tensor.clone()) for leaf in held}  # noqa: SLF001 - torch's count
    running: list[str] = []
    writers: list[str] = []

    def note(path: str) -> None:
        if not writers and any(leaf.tensor._version != before[leaf.path][0] for leaf in held):  # noqa: SLF001 - as above
            writers.append(path)

    def begin(path: str) -> None:
        if running:  # what was written before this call is the caller's
            note(running[-1])
        running.append(path)

    hooks = [
        hook
        for path, module in model.named_modules()
        for hook in (
            module.register_forward_pre_hook(lambda *_, path=path: begin(path)),
            module.register_forward_hook(lambda *_: note(running.pop()), always_call=True),
        )
    ]
    try:
        with preserved(model), torch.no_grad():
            torch.manual_seed(0)
            model(**given)
    finally:
        for hook in hooks:
            hook.remove()
    changed = [leaf.path for leaf in held if not torch.equal(leaf.tensor, before[leaf.path][1])]
    if not changed:
        return PromiseFinding()
    path = writers[0] if writers else ""
    kind = type(model.get_submodule(path)).__name__
    told = f"{subject.name} changes what it was given: {listed(changed)}, in {path or 'its own forward'} ({kind})."
    return PromiseFinding.broken(told, [], _WRITTEN, Culprit(path or kind, "glue", None, _WRITTEN, kind))


def has_golden(subject: Subject) -> str:
    """Return why there is no golden to hold a model to; empty if there is one, or one is to be recorded."""
    item = RUNNING.item
    if item is None:
        return "goldens belong to tests, and no test is running"
    mode = golden_mode(item.config)
    if mode == "off":
        return "--tf-golden=off"
    chosen = variants(subject.model, Options.of(item.config).golden_variant)
    place = GoldenSession.of(item.config).place(item, subject.name, chosen, is_new=False)
    return "" if mode in RECORDING or place.exists() else "it has no golden; --tf-golden=missing records one"


def agrees_with_golden(subject: Subject) -> PromiseFinding:
    """Hold the plain call to the golden, or record it."""
    if RUNNING.item is None:
        return PromiseFinding()
    try:
        goldens_of(RUNNING.item).check(subject.model, name=subject.name, **subject.call.inputs)
    except ParityError as error:
        return PromiseFinding(str(error), culprit=error.report.culprit)
    except GoldenError as error:
        return PromiseFinding(str(error))
    return PromiseFinding()
