"""The checks of one test against its goldens."""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from pytest_tfdebug.errors import CoverageWarning, GoldenError, TFDebugError
from pytest_tfdebug.goldens.blind_spots import blind_spots
from pytest_tfdebug.goldens.elsewhere import told_elsewhere
from pytest_tfdebug.goldens.filled import filled_like
from pytest_tfdebug.goldens.golden_check import GoldenCheck
from pytest_tfdebug.goldens.golden_file import load
from pytest_tfdebug.goldens.place import RECORDING, golden_mode, variants
from pytest_tfdebug.goldens.port_call import PortCall, port_call
from pytest_tfdebug.goldens.recording import record, recorded_model
from pytest_tfdebug.goldens.session import GoldenSession
from pytest_tfdebug.goldens.settings import RECORDS_PORT, Store, merged_settings, parse_seconds
from pytest_tfdebug.goldens.step_check import check_step, record_step
from pytest_tfdebug.options import Options
from pytest_tfdebug.steps.run import TrainedModel, plain_run
from pytest_tfdebug.tracing.record.ranks import present_group
from pytest_tfdebug.tracing.record.signatures import (
    bound,
    method_of,
    parameters_of,
    refuse_no_tensors,
    refuse_unknown_inputs,
)
from pytest_tfdebug.tracing.trace import check_model
from pytest_tfdebug.tracing.values.rerun import Rerun

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from pytest_tfdebug.check_record import BlindRecord
    from pytest_tfdebug.goldens.place import GoldenPlace
    from pytest_tfdebug.goldens.settings import CheckSettings
    from pytest_tfdebug.parity.arrays.given import Arrays
    from pytest_tfdebug.parity.arrays.hold import LogprobsReport
    from pytest_tfdebug.parity.pair.rename import Rename
    from pytest_tfdebug.parity.result import ParityReport
    from pytest_tfdebug.parity.tensors.tolerance import ToleranceGiven
    from pytest_tfdebug.parity.verdict import Internal
    from pytest_tfdebug.steps.run import Run


@dataclass(frozen=True)
class CheckRequest:
    """What a check is asked, beside its model and inputs; :meth:`GoldenChecks.check` says what each field means."""

    reference: torch.nn.Module | Callable[[], torch.nn.Module] | None = None
    name: str | None = None
    rename: Rename = None
    port_inputs: Mapping[str, Any] | Sequence[Any] | None = None
    outputs: Mapping[str, str] | None = None
    positions: Any = None
    tolerance: ToleranceGiven | None = None
    store: Store | None = None
    internal: Internal | None = None
    root: str | None = None
    dtypes: tuple[str, ...] | None = None  # only where arrays of another runtime are held to the golden

    @property
    def options(self) -> dict[str, Any]:
        """The arguments by their names, as settings are merged from them."""
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        return given if self.dtypes else {name: value for name, value in given.items() if name != "dtypes"}


