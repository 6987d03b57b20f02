"""Which line of the code that made a port gave a parameter its numbers, by the operators that ran there.

Before: ``blocks.0.qkv.weight`` is wrong, which ``fused(f"blocks.{i}.qkv", name)`` of ``convert`` gives to it. After:
``rows.view(3, heads, size, width)`` in ``fused``, which lays out nothing that is right.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, TypeAlias

from pytest_tfdebug.parity.closeness import AGREE
from pytest_tfdebug.parity.text.loading import generic_parts, telling_part
from pytest_tfdebug.parity.text.text_differences import function_around
from pytest_tfdebug.records import SourceRange

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from pytest_tfdebug.parity.proof.forward_pair import ForwardPair
    from pytest_tfdebug.parity.proof.weights import Weights
    from pytest_tfdebug.values import Line, StepBefore

_At: TypeAlias = "tuple[str, int]"

#: Operators that hand numbers on as they are.
_COPIES = frozenset({"copy_", "clone", "detach", "alias", "_to_copy", "lift_fresh", "set_", "expand", "contiguous"})
#: What a lookup in a state dict is.
_LOOKUP = "alias"
#: Operators that cut something into parts, some of which may be right, and those that join parts.
_CUTS = frozenset({"split", "split_with_sizes", "unbind", "slice", "select"})
_JOINS = frozenset({"cat", "stack"})
#: More lines than this name none.
_WIDEST = 4
#: What the words of a name stand between.
_WORDS = re.compile(r"[^a-zA-Z0-9]+")


def converted_in(names: Sequence[str], pair: ForwardPair) -> SourceRange | None:
    """Return the lines to blame for the numbers of some parameters of a port; None where it is not known how they came.

    What is used in a product that the reference computes as well is right.
    """
    known = pair.port.table.conversions
    right = [name for name in known if name not in names and _is_used_well(name, pair)] if known else []
    return converted_at(names, known, right, pair.weights)


def converted_at(
    names: Sequence[str], known: Mapping[str, Sequence[StepBefore]], right: Collection[str], weights: Weights
) -> SourceRange | None:
    """Return the lines to blame for the numbers of some parameters; None where it is not known how they came.

    Args:
        names: The parameters.
        known: The operators by which parameters got their numbers, the last first.
        right: Names of parameters that are right: lines that made them count for less.
        weights: Which of them hold what of the reference.
    """
    unknown_first = sorted(names, key=lambda name: name not in weights.unknown)
    made = [known[name] for name in unknown_first if name in known]
    if not made or not made[0] or (names[0] in weights.unknown and all(map(_is_begun, made[0]))):
        return None
    return next(filter(None, _likeliest_first(names, made, known, right, weights)), None)


def _likeliest_first(
    names: Sequence[str],
    made: Sequence[Sequence[StepBefore]],
    known: Mapping[str, Sequence[StepBefore]],
    right: Collection[str],
    weights: Weights,
) -> Iterator[SourceRange | None]:
    """Yield the lines that may be to blame, or None where there are none of a kind."""
    steps, well = made[0], {name: known[name] for name in right if name in known}
    shared = {_at(line) for each in well.values() for line in _lines_of(each)}
    laid_out = [step for step in steps if step.operator not in _COPIES]
    own = [step for step in laid_out if _at(step.lines[0]) not in shared]
    if names[0] in weights.unknown:  # numbers that the reference has nowhere were computed
        own = [step for step in own if not step.is_moved] or own
    if weights.is_misplaced(names[0]):
        yield _chosen(steps, shared, (_LOOKUP,))
    generic = generic_parts(known)
    own_parts = {telling_part(name, generic) for name in names}
    others = [each for name, each in known.items() if telling_part(name, generic) not in own_parts]
    shared |= {_at(line) for each in others for line in _lines_of(each)}
    looked_up = _chosen(steps, shared, (_LOOKUP,))
    if len(made) > 1:  # the parts were taken one for the other
        yield _nearest_to_source([step for step in laid_out if _is_cut(step) and all(step in each for each in made)])
    yield _of_parts(own[-1:], names, weights)
    yield _nearest_to_source(own)
    if laid_out:
        yield looked_up
    yield _lacking(steps, well, ()) if laid_out else _lacking(steps, known, well.values())
    yield _of_parts([step for step in laid_out if step.operator in _JOINS], names, weights)
    yield _nearest_to_source([step for step in laid_out if _is_cut(step)])
    if not laid_out:
        yield looked_up
        yield _chosen(steps, shared, _COPIES)


def _is_begun(step: StepBefore) -> bool:
    """Tell whether an operator is a constructor's: what only that has made was never loaded."""
    return any(line.function == "__init__" for line in step.lines)


