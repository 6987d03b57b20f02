"""One finished check as plain data: what the JSON file holds, and all that the page is made from.

Every check that ends, passed or failed, leaves one :class:`CheckRecord`. It holds no tensor, no module and no
exception, so it can be sent between processes, written to a file, and read by who has neither torch nor the model.
"""

from __future__ import annotations

import hashlib
import math
import re
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import msgspec

from pytest_tfdebug.records import Coverage, CulpritRecord, SearchEnd, SourceRange, Worst  # noqa: TC001 - msgspec reads the annotations

#: Version of the record's form; it grows by one when a key changes its meaning or goes. New keys do not change it.
SCHEMA = 1

Status = Literal["passed", "failed"]
#: What became of a call: compared and within tolerance, compared and outside, nothing like it on the other side, or
#: there and not compared.
CallState = Literal["agrees", "differs", "unpaired", "not compared"]
#: How two calls were put side by side: by their names, by what they compute, or by a suggested ``rename=``.
PairedBy = Literal["name", "values", "suggested"]
#: Whether a value has a like one on the other side, leads only to such ones, or neither.
ValueState = Literal["same", "explained", "open"]

_NOT_A_NAME = re.compile(r"[^A-Za-z0-9]+")
_LONGEST_NAME = 60


@dataclass(frozen=True)
class SourceText:
    """A piece of source with the lines that are meant."""

    file: str  # path of the file
    first: int  # number of the first line of ``text``
    text: tuple[str, ...]
    marked: SourceRange | None = None  # the lines that are meant; None where the piece is shown for comparison alone


@dataclass(frozen=True)
class CallRecord:
    """One call of a module."""

    index: int  # its number; calls are listed as they began
    path: str
    class_name: str  # the module's class
    call: int  # call index of the module, from 0
    parent: int | None  # ``index`` of the enclosing call
    ended: int  # its place in the order in which calls ended
    state: CallState  # what became of it
    share: float | None = None  # greatest difference over what is allowed there; None where it was not measured
    max_abs: float | None = None  # greatest absolute difference
    allowed: float | None = None  # what is allowed there
    relative_l2: float | None = None  # norm of the difference over the norm of the expected tensor
    shape: tuple[int, ...] = ()  # of the tensor that these are of
    dtype: str = ""
    source: SourceRange | None = None  # lines of its forward


@dataclass(frozen=True)
class CallPair:
    """A call beside the one of the reference that stands for it, each by its ``index``."""

    own: int
    reference: int
    by: PairedBy


@dataclass(frozen=True)
class ValueRecord:
    """What one operator computed, near the culprit."""

    index: int  # its number on its side
    operator: str  # the operator; empty for what was there before
    name: str  # of a parameter, buffer or input
    module: str  # module path of the call that computed it
    source: SourceRange | None  # the line that asked for it
    code: str  # the text of that line
    shape: tuple[int, ...]
    dtype: str
    producers: tuple[int, ...]  # values that it was computed from, by ``index``
    state: ValueState  # whether the other side has it
    partner: int | None = None  # the other side's value that is the same, by ``index``
    is_culprit: bool = False  # the verdict names it


@dataclass(frozen=True)
class Histogram:
    """Counts of elements between edges, one more than counts."""

    edges: tuple[float, ...]  # where the bins begin and end, in the tensor's units, or their decimal logarithms
    expected: tuple[int, ...]  # elements of the expected tensor
    actual: tuple[int, ...]  # elements of the actual tensor


@dataclass(frozen=True)
class ElementGrid:
    """The elements of a tensor that differs, as a grid; of a large one the worst element of each block."""

    tensor: str  # which tensor this is
    shape: tuple[int, ...]
    axes: tuple[str, ...]  # a name for each axis, ``batch``
    rows: int  # number of rows of the grid: all axes but the last
    columns: int  # number of columns: the last axis
    block: tuple[int, int]  # rows and columns of the tensor behind one cell
    expected: tuple[float, ...]  # the elements, row by row
    actual: tuple[float, ...]
    allowed: tuple[float, ...]  # what was allowed at each
    histogram: Histogram | None = None  # of all elements
    # of the decimal logarithms of the absolute differences, those that are 0 left out
    differences: Histogram | None = None


@dataclass(frozen=True)
class ForwardRecord:
    """Two forwards side by side."""

    own: tuple[CallRecord, ...] = ()  # calls of the forward under test
    reference: tuple[CallRecord, ...] = ()  # calls of the one it is held to
    pairs: tuple[CallPair, ...] = ()  # which belong together
    # what ``share`` is a share of: the ``tolerance`` of elements, or that of ``fingerprints`` where names do not pair
    measure: Literal["tolerance", "fingerprints"] = "tolerance"
    culprit: int | None = None  # ``index`` of the culprit's own call; None where it has none
    sources: tuple[SourceText | None, SourceText | None] = (None, None)  # the culprit's source, and the reference's
    values: tuple[ValueRecord, ...] = ()  # values around the culprit
    reference_values: tuple[ValueRecord, ...] = ()  # those of the reference
    elements: ElementGrid | None = None  # a tensor that differs