class GoldenChecks:
    """Checks of forwards against the running test's goldens.

    Args:
        item: The running test.
    """

    def __init__(self, item: pytest.Item) -> None:
        self._item = item
        self.options = Options.of(item.config)
        self._session = GoldenSession.of(item.config)
        self._names: set[str | None] = set()

    def forget_names(self) -> None:
        """Let the checks of a test that runs once more have the names that they had."""
        self._names.clear()

    def check(  # noqa: PLR0913 - keyword options beside the model's own inputs
        self,
        model: torch.nn.Module | Callable[..., Any],
        /,
        *args: Any,  # noqa: ANN401 - the model's own inputs
        reference: torch.nn.Module | Callable[[], torch.nn.Module] | None = None,
        name: str | None = None,
        rename: Rename = None,
        port_inputs: Mapping[str, Any] | Sequence[Any] | None = None,
        outputs: Mapping[str, str] | None = None,
        positions: Any = None,  # noqa: ANN401 - a mask, or anything that a tensor is indexed with
        tolerance: ToleranceGiven | None = None,
        store: Store | None = None,
        internal: Internal | None = None,
        root: str | None = None,
        **kwargs: Any,  # noqa: ANN401
    ) -> ParityReport | None:
        """Hold a forward to the golden of this test.

        With ``--tf-golden=update`` the reference (the model itself without one) runs and is recorded, and a model that
        has a reference is then held to it. Otherwise the model runs and is compared with the file. The reference runs
        only where this fails, to prove what is wrong.

        Args:
            model: The implementation under test; or a method of it, ``model.encode``, called on both sides in place
                of the forward.
            *args: Positional inputs.
            reference: The model to record, or a function that builds it, called to record and where the check fails.
            name: Tells several goldens of one test apart.
            rename: Port path -> reference path, see :func:`pytest_tfdebug.compare`.
            port_inputs: The port's own inputs, where its forward takes others than the reference: a dict of keyword
                inputs, or a tuple or list of positional ones. ``args`` and ``kwargs`` are then those of the reference.
            outputs: Path of an output of the port -> path of the reference's: ``{"audio": "audio_values"}``, ``{"":
                "logits"}`` for a port that returns a tensor; see :func:`pytest_tfdebug.compare`.
            positions: Which positions of the outputs count: a mask of 0s and 1s of their leading axes (an attention
                mask: real tokens), or an index. Recorded and checked with the same.
            tolerance: A pair ``(rtol, atol)`` of every tensor; ``{dtype name or module-path glob: (rtol, atol)}``; or
                ``"fp64"``, which allows eight times what arithmetic alone explains: a recording runs the reference
                once more in float64 and keeps how far each tensor is from that.
            store: ``"values"`` keeps a sample of each tensor and the sums of all its elements, ``"full"`` all elements.
            internal: What becomes of a model whose outputs agree while something inside does not: ``"warn"`` passes
                with an :class:`InternalWarning`, ``"fail"`` fails.
            root: Path of the reference's module that the model is, where it is a part of it: a pipeline stage, a layer.
                Its inputs are then ``port_inputs``, and it is held to what the golden has of that module.
            **kwargs: Keyword inputs.

        Returns:
            The report of a comparison; None when the golden was recorded and there is no reference.

        Raises:
            ParityError: If the forward diverges; the message names the culprit.
            GoldenError: If the golden is missing (an ``AssertionError`` as well), damaged or cannot be written.
            TFDebugError: If an argument makes no sense.
        """
        __tracebackhide__ = True
        module, method = bound(model)
        request = CheckRequest(
            reference=reference,
            name=name,
            rename=rename,
            port_inputs=port_inputs,
            outputs=outputs,
            positions=positions,
            tolerance=tolerance,
            store=store,
            internal=internal,
            root=root,
        )
        return self._hold(module, PortCall(args, kwargs, method=method), request)

    def _hold(self, module: torch.nn.Module, given: PortCall, request: CheckRequest) -> ParityReport | None:
        __tracebackhide__ = True
        args, kwargs, method = given.args, given.kwargs, given.method
        reference, name, own = request.reference, request.name, request.options
        check_model(module, {key: value for key, value in own.items() if value is not None}, "check")
        refuse_no_tensors(module, method, args, kwargs)
        _refuse_itself(module, reference)
        is_built = not (reference is None or isinstance(reference, torch.nn.Module))
        takes = reference if isinstance(reference, torch.nn.Module) else module
        others_may, port = is_built or method != "forward", None if takes is module else module
        hint = "Did you forget reference=?" if reference is None else ""
        mode = golden_mode(self._item.config)
        try:
            refuse_unknown_inputs(takes, kwargs, own, port=port, others_may=others_may, hint=hint)
        except TFDebugError as error:
            is_check = takes is module and mode == "check"
            golden = GoldenCheck(self._item, self._place(module, name), name) if is_check else None
            raise (golden and golden.gone_argument(module, kwargs)) or error from None
        settings = merged_settings(self._item, own, vars(self.options))
        if mode == "off":
            pytest.skip("--tf-golden=off")
        place = self._claim(module, name, is_recorded=mode in RECORDING)
        called = _called(module, given, request, is_recorded=mode in RECORDING)
        if reference is not None:
            kept = Rerun(module, args, kwargs, method)
            again = cache(lambda: Rerun(recorded_model(reference), *kept.inputs(), method))
            called = replace(called, reference=again)
        exists = place.exists()  # refuses what is no golden, before anything runs
        # a forward may write to what it was given
        if mode in RECORDING and not (mode == "missing" and exists):
            inputs = Rerun(module, called.args, called.kwargs, method)
            first = self._item.config.stash.get(RECORDS_PORT, None)
            if first is not None:
                with self._filled_like(first, place, module, called):
                    record(self._item, place, module, called, settings, blind=tuple)
                return None
            recorded = module if reference is None else recorded_model(reference)
            if reference is not None:
                _refuse_itself(module, recorded)
            if is_built and method == "forward":
                refuse_unknown_inputs(recorded, kwargs, own, port=module)
            record(self._item, place, recorded, given, settings, blind=lambda: self._blind_spots(recorded, given))
            if reference is None:
                for warning in GoldenCheck(self._item, place, name).dead_inputs(type(recorded).__name__):
                    warnings.warn(warning, stacklevel=3)
                return None
            own_args, own_kwargs = inputs.inputs()
            called = replace(called, args=own_args, kwargs=own_kwargs)
            report = GoldenCheck(self._item, place, name).model(module, called, settings, request.root)
            is_whole = request.root is None and present_group() is None
            _warn_of_elsewhere(inputs, Rerun(recorded, *kept.inputs(), method), settings if is_whole else None)
            return report
        return GoldenCheck(self._item, place, name).model(module, called, settings, request.root)

    def check_arrays(
        self,
        arrays: Arrays,
        /,
        *args: Any,  # noqa: ANN401 - the reference's own inputs
        reference: torch.nn.Module | Callable[[], torch.nn.Module] | None = None,
        name: str | None = None,
        tolerance: ToleranceGiven | None = None,
        dtypes: tuple[str, ...] | None = None,
        **kwargs: Any,  # noqa: ANN401
    ) -> ParityReport:
        """Hold what another runtime computed to the golden of this test, without a map of names.

        Arrays are found among the reference's values by what they are, whatever they are called and however they lie:
        fused, split, permuted, cropped. The answer is the lines of the reference between the last of its values that
        is among the arrays and the first that is not. With ``reference=`` a failed check also tries changes of the
        reference, and says which one gives the arrays' outputs.

        Args:
            arrays: ``(label, array)`` pairs, a dict (also nested), an ``.npz`` or safetensors file, or a directory of
                dumps, in the order of computation; whatever NumPy or DLPack takes, bfloat16 included. Intermediate
                values narrow the answer; the outputs must be among them.
            *args: Positional inputs of the reference.
            reference: The model to record under ``--tf-golden=update`` or ``missing``, or a function that builds it; it
                is run again only where the check fails. Without one the golden of a ``check`` of this test is read.
            name: Tells several goldens of one test apart.
            tolerance: Of the outputs: a pair ``(rtol, atol)``, or ``{dtype name: (rtol, atol)}``.
            dtypes: ``("bfloat16",)``: dtypes in half precision that the runtime computes in. A recording runs the
                reference once more in each, and keeps what rounding makes of every value there.
            **kwargs: Keyword inputs of the reference.

        Returns:
            The report.

        Raises:
            ParityError: If a value that the outputs need is not among the arrays, or an output differs.
            GoldenError: If the golden is missing (an ``AssertionError`` as well) or damaged.
            TFDebugError: If an argument makes no sense, or holds no array.
        """
        __tracebackhide__ = True
        place = self._reference_golden(PortCall(args, kwargs), reference, name, dtypes=dtypes)
        again = None if reference is None else lambda: Rerun(recorded_model(reference), args, kwargs)
        seconds = parse_seconds(vars(self.options).get("explain_seconds"))
        return GoldenCheck(self._item, place, name).arrays(arrays, tolerance, again, seconds)

    def check_step(
        self,
        port: torch.nn.Module,
        /,
        *,
        batch: Any,  # noqa: ANN401 - whatever the runs take
        reference: torch.nn.Module | Callable[[], torch.nn.Module] | None = None,
        run: Run | None = None,
        port_run: Run | None = None,
        name: str = "step",
    ) -> ParityReport | None:
        """Hold the training of a port to a golden of this test; see :func:`pytest_tfdebug.compare_steps`.

        With ``--tf-golden=update`` the reference (the port itself without one) is run and recorded: the fingerprints of
        its values and gradients, and projections of the gradients of its parameters' rows.

        Args:
            port: The model under test.
            batch: What both are run with.
            reference: The model to record, or a function that builds it; not run where the golden is there.
            run: ``run(model, batch)`` returns a loss, or trains by itself and returns None. By default
                ``model(**batch).loss``.
            port_run: The same for the port, where it is run otherwise.
            name: Tells this golden from others of the test.

        Returns:
            The report of a comparison; None when the golden was recorded and there is no reference.

        Raises:
            ParityError: If the training differs; the message names the line.
            GoldenError: If the golden is missing (an ``AssertionError`` as well), damaged or cannot be written.
            TFDebugError: If a run returns no loss, or one without a gradient.
        """
        __tracebackhide__ = True
        check_model(port, {}, "check_step")
        _refuse_itself(port, reference)
        mode, run = golden_mode(self._item.config), run or plain_run
        if mode == "off":
            pytest.skip("--tf-golden=off")
        place = self._claim(port, name, is_recorded=mode in RECORDING)
        own = TrainedModel(port, port_run or run, batch, "port")
        if mode in RECORDING and not (mode == "missing" and place.exists()):
            recorded = own if reference is None else TrainedModel(recorded_model(reference), run, batch, "reference")
            record_step(self._item, place, recorded)
            if reference is None:
                return None
        return check_step(self._item, place, own, name)

    def _filled_like(
        self, first: Path, place: GoldenPlace, model: torch.nn.Module, called: PortCall
    ) -> AbstractContextManager[None]:
        """Give a model the numbers of the golden that a directory has of this check, if there is one."""
        golden = first / Path(str(place)).relative_to(str(self.options.golden_dir))
        return filled_like(load(golden), model, called) if golden.exists() else nullcontext()

    def _blind_spots(self, model: torch.nn.Module, called: PortCall) -> tuple[BlindRecord, ...]:
        return () if present_group() is not None else tuple(blind_spots(model, called))

    def check_logprobs(
        self,
        token_ids: Any,  # noqa: ANN401 - of any library
        logprobs: Any,  # noqa: ANN401
        /,
        *args: Any,  # noqa: ANN401 - the reference's own inputs
        reference: torch.nn.Module | Callable[[], torch.nn.Module] | None = None,
        name: str | None = None,
        margin: float = 0.1,
        **kwargs: Any,  # noqa: ANN401
    ) -> LogprobsReport:
        """Hold the tokens and log-probabilities of an engine that gives no more to the golden of this test.

        Token ``i`` is the engine's greedy choice after position ``i`` of the reference's input; its golden needs the
        logits whole (``tf_golden.check(..., store="full")``, or few tokens of a small vocabulary).

        Args:
            token_ids: The engine's choice at each position, ``(tokens,)`` or ``(batch, tokens)``; of fewer positions
                than the reference has, the last ones.
            logprobs: Their log-probabilities, of the same shape.
            *args: Positional inputs of the reference.
            reference: As of :meth:`check_arrays`.
            name: Tells several goldens of one test apart.
            margin: What a log-probability may be off by, and the lead up to which two tokens count as a tie.
            **kwargs: Keyword inputs of the reference.

        Returns:
            The first flip with its margin, the ties, and the greatest difference.

        Raises:
            ParityError: If a token is not the reference's choice though that leads by more than ``margin``, or a
                log-probability is off by more.
            GoldenError: If the golden is missing (an ``AssertionError`` as well), damaged, or keeps not all logits.
            TFDebugError: If an argument makes no sense.
        """
        __tracebackhide__ = True
        place = self._reference_golden(PortCall(args, kwargs), reference, name, store="full")
        return GoldenCheck(self._item, place, name).logprobs(token_ids, logprobs, margin)

    def _reference_golden(self, given: PortCall, reference: Any, name: str | None, **kept: Any) -> GoldenPlace:  # noqa: ANN401
        """Return the golden of a reference that is only recorded, and recorded first where the run does that."""
        __tracebackhide__ = True
        mode = golden_mode(self._item.config)
        if mode == "off":
            pytest.skip("--tf-golden=off")
        if reference is None and (given.args or given.kwargs):
            raise TFDebugError("There are inputs for a reference, but no reference=: give it, or leave out the inputs.")
        place = self._session.place(self._item, name, (), is_new=False)
        if reference is not None and mode in RECORDING and not (mode == "missing" and place.exists()):
            self._hold(recorded_model(reference), given, CheckRequest(name=name, **kept))
        return place

    def _claim(self, model: torch.nn.Module, name: str | None, *, is_recorded: bool) -> GoldenPlace:
        __tracebackhide__ = True
        place = self._place(model, name, is_recorded=is_recorded)
        clash = self._session.claim(str(place), self._item.nodeid)
        if name in self._names:
            which = f"name={name!r}" if name else "no name"
            clash = f"Two checks of {self._item.nodeid} have {which}, so they would share one golden.\n"
            clash += "Give each check its own name=."
        if clash:
            raise GoldenError(clash)
        self._names.add(name)
        return place

    def _place(self, model: torch.nn.Module, name: str | None, *, is_recorded: bool = False) -> GoldenPlace:
        chosen = self.options.golden_variant
        is_new = chosen is not None and is_recorded
        return self._session.place(self._item, name, variants(model, chosen), is_new=is_new)