def _is_cut(step: StepBefore) -> bool:
    return step.operator in _CUTS


def _of_parts(steps: Sequence[StepBefore], names: Sequence[str], weights: Weights) -> SourceRange | None:
    """Return the statement that names the parts which the last of some operators joins, in the functions around it."""
    lines = steps[-1].lines if steps and steps[-1].operator in _JOINS else ()
    words = [{*_WORDS.split(each.replace("_", "."))} for each in weights.partners.get(names[0], ())]
    telling = [each.difference(*(other for other in words if other is not each)) for each in words]
    if len(telling) < 2 or not all(telling):  # noqa: PLR2004 - an order is of two at least
        return None
    for line in lines:
        around = function_around(SourceRange(line.file, line.line, line.line))
        for node in ast.walk(around[2]) if around is not None else ():
            if isinstance(node, (ast.Assign, ast.Expr, ast.Return)) and _says(node, telling):
                inside = (each for each in ast.walk(node) if isinstance(each, ast.expr) and _says(each, telling))
                least = min(inside, key=lambda each: (each.end_lineno or 0) - each.lineno)  # one entry of a dict
                return SourceRange(line.file, least.lineno, least.end_lineno or least.lineno)
    return None


def _says(node: ast.AST, words: Iterable[set[str]]) -> bool:
    """Tell whether the strings of a part of a program have a word of each of some sets."""
    strings = (each.value for each in ast.walk(node) if isinstance(each, ast.Constant) and isinstance(each.value, str))
    said = {word for string in strings for word in _WORDS.split(string.replace("_", "."))}
    return all(not said.isdisjoint(each) for each in words)


def _nearest_to_source(steps: Sequence[StepBefore]) -> SourceRange | None:
    """Return the lines of the function that is nearest to what a parameter is made from; None without any."""
    if not steps:
        return None
    last = steps[-1].lines[0]
    inner = [each.lines[0] for each in steps]
    lines = [line.line for line in inner if (line.file, line.function) == (last.file, last.function)]
    low, high = min(lines), max(lines)
    return _range(last, low, high) if high - low < _WIDEST else _range(last, last.line, last.line)


def _chosen(steps: Sequence[StepBefore], shared: set[_At], operators: Collection[str]) -> SourceRange | None:
    """Return where it was chosen what is looked up or copied: the innermost line that nothing else came by."""
    for step in reversed([each for each in steps if each.operator in operators]):
        line = next((each for each in step.lines if _at(each) not in shared), None)
        if line is not None:
            return _range(line, line.line, line.line)
    return None


def _lacking(
    steps: Sequence[StepBefore], others: Mapping[str, Sequence[StepBefore]], right: Iterable[Sequence[StepBefore]]
) -> SourceRange | None:
    """Return where a parameter is laid out that is otherwise made alike; None where none is, or several lines do.

    It has been through each line on which this one was looked up and laid out, and one more. Nothing is lacking where
    one that is right has been through no more than this one.
    """
    mine = set(map(_at, _lines_told(steps)))
    if not mine or any(set(map(_at, _lines_told(made))) == mine for made in right):
        return None
    found: set[_At] = set()
    for made in others.values():
        more = [step for step in made if step.operator not in _COPIES and _at(step.lines[0]) not in mine]
        if more and mine <= set(map(_at, _lines_told(made))):
            found.add(_at(_where_called(more[-1].lines, steps)))
    if len(found) != 1:
        return None
    ((file, number),) = found
    return SourceRange(file, number, number)


def _lines_told(steps: Iterable[StepBefore]) -> Iterator[Line]:
    """Yield the innermost line of each operator that looks up or lays out."""
    return (step.lines[0] for step in steps if step.operator == _LOOKUP or step.operator not in _COPIES)


def _where_called(lines: Sequence[Line], steps: Iterable[StepBefore]) -> Line:
    """Return the innermost of some lines that is in a function which made a parameter, too."""
    functions = {(line.file, line.function) for step in steps for line in step.lines}
    return next((line for line in lines if (line.file, line.function) in functions), lines[0])


def _lines_of(steps: Iterable[StepBefore]) -> Iterator[Line]:
    return (line for step in steps for line in step.lines)


def _range(line: Line, low: int, high: int) -> SourceRange:
    return SourceRange(line.file, low, high)


def _at(line: Line) -> _At:
    return line.file, line.line


def _is_used_well(name: str, pair: ForwardPair) -> bool:
    """Tell whether the reference computes what the port computes from a parameter."""
    uses = [used for value in pair.port.values_of(name) for used in pair.port.uses(value) if used.tells]
    return bool(uses) and all(pair.matches.within(used.index, AGREE) for used in uses)
