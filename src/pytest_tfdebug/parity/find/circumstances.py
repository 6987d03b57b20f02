"""What stands around modules: their mode, autocast, the compiler, which of them are one, and what they were given.

Each finder yields ways in which the port ran otherwise than the reference, with a block in which it runs as the
reference did. The port is run once more in that block, before anything is searched for: what then agrees was right, and
what it was given, or how it was run, is not.
"""

from __future__ import annotations

import re
import sys
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from itertools import combinations, islice
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import torch

from pytest_tfdebug.errors import listed, second_look
from pytest_tfdebug.generators import drawn, put_back, seed, states
from pytest_tfdebug.module_path import holder, last_part
from pytest_tfdebug.parity.calls.call_tree import CallTree, call_around, failing, first_fault
from pytest_tfdebug.parity.claims import Claim, Evidence
from pytest_tfdebug.parity.find.layers import in_another_pattern, made_at
from pytest_tfdebug.parity.find.made_with import made_otherwise
from pytest_tfdebug.parity.find.module_texts import texts_of
from pytest_tfdebug.parity.tensors.metrics import relative_l2
from pytest_tfdebug.parity.text.chosen_at import left_none_at
from pytest_tfdebug.records import FAILING, SourceRange
from pytest_tfdebug.tensors import dtype_name
from pytest_tfdebug.tracing.record.leaves import replaced, walk_inputs
from pytest_tfdebug.tracing.record.modules import first_opaque, modules_by_path, modules_of, uncompiled
from pytest_tfdebug.tracing.record.signatures import (
    input_name,
    inputs_by_name,
    keyword_leaf,
    named_leaves,
    parameters_by_path,
)
from pytest_tfdebug.tracing.record.sites import codes_of, forward_source, is_library
from pytest_tfdebug.tracing.values.digest import elements_of
from pytest_tfdebug.tracing.values.rerun import Rerun
from pytest_tfdebug.tracing.values.slicing import argument_at, statement_lines, text_of, unpacked_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from types import FrameType

    from pytest_tfdebug.data.comparison import ComparisonResult
    from pytest_tfdebug.parity.tensors.compared import Compared
    from pytest_tfdebug.records import Call, CallComparison, TensorRecord
    from pytest_tfdebug.tracing.trace import Trace


@dataclass(frozen=True)
class Circumstance:
    """A way in which a port ran otherwise than its reference."""

    claim: Claim
    # a block in which the port runs as the reference did; None where the port lacks what that takes
    within: Callable[[], AbstractContextManager[object]] | None
    # what is said where outputs differ in that block too, and are others than outside of it; empty: nothing is claimed
    otherwise: str = ""
    is_guess: bool = False  # whether it may not even run in that block: several are tried, and most mean nothing


def of_circumstances(
    compared: Compared, expected: Trace, again: Rerun, hold: Callable[[], ComparisonResult | None]
) -> Claim | None:
    """Return what is claimed of how a port was run or what its modules were given; None where that changes nothing.

    Args:
        compared: Both forwards, side by side.
        expected: The reference's forward.
        again: The port's.
        hold: Runs the port once more and holds it to the reference's.
    """
    for find in FINDERS:
        claim = None
        with second_look(again.notes, f"The forward raised as the reference ran it ({find.__name__})"):
            claim = next(filter(None, (_tried(each, compared, hold) for each in find(compared, expected, again))), None)
        if claim is not None:
            return claim
    return None


def _tried(found: Circumstance, compared: Compared, hold: Callable[[], ComparisonResult | None]) -> Claim | None:
    if found.within is None:
        return found.claim
    report = None
    with suppress(Exception) if found.is_guess else nullcontext(), found.within():
        report = hold()
    if report is not None and _agree(report.calls) and not _agree(compared.calls):
        return found.claim
    is_other = report is not None and _outputs(report.calls) != _outputs(compared.calls)
    return replace(found.claim, why=found.otherwise) if is_other and found.otherwise else None


def _agree(calls: Iterable[CallComparison]) -> bool:
    """Tell whether the outputs of a forward agree, as far as they were compared."""
    leaves = [leaf for item in calls if item.call.parent is None for leaf in item.outputs]
    measured = [leaf for leaf in leaves if leaf.is_measured]
    return bool(measured) and not any(leaf.problem in FAILING for leaf in measured)