def _refuse_itself(model: torch.nn.Module, reference: object) -> None:
    if reference is model:
        raise TFDebugError(
            "reference= is the model itself, so nothing could differ: give the model to record, or leave out "
            "reference= to compare the model with its own past."
        )


def _warn_of_elsewhere(port: Rerun, reference: Rerun, settings: CheckSettings | None) -> None:
    """Warn of what a port that agrees does otherwise than its reference on other inputs; a part of it is not asked."""
    try:
        found = [] if settings is None else [*told_elsewhere(port, reference, settings)]
    except Exception:  # noqa: BLE001 - a port that agrees passes, whether or not it can be looked at elsewhere
        return
    for told in found:
        warnings.warn(CoverageWarning(f"{type(port.model).__name__}: {told}"), stacklevel=4)


def _called(model: torch.nn.Module, given: PortCall, request: CheckRequest, *, is_recorded: bool) -> PortCall:
    """Return how the model under test is called: like its reference, unless it takes other inputs."""
    called, reference, port_inputs, root = given, request.reference, request.port_inputs, request.root
    if reference is not None:
        names = parameters_of(method_of(reference, given.method)) if isinstance(reference, torch.nn.Module) else ()
        called = port_call(model, given.args, given.kwargs, port_inputs, given.method, names=names)
    elif port_inputs is not None:
        raise TFDebugError(
            "port_inputs= is for a port whose inputs differ from its reference's, but there is no reference=.\n"
            "Give reference=, or pass the model's inputs directly."
        )
    if root is None:
        return called
    if is_recorded and reference is None:
        raise TFDebugError(
            f"root={root!r} says which module of its reference the model is, but there is no reference= to record."
        )
    return replace(called, names={}, note="", other=None, lacking=None)  # the inputs of a part are not its reference's
