"""A proof as the record that a report shows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING

from pytest_tfdebug.errors import counted
from pytest_tfdebug.parity.explain.proof import Live, prove
from pytest_tfdebug.parity.finding import Finding
from pytest_tfdebug.parity.value_culprit import AGREE, culprit_of, lines_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from pytest_tfdebug.parity.explain.forward import Forward
    from pytest_tfdebug.parity.explain.proof import Proof, Trial
    from pytest_tfdebug.parity.explain.search import Mend
    from pytest_tfdebug.parity.value_culprit import Explained
    from pytest_tfdebug.records import Call, Culprit
    from pytest_tfdebug.tracing.operators import Line

#: Changes that are told where several cannot be told apart.
_TOLD = 2
#: Changes of what an operator is given: a module that is called with the wrong value is none the worse.
_OF_WHAT_IS_GIVEN = ("operand", "added", "form", "call left out", "twice")


def with_proof(look: Explained, trial: Trial) -> Explained:
    """Return what values say of two forwards with a proof, where one can be had.

    Args:
        look: What they say.
        trial: What is needed to run the port again with a change.
    """
    if look.pair is None or look.culprit is None or look.culprit.kind == "random":
        return look
    pairs = look.pair.pair_results(AGREE)
    is_widened = look.pair.port.table.is_widened or look.pair.reference.table.is_widened
    if is_widened:  # the outputs are those in half precision
        trial = trial._replace(port=Live(trial.port.tape, {}), reference=Live(trial.reference.tape, {}))
    try:
        proof = prove(look.pair, [*pairs.differing, *pairs.agreeing], trial)
    except Exception:  # noqa: BLE001 - an explanation that fails must not cost the report on the failure
        return look
    if proof is None or not proof.mends:
        return look
    known = look.pair.back.known if proof.is_reverse else look.pair.weights.known
    findings = [_finding(proof, mend, known) for mend in proof.mends]
    paths = {finding.call.path for finding in findings} | {mend.change.call for mend in proof.mends}
    if proof.is_reverse:
        told = _of_reference(look.culprit, proof, paths)
        return replace(look, culprit=told, proved_at=frozenset(paths))
    told = replace(culprit_of(findings[0], look.pair), certain=_is_one_place(proof), proved=sentence(proof))
    return replace(look, culprit=told, finding=findings[0], proved_at=frozenset(paths))


def _of_reference(named: Culprit, proof: Proof, paths: Collection[str]) -> Culprit:
    """Return a culprit with the lines of the reference that are proved to be done otherwise in the port."""
    line = _line(proof.forward, proof.mends[0])
    lines = None if line is None else lines_of(line)
    is_there = named.path in paths or (lines is not None and lines == named.reference)
    is_certain = is_there and _is_one_place(proof)
    return replace(named, reference=lines or named.reference, certain=is_certain, proved=sentence(proof))


def in_place_of(named: Culprit | None, look: Explained) -> Culprit | None:
    """Return who is to blame where calls name one, and a proof perhaps another or some lines of the same.

    Args:
        named: Whom calls name.
        look: What values say.
    """
    proved = look.culprit
    if named is None or proved is None or not proved.proved or named.kind in ("inputs", "dtype"):
        return named
    if named.path not in look.proved_at:
        return proved if proved.certain else replace(named, proved=proved.proved, certain=False)
    is_same = named.path == proved.path and named.kind not in ("not-called", "extra-call")
    return replace(
        named,
        source=proved.source if is_same and proved.source is not None else named.source,
        reference=proved.reference or named.reference,
        certain=proved.certain or named.certain,
        proved=proved.proved,
    )


def sentence(proof: Proof) -> str:
    """Return what mends a forward: "with eps 1e-06 instead of 1e-05 at my_bert.py:88 every output agrees"."""
    texts = list(dict.fromkeys(_told(proof.forward, mend) for mend in proof.mends))
    more = f" (and {len(texts) - _TOLD} other ways)" if len(texts) > _TOLD else ""
    told = f"{', or with '.join(texts[:_TOLD])}{more}"
    if proof.is_reverse:
        return f"the reference gives every output of this with {told}"
    return f"with {told} every output agrees"


def _told(forward: Forward, mend: Mend) -> str:
    line = _line(forward, mend)
    where = f" at {PurePath(line.file).name}:{line.line}" if line is not None else ""
    many = f" ({counted(len(mend.places), 'time')})" if len(mend.places) > 1 else ""
    return f"{mend.change.text}{where}{many}"


def _line(forward: Forward, mend: Mend) -> Line | None:
    lines = forward.lines_of(mend.places[0]) if mend.places else ()
    return lines[0] if lines else None


def _is_one_place(proof: Proof) -> bool:
    """Tell whether all changes that mend are of one line, or of the same weights."""
    lines = {_line(proof.forward, mend) for mend in proof.mends}
    return len({(line.file, line.line) for line in lines if line is not None}) == 1 and None not in lines


def _finding(proof: Proof, mend: Mend, known: frozenset[str]) -> Finding:
    """Return what a change says: of a weight that the other side has nowhere, that the weight is wrong.

    Args:
        proof: What mends a forward.
        mend: The change.
        known: Names of parameters that the other side has under any name.
    """
    forward = proof.forward
    side = forward.side
    if not mend.places:
        values = [side.values[index] for index in mend.change.instead]
        names = tuple(value.name for value in values)
        user = side.values[side.users[values[0].index][0]]
        return Finding("weights", side.call_of(user), [user], None, None, names)
    value = side.values[forward.outs_of(mend.places[0])[0]]
    name = mend.change.weight
    if name and name not in known:
        return Finding("weights", side.call_of(value), [value], None, None, (name,))
    return Finding("proved", _call_to_blame(forward, mend, value.index), [value], None, None)


def _call_to_blame(forward: Forward, mend: Mend, index: int) -> Call:
    """Return the call whose code does what is changed: the caller's, where a call is given something else."""
    side, change = forward.side, mend.change
    call = side.call_of(side.values[index])
    is_given = {i for _, i in side.table.inputs.get(call.index, ())} & set(forward.tape.steps[mend.places[0]].refs)
    is_made = index in {i for _, i in side.table.outputs.get(call.index, ())}
    if change.kind in _OF_WHAT_IS_GIVEN and call.parent is not None and (is_given or is_made):
        return side.calls[call.parent]
    return call
