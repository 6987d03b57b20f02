"""What a forward, a comparison and a verdict are made of: plain data, no behaviour beyond what it is to read it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

Direction = Literal["input", "output", "write"]
#: Where the first divergence arose; see :class:`Culprit`.
Kind = Literal[
    "module",
    "glue",
    "not-called",
    "extra-call",
    "inputs",
    "dtype",
    "mode",
    "compiler",
    "weights",
    "random",
    "gradient",
    "step",
    "loss",
    "excused",
    "parameter",
    "headroom",
]


class Site(NamedTuple):
    """A place in a function's source: the expression that called a module."""

    file: str  # absolute path of the source file
    line: int  # first line of the expression, from 1
    end_line: int  # last line of the expression
    function: str  # qualified name of the function
    first_line: int  # first line of the function, its decorators included
    last_line: int  # last line of the function
    code: str = ""  # the text of the expression's lines, where it was recorded with them


class SourceRange(msgspec.Struct, frozen=True, eq=False, omit_defaults=True):
    """Lines of a file, both ends included; as text ``modeling_llama.py:212-219``."""

    file: str  # path of the file; of a reference that was recorded elsewhere, as it is imported
    first: int  # first line, from 1
    last: int
    code: str = ""  # the text of the lines, where it was recorded with them; empty where it can be read from the file

    def holds(self, file: str, line: int) -> bool:
        """Tell whether a line of a file is one of these."""
        return file == self.file and self.first <= line <= self.last

    @property
    def numbers(self) -> str:
        """The lines alone, ``212-219``, or ``38`` for one."""
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"

    def __str__(self) -> str:
        name = self.file.replace("\\", "/").rpartition("/")[2]
        return f"{name}:{self.numbers}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SourceRange) and self._place == other._place

    def __hash__(self) -> int:
        return hash(self._place)

    @property
    def _place(self) -> tuple[str, int, int]:
        return self.file, self.first, self.last


class Statistics(NamedTuple):
    """Summary of one tensor; all NaN for an empty one."""

    min: float
    max: float
    mean: float
    std: float  # standard deviation with Bessel's correction, as ``torch.Tensor.std``; NaN for one element
    non_finite: int  # number of inf and nan elements


@dataclass(frozen=True, eq=False, slots=True)
class Digest:
    """What is kept of a tensor that is not kept whole; :mod:`pytest_tfdebug.tracing.values.digest` makes it.

    Complex numbers are pairs of elements here.
    """

    elements: Tensor  # its elements at seeded places, in its dtype, ``(kept,)``
    sums: Tensor  # sums of all its elements with seeded signs, ``(buckets,)``: a change of any element changes one
    norm: float  # root of the sum of the squares of its finite elements
    tops: Tensor  # the largest elements of its rows, in its dtype, ``(tops,)``; empty for most tensors
    top_places: Tensor  # where these stand, in the order of the elements, int64


class Part(NamedTuple):
    """Where what one rank holds lies in a whole tensor."""

    shape: tuple[int, ...]  # shape of the whole
    start: tuple[int, ...]  # index of its first element there
    is_summand: bool = False  # whether the whole is the sum of what the ranks hold in one place


@dataclass(slots=True)
class TensorRecord:
    """One leaf of a call's inputs or outputs."""

    leaf: str  # leaf path: how to reach the tensor in the nested value; empty when the value is the tensor
    shape: tuple[int, ...]  # shape, in elements
    dtype: str  # name without the ``torch.`` prefix, ``"float32"``
    # the values as they were when they were recorded; None when they cannot be kept (meta tensors), or a golden holds a
    # digest of them
    tensor: Tensor | None = field(repr=False)
    # known summary, or None until :func:`pytest_tfdebug.tracing.values.digest.summarize` fills it
    statistics: Statistics | None = field(default=None, repr=False)
    digest: Digest | None = field(default=None, repr=False)  # what is kept in place of the tensor
    # how far it is from what the same forward gives in float64: norm of the difference over that of the tensor. None
    # where it was not measured, or is no rounding.
    floor: float | None = field(default=None, repr=False)
    # where it lies in a whole tensor that several ranks hold, if a ``DTensor`` says so
    part: Part | None = field(default=None, repr=False)
    # how a whole tensor lay on the ranks that it was recorded on: ``"Shard(1)"``, ``"Partial"``; ``"ranks"`` where the
    # parts of the ranks are stacked along axis 0, for nobody knows their axis. Empty for one that each rank held, or
    # one process.
    placement: str = ""

    @property
    def held(self) -> Tensor | Digest | None:
        """The tensor or its digest: the same object in every record that shows the same tensor."""
        return self.digest if self.tensor is None else self.tensor