def _outputs(calls: Iterable[CallComparison]) -> list[tuple[str, object]]:
    roots = (item for item in calls if item.call.parent is None)
    return [(leaf.leaf, leaf.metrics) for root in roots for leaf in root.outputs]


# --- the mode


def modes(compared: Compared, _expected: Trace, again: Rerun) -> Iterator[Circumstance]:
    """Yield the modules that are in another mode than their partners, or than all modules of the reference."""
    usual = {call.training for call in compared.expected}
    due = {
        item.call.path: item.expected.training if item.expected is not None else next(iter(usual))
        for item in compared.calls
        if item.expected is not None or len(usual) == 1
    }
    wrong = next((item.call for item in compared.calls if item.call.training != due.get(item.call.path)), None)
    if wrong is None or wrong.path not in due:
        return
    root = compared.calls[0].call.path
    here, there = ("training", "eval") if wrong.training else ("eval", "training")
    told = f"is in {here} mode, and the reference was in {there} mode"
    claim = Claim(wrong.path, "mode", Evidence.MODE, wrong.class_name, f"In {there} mode every output agrees.", told)
    wanted = {"" if path == root else path: mode for path, mode in due.items()}
    still = f"In {there} mode other values differ: what is wrong there is seen once the mode is right."
    yield Circumstance(claim, lambda: _in_modes(again.model, wanted), still)


@contextmanager
def _in_modes(model: torch.nn.Module, wanted: Mapping[str, bool]) -> Iterator[None]:
    """Run a block with modules in given modes; what is not named is in that of the module around it."""
    before = [(module, module.training) for module in model.modules()]
    try:
        for path, module in sorted(modules_by_path(model).items(), key=lambda each: each[0].count(".") + bool(each[0])):
            if path in wanted:
                module.train(wanted[path])
        yield
    finally:
        for module, mode in before:
            module.training = mode


# --- random numbers


def random_numbers(compared: Compared, _expected: Trace, again: Rerun) -> Iterator[Circumstance]:
    """Yield the line that draws from Python's or NumPy's generator, where the answer is another for other numbers."""
    outer, (torch_state, held), names = states(), again.random, list[str]()
    ended = again.model.register_forward_hook(lambda *_: names.extend(drawn(held, states())))
    try:
        again.run()
        ended.remove()
        if not names:
            return
        own = again.outputs()
        for name in names:
            seed(name, _OTHER_SEED)
        again.random = torch_state, {**held, **states()}
        other = again.outputs()
        again.random = torch_state, held
        if all(path in other and _is_same(tensor, other[path]) for path, tensor in own.items()):
            return
        line = _line_that_draws(again)
    finally:
        ended.remove()
        again.random = torch_state, held
        put_back(outer)
    call = _call_with(line, compared)
    told = f"draws from {listed(names)} here"
    why = "Its answer is another for other random numbers."
    yield Circumstance(Claim(call.path, "random", Evidence.RANDOM, call.class_name, why, told, line), None)


_OTHER_SEED = 20261


def _line_that_draws(again: Rerun) -> SourceRange | None:
    """Make a forward line by line, and return the first after which Python's or NumPy's generator holds another state.

    None where no line of Python that is not torch's does.
    """
    found: list[tuple[str, int]] = []
    last: tuple[str, int] | None = None
    before, codes = again.random[1], codes_of(again.model)
    own = tuple(sys.modules[name].__file__ or "" for name in ("random", "numpy") if name in sys.modules)
    generators = tuple(file.removesuffix("__init__.py") for file in own)  # what draws is no line of the model

    def watch(frame: FrameType, _event: str, _arg: object) -> Any:  # noqa: ANN401 - as sys.settrace has it
        nonlocal last, before
        is_begun = last is not None or id(frame.f_code) in codes  # what sets the model up seeds its numbers
        if not is_begun or is_library(frame.f_code.co_filename) or frame.f_code.co_filename.startswith(generators):
            return None
        now = states()
        if last is not None and drawn(before, now):
            found.append(last)
        before, last = now, (frame.f_code.co_filename, frame.f_lineno)
        return None if found else watch

    outer = sys.gettrace()
    sys.settrace(watch)
    try:
        again.outputs()
    finally:
        sys.settrace(outer)
    return SourceRange(found[0][0], *statement_lines(*found[0])) if found else None