@dataclass(frozen=True)
class HeadroomRecord:
    """How near the values of a module come to the end of a dtype's range."""

    path: str
    class_name: str  # the module's class
    place: str  # which tensor, ``output[0]``
    forward: int  # number of the forward
    value: float  # its largest absolute value, or the square of it
    limit: float  # largest number of the dtype
    dtype: str
    is_square: bool = False  # the value is a square, as a norm computes it
    is_culprit: bool = False  # the verdict names this tensor

    @property
    def ratio(self) -> float:
        """How many times larger the value could be."""
        return self.limit / self.value if self.value else math.inf


@dataclass(frozen=True)
class LoadRecord:
    """One ``from_pretrained``, and the weights that did not fit."""

    model: str
    source: str
    at: SourceRange | None = None  # the line of the call
    missing: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()
    mismatched: tuple[str, ...] = ()
    # how many tensors had each verdict, for a load whose numbers were looked at; a dict has no hash, records have one
    verdicts: dict[str, int] = field(default_factory=dict, kw_only=True, hash=False)


#: Why a golden cannot see an input that does nothing at all.
NO_EFFECT = "no output depends on it"


@dataclass(frozen=True)
class BlindRecord:
    """What inputs cannot see: a field of a configuration at its own value, a weight that does nothing, an order."""

    field: str  # name of the field: ``sliding_window``, ``text_config.hidden_act``; of weights; of inputs
    own: str  # its value, as it is typed; empty where it has none
    value: str  # the value that shows it
    why: str  # what a model computes with that does not read the field, and that gives the same
    instead: str = ""  # another value that gives the same, as it is typed; empty where it is none, or neutral

    @property
    def told(self) -> str:
        """The field with its value."""
        return f"{self.field}={self.own}" if self.own else self.field

    @property
    def in_short(self) -> str:
        """The field and what to use; where a port passes that has another value, and not any port, with that value."""
        return f"{self.told} ({f'{self.instead} gives the same, ' if self.instead else ''}use {self.value})"


@dataclass(frozen=True)
class FieldRecord:
    """A field of a configuration that was moved; see :class:`pytest_tfdebug.sweeping.result.FieldRow`."""

    field: str  # name of the field
    verdict: str  # what became of it
    own: str  # its value, as text
    value: str  # the value it was moved to
    reference_moved: float  # how far the reference moved, relative to its output
    port_moved: float | None  # how far the port moved; None where that is not known
    error: float | None  # how far the port is from the reference at the new value
    note: str  # what else is known
    known: str  # why it is known to fail
    culprit: str  # the answer of the comparison at the new value, in a line


@dataclass(frozen=True)
class SurvivorRecord:
    """A change of a port that its test does not catch."""

    file: str  # path of the port's file
    line: int
    before: str  # the text of the line
    after: str  # what was in its place
    shown_by: str  # the variant of the port that shows it; empty where none does, as of what changes nothing


@dataclass(frozen=True)
class LineRecord:
    """What became of the changes of one line of a port."""

    file: str  # path of the port's file
    line: int
    caught: int  # changes that the test catches
    missed: int  # changes that it does not catch, and that a variant of the port shows
    same: int  # changes that it does not catch, and that no variant shows


@dataclass(frozen=True)
class KillRecord:
    """How many changes of a port its test catches."""

    files: tuple[str, ...]  # names of the port's files
    known: int  # changes that there are
    tried: int
    caught: int
    raised: int  # changes with which the port does not run: they say nothing of the test
    survivors: tuple[SurvivorRecord, ...] = ()  # those that a variant shows first
    variants: tuple[str, ...] = ()  # ways in which the port was called to tell changes from what changes nothing
    lines: tuple[LineRecord, ...] = ()  # the lines that were changed, file by file
    sources: tuple[SourceText, ...] = ()  # the port's files; only with ``--tf-html`` or ``--tf-json``

    @property
    def blind(self) -> tuple[SurvivorRecord, ...]:
        """Changes that were not caught, and that alter what the port computes."""
        return tuple(each for each in self.survivors if each.shown_by)