class Write(NamedTuple):
    """A tensor that a call's own code wrote into a key-value or state cache that it was given."""

    record: TensorRecord  # the tensor as it was left; its leaf path begins with the cache's class
    before: int | None  # ``index`` of the child call that began next, or None where there was none


@dataclass(slots=True)
class Call:
    """One invocation of a module's forward; filled in as the forward proceeds."""

    index: int  # position in the trace, in the order in which the calls began
    path: str  # module path; the root's class name for the root
    class_name: str  # the module's class
    call: int  # call index of this module, from 0
    parent: int | None  # ``index`` of the enclosing call, or None for a root
    depth: int  # number of enclosing calls
    site: Site | None = None  # where the parent's forward called it, or None
    inner_site: Site | None = None  # where a helper method of the parent called it, when that is not the forward itself
    source: SourceRange | None = None  # lines of the module's own forward, or None where there is no source
    parameters: tuple[str, ...] = ()  # names of the forward's positional parameters
    has_children: bool = False  # whether the module has submodules, called or not
    training: bool = False  # whether the module was in training mode
    inputs: tuple[TensorRecord, ...] = ()  # leaves of the positional and keyword inputs
    outputs: tuple[TensorRecord, ...] | None = None  # leaves of the output; None while the forward has not returned
    # the nested inputs and outputs with leaves as ``{"leaf": n}`` and the rest as text
    skeleton: dict[str, Any] = field(default_factory=dict)
    writes: tuple[Write, ...] = ()  # what it wrote into caches, in order
    error: str | None = None  # class name of the exception that left the forward, or None

    @property
    def name(self) -> str:
        """Module path, with the call index from the second call on: ``shared#1``."""
        return f"{self.path}#{self.call}" if self.call else self.path

    def leaves(self, direction: Direction) -> Sequence[TensorRecord]:
        """Return the leaves of its inputs, of its outputs, or of what it wrote into caches."""
        if direction == "write":
            return [write.record for write in self.writes]
        return self.inputs if direction == "input" else self.outputs or ()

    def with_records(self, change: Callable[[TensorRecord, Direction], TensorRecord]) -> Call:
        """Return the call with other records: of its inputs, of what it wrote, and of its outputs, in this order."""
        return replace(
            self,
            inputs=tuple([change(record, "input") for record in self.inputs]),
            writes=tuple([Write(change(record, "write"), before) for record, before in self.writes]),
            outputs=None if self.outputs is None else tuple([change(record, "output") for record in self.outputs]),
        )

    @property
    def called_at(self) -> SourceRange | None:
        """Lines of the caller that made the call; None for a root."""
        site = self.inner_site or self.site
        return SourceRange(site.file, site.line, site.end_line, site.code) if site else None


