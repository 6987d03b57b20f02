"""``tf_golden``: the goldens of one test, and sweeps of the configurations behind them."""

from __future__ import annotations

import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import pytest

from pytest_tfdebug.check_record import BlindRecord, CheckRecord
from pytest_tfdebug.errors import CleanLoadError, SweepError, TFDebugError
from pytest_tfdebug.goldens.fixture import GoldenChecks
from pytest_tfdebug.goldens.golden_check import Progress
from pytest_tfdebug.loading.audit import audit
from pytest_tfdebug.options import NOTE
from pytest_tfdebug.publish.reports import calling_line, note, wants_details
from pytest_tfdebug.running import RUNNING
from pytest_tfdebug.sweeping.api import sweep
from pytest_tfdebug.sweeping.variants import FieldSearch, Reference, answer, apart, is_small, quiet
from pytest_tfdebug.tracing.record.ranks import present_group
from pytest_tfdebug.tracing.record.signatures import positional_parameters
from pytest_tfdebug.tracing.record.state import preserved

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import torch

    from pytest_tfdebug.goldens.port_call import PortCall
    from pytest_tfdebug.loading.checkpoint import Source
    from pytest_tfdebug.loading.result import LoadReport
    from pytest_tfdebug.sweeping.fields import Field
    from pytest_tfdebug.sweeping.result import SweepReport


class Goldens(GoldenChecks):
    """What the ``tf_golden`` fixture gives: checks against the running test's goldens, and sweeps."""

    def sweep(
        self,
        reference: type,
        config: Any,  # noqa: ANN401 - a configuration of transformers
        **arguments: Any,  # noqa: ANN401 - those of pytest_tfdebug.sweep
    ) -> SweepReport:
        """Move each field of a configuration, as :func:`pytest_tfdebug.sweep`, and fail where the port does not follow.

        Raises:
            SweepError: If the port ignores a field or differs at another value of it, or a known one agrees by now.
            TFDebugError: If nothing can be judged.
        """
        __tracebackhide__ = True
        progress = Progress(self._item.config, f"sweeping {self._item.nodeid}")
        report = sweep(reference, config, progress=partial(_paced, progress), **arguments)
        text = report.check_text()
        record = CheckRecord(
            self._item.nodeid,
            "sweep",
            "passed" if report.ok else "failed",
            text.answer,
            name=reference.__name__,
            model=reference.__name__,
            at=calling_line(),
            notes=tuple(report.notes),
            text=text.to_text("full") if wants_details(self._item.config) else "",
            fields=tuple(row.record() for row in report.rows),
            blind=tuple(spot.record() for spot in report.blind),
        )
        note(self._item, record)
        if not report.ok:
            raise SweepError(text, report)
        self._item.user_properties.append((NOTE, text.answer))
        return report

    def check_loaded(self, model: torch.nn.Module, checkpoint: Source, *, allow: Sequence[str] = ()) -> LoadReport:
        """Hold a model to the checkpoint that it was loaded from, as :func:`pytest_tfdebug.audit`.

        Raises:
            CleanLoadError: If a tensor of the checkpoint is in no place of the model, or one of the model is not from
                the checkpoint.
            TFDebugError: If the checkpoint cannot be read.
        """
        __tracebackhide__ = True
        report = audit(model, checkpoint, allow=allow)
        text = report.check_text()
        record = CheckRecord(
            self._item.nodeid,
            "loaded",
            "passed" if report.ok else "failed",
            text.answer,
            model=report.model,
            at=calling_line(),
            tensors=len(report.rows),
            text=text.to_text("full") if wants_details(self._item.config) else "",
            loads=(report.record(),),
        )
        note(self._item, record)
        if not report.ok:
            raise CleanLoadError(text, report)
        self._item.user_properties.append((NOTE, text.answer))
        return report

    def _blind_spots(self, model: torch.nn.Module, called: PortCall) -> tuple[BlindRecord, ...]:
        """Return what a golden of this call cannot see, fields of the model's configuration too.

        No field is known of a model that is large, is not of transformers, or is not what its class and configuration
        make: an adapter, a patched forward.
        """
        found = super()._blind_spots(model, called)
        transformers = sys.modules.get("transformers")
        if (
            transformers is None
            or not isinstance(model, transformers.PreTrainedModel)
            or called.method != "forward"
            or present_group() is not None
            or not is_small(model)
            or any(each.device.type != "cpu" for each in model.parameters())
        ):
            return found
        names = positional_parameters(cast("type", type(model)))
        inputs = {**dict(zip(names, called.args, strict=False)), **called.kwargs}
        try:
            with quiet(), preserved(model):
                reference = Reference(type(model), model.config, inputs, model.state_dict())
                if apart(answer(model, inputs), reference.base.answer) > reference.bound:
                    return found
                search = FieldSearch(reference)
                progress = Progress(self._item.config, f"looking what {self._item.nodeid} cannot see")
                fields = _paced(progress, search.fields, reference.name)
                return (*found, *(spot.record() for field in fields if (spot := search.blind_spot(field))))
        except Exception:  # noqa: BLE001 - a golden is written whether or not its inputs can be judged
            return found


def _paced(progress: Progress, fields: Sequence[Field], name: str) -> Iterator[Field]:
    """Yield fields, and show how many are done and how long the others will take as these took."""
    begun = time.monotonic()
    for done, field in enumerate(fields):
        left = f", about {(time.monotonic() - begun) / done * (len(fields) - done):.0f} s left" if done else ""
        progress.tell(f"{done} of {len(fields)} fields of {name}{left}")
        yield field


def goldens_of(item: pytest.Item) -> Goldens:
    """Return the goldens of a test, the same object however it asks for them."""
    if _GOLDENS not in item.stash:
        item.stash[_GOLDENS] = Goldens(item)
        item.addfinalizer(lambda: item.stash.__delitem__(_GOLDENS))  # a test that is run again starts anew
    return item.stash[_GOLDENS]


def golden() -> Goldens:
    """Return the goldens of the test that runs now, for tests that cannot take fixtures (``unittest.TestCase``).

    Raises:
        TFDebugError: If no test is running under pytest with this plugin.
    """
    item = RUNNING.item
    if item is None:
        raise TFDebugError(
            "pytest_tfdebug.golden() belongs to a running test: run the file with pytest (and without -p no:tfdebug).\n"
            "Outside pytest, use pytest_tfdebug.trace, Trace.save, Trace.load and pytest_tfdebug.compare."
        )
    return goldens_of(item)


_GOLDENS: pytest.StashKey[Goldens] = pytest.StashKey()