@dataclass(frozen=True)
class RevisionRecord:
    """What exactly was compared: the text of a model's class, or the numbers that a model held."""

    of: Literal["port", "reference", "port's weights", "golden's weights"]
    name: str  # class with its module; of weights how many tensors they are
    # first 12 digits of the SHA-256 of the class's file, or of the hashes of all tensors under their names; empty for
    # the class of a golden whose reference is not at hand
    revision: str
    version: str = ""  # of the package that has the class


class PromiseVerdict(NamedTuple):
    """A verdict on one model and one promise, as it travels with the report of its test."""

    model: str  # class of the model
    promise: str  # name of the promise
    state: Literal["passes", "varies", "does not apply", "fails"]  # ``varies``: by design, as declared
    # why it varies or does not apply, or the first line of the failure, or what is worth saying of a pass
    text: str = ""
    culprit: str = ""  # module path of the culprit of a failure; empty where that is not known


@dataclass(frozen=True)
class CheckRecord:
    """One finished check."""

    test: str  # node id of the test
    # what was checked: ``parity``, ``overflow_free``, ``clean_load``, ``loaded``, ``certify``, ``triage``,
    # ``padding_invariant``, or another name of ``invariant``
    check: str
    status: Status
    headline: str  # the answer, in a line
    name: str = ""  # tells several checks of one kind in a test apart
    model: str = ""  # class of the model
    at: SourceRange | None = None  # the line of the test, or of what it called, that asked for the check
    culprit: CulpritRecord | None = None  # who is to blame
    culprits: tuple[CulpritRecord, ...] = ()  # every fault that was found, in the order of the forward, this one first
    coverage: Coverage | None = None  # how much was compared
    worst: Worst | None = None  # the tensor that agrees and comes closest to its tolerance
    search: SearchEnd = ""  # how the search for a change that mends it ended
    tensors: int = 0  # number of tensors that were compared or looked at
    repeats: int = 0  # number of forwards that were made again
    golden: str = ""  # the golden's file
    command: str = ""  # what to type next
    diagnosis: str = ""  # what is probably wrong, in a sentence, where more is known than where it is
    advice: str = ""  # what to do, in a sentence
    notes: tuple[str, ...] = ()  # what else was observed, in sentences
    rename: dict[str, str] = field(default_factory=dict)  # rules for ``rename=`` that were tried
    changed: tuple[str, ...] = ()  # what differs in the environment since the golden was recorded
    weights: tuple[str, ...] = ()  # parameters that are not those of the golden
    text: str = ""  # the report, as the terminal shows it
    forward: ForwardRecord | None = None  # both forwards; only with ``--tf-html`` or ``--tf-json``, as are those below
    headroom: tuple[HeadroomRecord, ...] = ()  # modules, tightest first; after a fault in the order of the forward
    loads: tuple[LoadRecord, ...] = ()  # what was loaded
    outputs: tuple[str, ...] = ()  # how each output of the reference was compared
    distances: tuple[str, ...] = ()  # how far each output is, what is allowed there, and its floor where measured
    fields: tuple[FieldRecord, ...] = ()  # fields of a configuration that a sweep moved
    blind: tuple[BlindRecord, ...] = ()  # fields that the inputs of a golden or a sweep cannot see
    kills: KillRecord | None = None  # how many changes of the port the test catches
    revisions: tuple[RevisionRecord, ...] = ()  # what exactly was compared
    id: str = ""  # name of its page; empty until it is written, see ``slug``

    @property
    def slug(self) -> str:
        """The name of its page."""
        return self.id or slug_of(self.test, self.check, self.name)

    def to_dict(self) -> dict[str, Any]:
        """Return the record as JSON holds it, with its page's name and the first culprit's explanation as keys."""
        record: dict[str, Any] = plain({**msgspec.to_builtins(self), "id": self.slug})
        if self.culprit is not None:
            record["culprit"]["explanation"] = self.culprit.explanation
        return record


def slug_of(test: str, check: str, name: str = "") -> str:
    """Return a file name of its own for a check of a test: readable, and the same in every run."""
    readable = _NOT_A_NAME.sub("-", f"{test.rpartition('::')[2]} {check} {name}").strip("-").lower()
    digest = hashlib.sha256(f"{test} {check} {name}".encode(errors="replace")).hexdigest()
    return f"{readable[:_LONGEST_NAME].strip('-')}-{digest[:8]}"


def read_checks(entries: Any) -> list[CheckRecord]:  # noqa: ANN401 - JSON
    """Return the records that a JSON list holds.

    Raises:
        ValueError: If they are not of their form; the message says where.
    """
    return msgspec.convert(entries, list[CheckRecord], strict=False)  # "inf" is a number there


def plain(value: Any) -> Any:  # noqa: ANN401 - whatever JSON can hold
    """Return a nested value as JSON holds it: inf and nan, for which JSON has no number, as ``"inf"`` and ``"nan"``."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value