# --- autocast


def under_autocast(compared: Compared, _expected: Trace, again: Rerun) -> Iterator[Circumstance]:
    """Yield the line at which a model enters ``torch.autocast`` itself, where a module gives another dtype."""
    if not any(leaf.problem == "dtype" for item in compared.calls for leaf in item.outputs):
        return
    entered: list[tuple[SourceRange, str]] = []
    with _no_autocast(entered):
        again.outputs()
    if entered:
        line, dtype = entered[0]
        call = _call_with(line, compared)
        why, told = "Without it every output agrees.", f"runs under torch.autocast here, in {dtype}"
        claim = Claim(call.path, "glue", Evidence.AUTOCAST, call.class_name, why, told, line)
        yield Circumstance(claim, lambda: _no_autocast([]))


@contextmanager
def _no_autocast(entered: list[tuple[SourceRange, str]]) -> Iterator[None]:
    """Run a block in which autocast changes no dtype, and note the lines that enter it, and to which dtype."""

    def enter(mode: torch.autocast) -> torch.autocast:
        frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - the documented way to the running frame
        while frame is not None and is_library(frame.f_code.co_filename):
            frame = frame.f_back
        if frame is not None and mode._enabled:  # noqa: SLF001 - it has no public name
            file = frame.f_code.co_filename
            entered.append((SourceRange(file, *statement_lines(file, frame.f_lineno)), dtype_name(mode.fast_dtype)))
        return mode

    with (
        patch.object(torch.autocast, "__enter__", enter),
        patch.object(torch.autocast, "__exit__", lambda *_: None),
    ):
        yield


def _call_with(line: SourceRange | None, compared: Compared) -> Call:
    """Return the innermost call whose forward holds a line; the root where none does."""
    around = [item.call for item in compared.calls if item.call.source is not None]
    holding = [call for call in around if line is not None and call.source and call.source.holds(line.file, line.first)]
    return next(reversed(holding), compared.calls[0].call)


# --- the compiler


def compiled(compared: Compared, _expected: Trace, again: Rerun) -> Iterator[Circumstance]:
    """Yield the first module that is compiled, where the reference was not."""
    first = first_opaque(again.model)
    if first is None:
        return
    call = next((item.call for item in compared.calls if item.call.path == first), compared.calls[0].call)
    told = "compiled it differs, uncompiled it agrees: the compiler changes the result"
    why = "The module is right as it is written: every output agrees if it runs so."
    claim = Claim(call.path, "compiler", Evidence.COMPILER, call.class_name, why, told)
    yield Circumstance(claim, lambda: uncompiled(again.model))


# --- shared modules

_SHARING = (Evidence.SHARED, Evidence.SHARED_HERE)


def shared(compared: Compared, expected: Trace, again: Rerun) -> Iterator[Circumstance]:
    """Yield the modules that are one in the reference and several in the port, or the other way around.

    The former are run as one. The latter cannot be run as two, for the port lacks the weights of the other: they are to
    blame if the first call that fails stands beside one of the other.
    """
    own, aliases = modules_by_path(again.model), modules_of(again.model).aliases
    own |= {other: own[one] for one, others in aliases.items() for other in others}
    pairs = [
        (compared.own_paths.get(one, one), compared.own_paths.get(other, other))
        for one, others in expected.aliases.items()
        for other in others
    ]
    both = [(one, other) for one, other in pairs if type(own.get(one)) is type(own.get(other)) and one in own]
    apart = {other: one for one, other in both if own[one] is not own[other]}
    outermost = {other: one for other, one in apart.items() if apart.get(holder(other)) != holder(one)}
    calls = [item.call for item in compared.calls]
    if any(_is_under(call, other) for other in outermost for call in calls):
        other, one = next(iter(outermost.items()))
        wrong = f"holds {other!r} beside {one!r}, and in the reference both are one module"
        claim = _of_sharing(calls, (other, one), Evidence.SHARED, wrong, "As one module every output agrees.")
        yield Circumstance(claim, lambda: _as_one(own, outermost))
    first = first_fault(CallTree(compared)).item if any(failing(item, "output") for item in compared.calls) else None
    if first is None or first.expected is None or any(leaf.problem for leaf in first.inputs):
        return
    here, there = first.call.path, first.expected.path
    if there in aliases.get(here, ()):
        while holder(there) in aliases.get(holder(here), ()):
            here, there = holder(here), holder(there)
        wrong = f"holds one module as {here!r} and {there!r}, and in the reference these are two"
        why = "All that it is given agrees, and what it returns for the second does not."
        yield Circumstance(_of_sharing(calls, (here, there), Evidence.SHARED_HERE, wrong, why), None)