class Metrics(NamedTuple):
    """How far a tensor is from the one it is held to, over the elements that are finite in both."""

    mismatched: int  # elements outside tolerance, and elements whose inf or nan differ
    total: int  # elements in all
    max_abs: float  # greatest absolute difference, in the tensor's units
    max_abs_index: tuple[int, ...]  # where it is
    allowed: float  # absolute difference that was allowed there, ``atol + rtol * |expected|``
    max_rel: float  # greatest relative difference, where the expected element is not 0
    max_rel_index: tuple[int, ...]  # where it is
    rmse: float  # root of the mean squared difference
    relative_l2: float  # norm of the difference over the norm of the expected tensor
    cosine: float  # cosine between the two tensors, flattened; information only, never a verdict
    non_finite_expected: int  # inf and nan elements of the expected tensor
    non_finite_actual: int  # inf and nan elements of the actual tensor
    # elements that were compared one by one, where the expected tensor is not kept whole: what is said of all of them
    # is then an estimate, and a greatest difference the greatest that was seen; 0 where all were
    sampled: int = 0

    @property
    def share(self) -> float:
        """The greatest absolute difference over what is allowed there."""
        return self.max_abs / self.allowed if self.allowed else (inf if self.max_abs else 0.0)


#: What a leaf comparison found: nothing, values outside tolerance, or tensors whose names or shapes differ; of an
#: input of a model of another class, a mask that tells the same in other numbers.
Problem = Literal["", "values", "shape", "dtype", "missing", "extra", "recoded"]
#: Those of a tensor's form.
FORMS: tuple[Problem, ...] = ("shape", "dtype")
#: Those that make a tensor fail wherever it stands; whether a missing one does hangs on the call.
FAILING: tuple[Problem, ...] = ("values", *FORMS)


@dataclass(frozen=True, eq=False, slots=True)
class PartDigest:
    """What one rank has of the digest of a whole tensor, for the ranks to put together."""

    part: Part  # where what it holds lies in the whole
    digest: Digest  # the digest of the whole with zeros in the place of what other ranks hold
    owned: Tensor  # which of the digest's elements it holds, then which of its tops, ``(kept + tops,)``


@dataclass(frozen=True, slots=True)
class LeafComparison:
    """One tensor of the actual forward beside its expected tensor."""

    direction: Direction  # input or output of the call, or what it wrote into a cache
    leaf: str  # leaf path on the actual side (on the expected side when it is missing there)
    problem: Problem  # empty when they agree
    shape: tuple[int, ...]  # shape on the actual side, or of the missing tensor
    dtype: str
    expected: TensorRecord | None = field(repr=False)  # the tensor it is held to; None for an extra leaf
    # differences; None when the tensors are equal bit by bit or cannot be subtracted
    metrics: Metrics | None = field(default=None, repr=False)
    is_measured: bool = False  # whether their values were looked at: both sides have them, in one shape
    # what this rank has to tell the others of it, where these must be heard before it can be judged
    part: PartDigest | None = field(default=None, repr=False, compare=False)
    ranks: tuple[int, ...] = ()  # the ranks on which they differ, of a forward on several
    is_summand: bool = False  # whether the ranks hold parts of a sum that nothing has added up
    # of an output of the model: how it was found, or why it need not be; empty for one that is not compared, None for
    # any other tensor
    how: str | None = None


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of the expected side was really compared."""

    compared: int  # expected calls of which an output was compared by value
    expected: int  # expected calls that returned a tensor
    root: bool  # whether the model's own output was compared

    @property
    def share(self) -> float:
        """Calls compared, of 1; 1 where there was none to compare."""
        return self.compared / self.expected if self.expected else 1.0

    @property
    def is_of_outputs(self) -> bool:
        """Whether the model's own output was compared, and no call inside it has a partner."""
        return self.root and self.compared == 1 < self.expected


@dataclass(frozen=True, slots=True)
class Worst:
    """The tensor that agrees and comes closest to its tolerance."""

    share: float  # its greatest absolute difference over what is allowed there; 0 where every tensor is equal
    path: str  # module path of its call, with the call index from the second call on