def _of_sharing(calls: Sequence[Call], paths: tuple[str, str], evidence: Evidence, wrong: str, why: str) -> Claim:
    """Return a claim on the module with code around two that are one on one side alone."""
    first = next((call for call in calls if _is_under(call, paths[0])), None)
    at, around = None if first is None else first.called_at, call_around(calls, *paths)
    return Claim(around.path, "module", evidence, around.class_name, why, wrong, at)


def _is_under(call: Call, path: str) -> bool:
    return f"{call.path}.".startswith(f"{path}.")


@contextmanager
def _as_one(modules: Mapping[str, torch.nn.Module], outermost: Mapping[str, str]) -> Iterator[None]:
    """Run a block in which a port holds one module where it holds another."""
    try:
        for other, one in outermost.items():
            setattr(modules[holder(other)], last_part(other), modules[one])
        yield
    finally:
        for other in outermost:
            setattr(modules[holder(other)], last_part(other), modules[other])


# --- layers

#: Patterns of layers that are tried: each is a forward.
_PATTERNS = 8


def layers(compared: Compared, expected: Trace, again: Rerun) -> Iterator[Circumstance]:
    """Yield the layers of a port in the reference's pattern of kinds, local and global ones say."""
    theirs = {} if expected.again is None else expected.again.attributes()
    for found in islice(in_another_pattern(again.attributes(), theirs), _PATTERNS):
        name = next((item.call.class_name for item in compared.calls if item.call.path == found.first), "")
        told = f"is made as a layer of another kind: {found.told}"
        others = listed([str(each) for each in found.instead], len(found.instead))
        why = f"With the reference's pattern of layers, in which {others} are others than here, every output agrees."
        if name:
            claim = Claim(found.first, "module", Evidence.LAYERS, name, why, told, made_at(found, again.model))
            yield Circumstance(claim, lambda found=found: found.within(again.model), is_guess=True)  # type: ignore[misc]


# --- what modules are made with


def made_with(compared: Compared, expected: Trace, again: Rerun) -> Iterator[Circumstance]:
    """Yield the modules that hold others than the reference's do, made with the arguments of the reference's."""
    if not isinstance(expected.again, Rerun):
        return
    calls = [item.call for item in compared.calls]
    for made in made_otherwise(again.model, expected.again.model, compared.own_paths):
        around = call_around(calls, made.around)
        evidence = Evidence.MADE_OF if made.reference is None else Evidence.MADE_WITH
        why = f"With {made.other} every output agrees."
        claim = Claim(around.path, "module", evidence, around.class_name, why, made.told, made.lines, made.reference)
        yield Circumstance(claim, lambda made=made: made.within(again.model), is_guess=True)  # type: ignore[misc]


# --- arguments


@dataclass(frozen=True)
class _Lacking:
    """An argument that a module of the port takes and was not given, and that its partner was; or given as another."""

    module: torch.nn.Module
    call: Call  # the port's
    partner: Call  # the reference's
    tensor: torch.Tensor
    is_other: bool = False  # whether it was given another tensor


def arguments(compared: Compared, expected: Trace, again: Rerun) -> Iterator[Circumstance]:
    """Yield the arguments that modules take, that those of the reference were given and those of the port were not.

    The reference itself in a wrapper of the port may also be given other tensors than the reference was.
    """
    lacking: dict[str, list[_Lacking]] = {}
    for each, name in _lacking(compared, expected, again):
        lacking.setdefault(name, []).append(each)
    chosen = [(name,) for name in lacking] + ([tuple(lacking)] if len(lacking) > 1 else [])
    for some in chosen:
        outermost, taken = _outermost(lacking[some[0]][0], lacking)
        first = outermost.call
        parent = next(item.call for item in compared.calls if item.call.index == first.parent)
        told = _TOLD[outermost.is_other].format(name=first.name, given=listed([taken, *some[1:]]))
        given = "that of the reference" if outermost.is_other else "it"
        why = f"With {given} every output agrees."
        at = _made_at(outermost, taken) if outermost.is_other else _left_out_at(outermost, taken)
        claim = Claim(parent.path, "glue", Evidence.ARGUMENT, parent.class_name, why, told, at)
        yield Circumstance(claim, lambda some=some: _given({name: lacking[name] for name in some}))  # type: ignore[misc]