@dataclass(slots=True)
class CallComparison:
    """One call of the actual forward beside its expected call."""

    call: Call  # the actual call, without its tensors
    expected: Call | None = field(repr=False)  # the expected call, or None when there is none
    inputs: tuple[LeafComparison, ...] = field(default=(), repr=False)  # its input leaves
    outputs: tuple[LeafComparison, ...] = field(default=(), repr=False)  # its output leaves
    # what it wrote into caches, and the ``index`` of its child call that began next; with ``missing`` ones
    writes: tuple[tuple[LeafComparison, int | None], ...] = field(default=(), repr=False)
    is_handed_on: bool = False  # whether a caller without an expected call gave it what it was itself given, unchanged
    is_identity: bool = False  # whether it has no expected call and returned what it was given: dropout in eval mode

    @property
    def is_of_one_class(self) -> bool:
        """Whether there is an expected call, of a module of the same class: of its name, with a parameter in common."""
        if self.expected is None or self.expected.class_name != self.call.class_name:
            return False
        mine, theirs = self.call.parameters, self.expected.parameters
        return not mine or not theirs or not set(mine).isdisjoint(theirs)

    @property
    def made(self) -> tuple[LeafComparison, ...]:
        """What it wrote into caches, then its output leaves."""
        return (*(leaf for leaf, _ in self.writes), *self.outputs)


@dataclass(frozen=True, slots=True)
class Divergence:
    """A tensor of the actual trace outside tolerance of its expected tensor."""

    path: str  # module path on the actual side
    class_name: str  # the module's class
    call: int  # call index of the module
    comparison: LeafComparison

    @property
    def name(self) -> str:
        """Module path, with the call index from the second call on."""
        return f"{self.path}#{self.call}" if self.call else self.path

    @property
    def direction(self) -> Direction:
        """Input or output of the call, or what it wrote into a cache."""
        return self.comparison.direction

    @property
    def leaf(self) -> str:
        """Leaf path."""
        return self.comparison.leaf

    @property
    def metrics(self) -> Metrics | None:
        """The differences, where the tensors can be subtracted."""
        return self.comparison.metrics


#: What a change is of: a number, an operand, a step or call that is left out, an order of axes or elements, weights, or
#: which function is called.
ChangeKind = Literal["number", "operand", "left out", "order", "weights", "call"]


#: How the search for a change that mends a forward ended: one was found; its budget was spent; every change was tried;
#: empty where there was none.
SearchEnd = Literal["", "proved", "cut", "exhausted"]


@dataclass(frozen=True, slots=True)
class ChangeRecord:
    """A change of one line after which the outputs of both sides agree, as data."""

    side: Literal["port", "reference"]  # whose line was changed
    file: str  # path of the file; empty where no line is known
    line: int  # first line of the statement, from 1; 0 where no line is known
    kind: ChangeKind  # what was changed; of the reference ``left out`` is what the port lacks
    # what stands there: a number as it is written, the name of an operator, an operand or a module; empty for nothing
    old: str
    new: str  # what is used instead; empty for what is left out
    times: int = 1  # how often it was changed: once in every layer, say


@dataclass(frozen=True, slots=True)
class CulpritRecord:
    """Who is to blame, as plain data: it holds no tensor."""

    path: str  # module path; for ``not-called`` the path of the expected module
    kind: str  # what is wrong: a :data:`Kind`, or of an overflow ``headroom`` or a ``FaultKind``
    source: SourceRange | None  # lines to look at; prints as ``file.py:first-last``. None where there is no source.
    why: str  # what was observed, in sentences; with ``wrong`` it is the explanation
    class_name: str  # the module's class
    # lines of the reference whose value the port never computes; None where there are none
    reference: SourceRange | None = None
    weights: tuple[str, ...] = ()  # names of the parameters that are wrong, where the kind is ``weights``
    ranks: str = ""  # on which ranks of a forward on several it shows, ``"on rank 1 alone"``; empty for one process
    certain: bool = False  # whether the place is verified, or was compared on all sides; otherwise it is a suspect
    proved: str = ""  # the change that mends it, in a sentence; empty where none was tried or none does
    changes: tuple[ChangeRecord, ...] = ()  # that change as data; several where they cannot be told apart
    patch: str = ""  # a unified diff that makes it, tried by running the changed source; empty where none was found
    # name of the function that holds ``source``, where the forward calls it; empty in the forward itself
    function: str = ""
    callers: tuple[SourceRange, ...] = ()  # the statements that lead to it from the forward, innermost first
    tensor: str = ""  # which tensor shows it, ``output of 'model.layers.3'``; only in the record of a finished check
    figures: tuple[str, ...] = ()  # what is known of that tensor, in lines; likewise
    wrong: str = ""  # what the module does wrong, in a few words; empty where the kind says it
    why_certain: str = ""  # why it is certain, or why it is not, in a few words; empty where no claims were settled

    @property
    def explanation(self) -> str:
        """What is wrong and what was observed, in sentences."""
        return explained(self.class_name, self.wrong, self.why)