_TOLD = {
    False: "{name!r} takes {given} and was given none; the reference had one",
    True: "{name!r} is given another {given} than the reference",
}


def _left_out_at(lacking: _Lacking, name: str) -> SourceRange | None:
    """Return the lines that should give an argument: the call, or what makes the mapping that it unpacks.

    Where the reference's call names the argument, so should the port's. If it does, a condition may have left it None.
    """
    own, there = lacking.call.called_at, lacking.partner.called_at
    text = "" if there is None else there.code or text_of(there.file, there.first, there.last)
    is_named = re.search(rf"\b{re.escape(name)}\s*=", text) is not None
    if own is None:
        return None
    left = left_none_at(own, last_part(lacking.call.path), name)
    return left or (own if is_named else unpacked_at(own) or own)


def _made_at(lacking: _Lacking, name: str) -> SourceRange | None:
    """Return the lines that make an argument of a call, or the call."""
    own, names = lacking.call.called_at, lacking.call.parameters
    place = names.index(name) if name in names else len(names)
    return None if own is None else argument_at(own, last_part(lacking.call.path), name, place) or own


def where_made(claim: Claim, compared: Compared, reference: Callable[[], Rerun]) -> Claim:
    """Return a claim on an argument or on shared modules with the statement that made it so.

    That is the one in the function that is not the reference's; of a constructor the last of several, which makes them.
    """
    item = next((each for each in compared.calls if each.call.path == claim.path), None)
    if claim.evidence not in (Evidence.ARGUMENT, *_SHARING) or item is None or item.expected is None:
        return claim
    path = "" if item.expected.parent is None else item.expected.path
    module = modules_by_path(reference().model).get(path)
    lines, at, ran = item.call.source, claim.source, None if module is None else forward_source(module)
    texts = None if ran is None else texts_of(item, None, ran)
    is_made = claim.evidence in _SHARING
    if lines is None or at is None or texts is None or not (is_made or lines.holds(at.file, at.first)):
        return claim
    differences = texts.of_init() if is_made else texts.differences(SourceRange(lines.file, lines.first, at.last))
    if not differences or (len(differences) > 1 and not is_made):
        return claim
    own, there, name, _, callers = differences[-1]
    return replace(claim, source=own, reference=there, function=name if callers else "", callers=callers)


def _outermost(first: _Lacking, lacking: Mapping[str, list[_Lacking]]) -> tuple[_Lacking, str]:
    """Return the outermost call that lacks what a call lacks, and as which argument: it had none to hand on."""
    every = [(name, each) for name, some in lacking.items() for each in some]
    name, at = next((name, each) for name, each in every if each is first)
    while True:
        around = (it for it in every if it[1].call.index == at.call.parent and _is_same(it[1].tensor, first.tensor))
        found = next(around, None)
        if found is None:
            return at, name
        name, at = found


def _is_same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype and bool((one == other).all())


def _lacking(compared: Compared, expected: Trace, again: Rerun) -> Iterator[tuple[_Lacking, str]]:
    """Yield what calls lack; the port runs once more only where its own tensors leave that open."""
    modules = modules_by_path(again.model)
    taken = parameters_by_path(modules)
    partners = _partners(compared, modules, taken, expected)
    theirs, there = {(each.path, each.call): each for each in expected.calls}, inputs_by_name(expected.calls)
    leaves = {it.call.index: [leaf.leaf for leaf in it.inputs if leaf.problem != "missing"] for it in compared.calls}
    here = named_leaves(leaves, {item.call.index: item.call.parameters for item in compared.calls})
    suspects = []
    for call in (item.call for item in compared.calls if item.call.parent is not None):
        partner = theirs.get((partners.get(call.path, ""), call.call))
        records = {} if partner is None else there[partner.index]
        names = [name for name in records if name in taken[call.path] and name not in here[call.index]]
        if partner is not None and partner.parent is None:
            names += [name for name in records if name in here[call.index]]
        suspects += [(call, partner, name, records[name]) for name in names if partner is not None]
    given = _arguments_of(again, {call.path for call, *_ in suspects}) if suspects else {}
    roots = [record for call in expected.calls[:1] for record in call.inputs]
    for call, partner, name, record in suspects:
        tensor = _whole(record, name, roots, partner)
        if tensor is None or (call.path, call.call) not in given:
            continue
        own = given[call.path, call.call].get(name)
        if own is None or (partner.parent is None and _is_another(own, tensor)):
            yield _Lacking(modules[call.path], call, partner, tensor, own is not None), name