@dataclass(frozen=True, slots=True)
class Culprit(CulpritRecord):
    """The module whose own code or parameters introduced the first divergence.

    Args:
        kind: ``module``: its inputs agree, its output does not, and it called nothing; ``glue``: the lines between or
            after its children's calls; ``not-called`` / ``extra-call``: a call on one side only; ``inputs``: the
            model was given other inputs; ``dtype``: most of its modules compute in another one; ``weights``: its
            parameters are not the expected ones; ``random``: it draws random numbers. Of a train step, ``gradient``:
            its lines spoil a gradient; ``step``: the optimiser does otherwise; ``loss``: only the loss differs. Of an
            overflow, a ``FaultKind``, or ``headroom``: its values come near to the end of a dtype.
        divergence: The tensor that decided; None when the inputs have no common tensor, or values decided.
    """

    kind: Kind
    divergence: Divergence | None = None


def explained(class_name: str, wrong: str, why: str) -> str:
    """Return what a module does wrong and what was observed of it, in sentences."""
    joint = "; " if why[:1].islower() else ". "
    return f"{class_name} {wrong}{joint}{why}".rstrip() if wrong else why


def as_they_ended(calls: Sequence[CallComparison]) -> list[CallComparison]:
    """Order calls by their end: a call ends after the last of the calls inside it."""
    ends = ends_of([item.call for item in calls])
    return sorted(calls, key=lambda item: ends[item.call.index])


def ends_of(calls: Sequence[Call]) -> dict[int, tuple[int, int]]:
    """Return when each call ended, by its ``index``, as what sorts by it."""
    last_inside = {call.index: call.index for call in calls}
    for call in reversed(calls):
        if call.parent is not None:
            last_inside[call.parent] = max(last_inside[call.parent], last_inside[call.index])
    return {call.index: (last_inside[call.index], -call.depth) for call in calls}


def inputs_of(call: Call) -> list[tuple[str, Any]]:
    """Return what a call was given, from its skeleton, by the names of its parameters."""
    args, kwargs = call.skeleton.get("args", ()), call.skeleton.get("kwargs", {})
    names = [*call.parameters, *(f"[{place}]" for place in range(len(call.parameters), len(args)))]
    return [*zip(names, args, strict=False), *(kwargs.get("items", {}) if isinstance(kwargs, dict) else {}).items()]


def skeleton_ends(bare: Any, path: str = "") -> list[tuple[str, int | str]]:  # noqa: ANN401 - nested JSON of anyone
    """Return what stands at the ends of a skeleton, by its path: the number of each leaf, and texts."""
    if isinstance(bare, list):
        return [end for place, child in enumerate(bare) for end in skeleton_ends(child, f"{path}[{place}]")]
    if isinstance(bare, dict) and "items" in bare:
        children = msgspec.convert(bare["items"], dict[str, Any])
        return [end for key, child in children.items() for end in skeleton_ends(child, f"{path}[{key!r}]")]
    if isinstance(bare, dict):
        return [(path, msgspec.convert(bare["leaf"], int))]
    return [(path, msgspec.convert(bare, str))]