def _is_another(own: Any, tensor: torch.Tensor) -> bool:  # noqa: ANN401 - any argument
    """Tell whether an argument is a tensor of the same form and kind with other elements."""
    is_alike = isinstance(own, type(tensor)) and own.shape == tensor.shape and own.dtype == tensor.dtype
    return is_alike and not _is_same(own.to(tensor.device), tensor)


def _whole(record: TensorRecord, name: str, roots: list[TensorRecord], partner: Call) -> torch.Tensor | None:
    """Return the elements of an argument: as recorded, or the model's input of that form, one of its name first."""
    if record.tensor is not None:
        return record.tensor
    alike = [
        each for each in roots if each.tensor is not None and (each.shape, each.dtype) == (record.shape, record.dtype)
    ]
    alike.sort(key=lambda each: input_name(each.leaf, partner.parameters).strip("[]'") not in name)
    return alike[0].tensor if alike else None


def _partners(
    compared: Compared,
    modules: Mapping[str, torch.nn.Module],
    parameters: Mapping[str, tuple[str, ...]],
    expected: Trace,
) -> dict[str, str]:
    """Return the reference's path of each module of a port that stands for one of the reference's of the same class.

    That is the reference itself in a wrapper, or a module whose path ends as the reference's does. Of the rest those
    are paired in the order of their calls of which both sides have as many of a class, whatever their names.
    """
    classes = {call.path: call.class_name for call in expected.calls}
    root = expected.calls[0].path
    found: dict[str, str] = {}
    for path, taken in parameters.items():
        name = type(modules[path]).__name__
        if len(taken) == 1:  # it was given that, or it could not have been called
            continue
        if path and name == classes[root]:
            found[path] = root
        parts = path.split(".")
        ends = (".".join(parts[start:]) for start in range(len(parts)))
        partner = next((end for end in ends if end and classes.get(end) == name), None)
        if partner is not None:
            found.setdefault(path, partner)
    theirs, own = _by_class(expected.calls), _by_class(item.call for item in compared.calls)
    for name, paths in own.items():
        if len(paths) == len(theirs.get(name, ())):
            for path, partner in zip(paths, theirs[name], strict=True):
                found.setdefault(path, partner)
    return found


def _by_class(calls: Iterable[Call]) -> dict[str, list[str]]:
    """Return the paths of the modules of each class in the order of their first calls, without the root."""
    first = {call.path: call.class_name for call in calls if call.parent is not None}
    found: dict[str, list[str]] = {}
    for path, name in first.items():
        found.setdefault(name, []).append(path)
    return found


def _arguments_of(again: Rerun, among: Iterable[str]) -> dict[tuple[str, int], dict[str, object]]:
    """Run a port once more, and return what each call of some modules was given, by name."""
    found: dict[tuple[str, int], dict[str, object]] = {}

    def note(key: tuple[str, int], named: dict[str, Any]) -> dict[str, Any]:
        found[key] = named
        return named

    with _with_inputs(modules_by_path(again.model), among, note):
        again.run()
    return found


@contextmanager
def _given(lacking: Mapping[str, list[_Lacking]]) -> Iterator[None]:
    """Run a block in which modules are given what they lack."""
    modules = {each.call.path: each.module for some in lacking.values() for each in some}
    tensors: dict[tuple[str, int], dict[str, torch.Tensor]] = {}
    for name, some in lacking.items():
        for each in some:
            tensors.setdefault((each.call.path, each.call.call), {})[name] = each.tensor
    with _with_inputs(modules, modules, lambda key, named: {**named, **tensors.get(key, {})}):
        yield


# --- exchanged arguments

#: Greatest relative L2 error at which two tensors are taken for one: what is made of it is held to the reference after.
_ONE = 1e-2


def exchanged(compared: Compared, expected: Trace, again: Rerun) -> Iterator[Circumstance]:
    """Yield the calls that were given two tensors of which each should stand in the place of the other."""
    theirs = {(each.path, each.call): each for each in expected.calls}
    wrong = {
        (item.call.path, item.call.call): [leaf.leaf for leaf in item.inputs if leaf.problem in FAILING]
        for item in compared.calls
        if item.expected is not None and item.call.parent is not None
    }
    wrong = {key: leaves for key, leaves in wrong.items() if len(leaves) > 1}
    given = _arguments_of(again, {path for path, _ in wrong}) if wrong else {}
    swapped: dict[tuple[str, int], tuple[str, str]] = {}
    within: set[int] = set()  # calls that are right once one around them is
    for item in compared.calls:
        key = (item.call.path, item.call.call)
        if item.call.parent in within:
            within.add(item.call.index)
            continue
        partner = None if item.expected is None else theirs.get((item.expected.path, item.expected.call))
        if key not in wrong or key not in given or partner is None:
            continue
        mine = {leaf.path: leaf.tensor for leaf in walk_inputs((), given[key])}
        there = {keyword_leaf(record.leaf, partner.parameters): record for record in partner.inputs}
        for one, other in combinations([keyword_leaf(leaf, item.call.parameters) for leaf in wrong[key]], 2):
            if _is_one(mine.get(one), there.get(other)) and _is_one(mine.get(other), there.get(one)):
                swapped[key] = one, other
                within.add(item.call.index)
    if not swapped:
        return
    first = next(item.call for item in compared.calls if (item.call.path, item.call.call) in swapped)
    parent = next(item.call for item in compared.calls if item.call.index == first.parent)
    one, other = (each[1:].replace("'", "").replace("]", "", 1) for each in swapped[first.path, first.call])
    told = f"{first.name!r} is given {one} in place of {other}, and the other way around"
    why = "With both exchanged every output agrees."
    claim = Claim(parent.path, "glue", Evidence.ARGUMENT, parent.class_name, why, told, first.called_at)
    yield Circumstance(claim, lambda: _exchanged(again, swapped), is_guess=True)


def _is_one(own: torch.Tensor | None, record: TensorRecord | None) -> bool:
    """Tell whether a tensor is the one that was recorded, as far as it was kept."""
    if own is None or record is None or tuple(own.shape) != record.shape:
        return False
    kept = record.tensor if record.digest is None else record.digest.elements
    if kept is None:
        return False
    elements = elements_of(own, kept.numel()).double().cpu()
    return relative_l2(elements, kept.flatten().double().cpu()) < _ONE


@contextmanager
def _exchanged(again: Rerun, swapped: Mapping[tuple[str, int], tuple[str, str]]) -> Iterator[None]:
    """Run a block in which some calls are given two tensors in the places of each other."""

    def change(key: tuple[str, int], named: dict[str, Any]) -> dict[str, Any]:
        if key not in swapped:
            return named
        one, other = (next(it.tensor for it in walk_inputs((), named) if it.path == path) for path in swapped[key])
        return dict(replaced(named, lambda tensor: other if tensor is one else one if tensor is other else tensor))

    with _with_inputs(modules_by_path(again.model), {path for path, _ in swapped}, change):
        yield


@contextmanager
def _with_inputs(
    modules: Mapping[str, torch.nn.Module],
    among: Iterable[str],
    change: Callable[[tuple[str, int], dict[str, Any]], dict[str, Any]],
) -> Iterator[None]:
    """Run a block in which each call of some modules is given what its path, its number and its inputs are made to."""
    handles, count, taken = [], dict[str, int](), parameters_by_path(modules)

    def give(path: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401
        number = count.get(path, 0)
        count[path] = number + 1
        return (), change((path, number), {**dict(zip(taken[path], args, strict=False)), **kwargs})

    try:
        for path in among:
            hook = lambda _, args, kwargs, path=path: give(path, args, kwargs)  # noqa: E731 - with its path
            handles.append(modules[path].register_forward_pre_hook(hook, with_kwargs=True))
        yield
    finally:
        for handle in handles:
            handle.remove()


#: What may be otherwise around the modules, in the order in which it is tried.
FINDERS = (modes, random_numbers, under_autocast, compiled, shared, layers, made_with, arguments, exchanged)
