"""The outcome of a comparison."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_tfdebug.records import Coverage, Worst

if TYPE_CHECKING:
    from pytest_tfdebug.check_record import ElementGrid
    from pytest_tfdebug.records import Call, CallComparison, Culprit, Divergence


@dataclass(frozen=True, repr=False)
class ComparisonResult:
    """The verdict, the culprit and every number behind it.

    Args:
        culprit: Where the first divergence arose; None when all is well.
        divergences: Tensors outside tolerance, in the order in which they were computed.
        calls: Every actual call beside its expected call, with all comparisons.
        tensors: Number of tensors compared by value.
        notes: What else was observed, in sentences.
        facts: Where the expected side comes from, and what differs beside the values, in sentences.
        repro: Where a repro lies and how to run it, in lines.
        suggested: Rules for ``rename=`` under which the two sides are the same code; the verdict holds under them.
        subject: Who differs from what, in a few words.
        advice: What to do about it, in a sentence; empty where nothing can be said.
        internal: What differs inside while every output agrees, in a sentence; empty where nothing does.
        noise: What agrees only as rounding, with the figures, in sentences; empty where nothing does.
        output_notes: How each output of the reference was compared, in a few words.
        unseen: What was not compared, and what outputs that agree do not show, in sentences.
        coverage: How much of the expected forward was really compared.
        by_values: Whether modules share no names, so that values were compared and not calls.
        unpaired: Expected calls that the actual forward did not make, or that no name pairs.
        behind: Faults behind the culprit, in the order of the forward.
        part: What alone was looked into, for it differs as well: the rows without padding. Empty for the whole.
        rest: What was found of the rest with all that is said of that part mended; empty if it was not looked into.
        told_of_search: How the search for a change that mends it ended, and what goes on with it; empty where one does.
        told_of_faults: What became of several faults, ``after these 3 changes every output agrees``; else empty.
        unused: Which parameters change no output, or are not there, though the reference's do, in sentences.
        renamed: Which outputs are only called otherwise, in a sentence; empty where none is.
        between: What lies between the recording and this run, and what that makes of the difference, in sentences.
        changed: What differs in the environment since the expected side was recorded, as far as somebody looked.
        other_weights: Parameters that are not those of the expected side, likewise.
        is_drift: Whether nothing jumps, and the environment is another than the expected side's.
        has_own_inputs: Whether the forward under test was given other inputs on purpose.
        elements: A tensor that differs, element by element; only for a page or a file.
        agreement: What is said where all is well, in a sentence; empty for a forward.
    """

    culprit: Culprit | None
    divergences: list[Divergence]
    calls: list[CallComparison]
    tensors: int
    notes: list[str] = field(default_factory=list)
    facts: list[str] = field(default_factory=list)
    repro: list[str] = field(default_factory=list)
    suggested: dict[str, str] = field(default_factory=dict)
    subject: str = "The forward differs from the expected one"
    advice: str = ""
    internal: str = ""
    noise: str = ""
    output_notes: list[str] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)
    coverage: Coverage = field(default_factory=lambda: Coverage(0, 0, root=False))
    by_values: bool = False
    unpaired: list[Call] = field(default_factory=list, repr=False)
    behind: tuple[Culprit, ...] = ()
    part: str = ""
    rest: str = ""
    told_of_search: str = ""
    told_of_faults: str = ""
    unused: str = ""
    renamed: list[str] = field(default_factory=list)
    between: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    other_weights: list[str] = field(default_factory=list)
    is_drift: bool = False
    has_own_inputs: bool = False
    elements: ElementGrid | None = field(default=None, repr=False, compare=False)
    agreement: str = ""

    @property
    def ok(self) -> bool:
        """Whether every output agrees, and the inputs of the model."""
        return self.culprit is None

    @property
    def culprits(self) -> list[Culprit]:
        """Every fault that was found, in the order of the forward; the first is :attr:`culprit`.

        Those behind the first were looked for with what mends it, or with the reference's values in its place.
        """
        return [] if self.culprit is None else [self.culprit, *self.behind]

    @property
    def worst(self) -> Worst | None:
        """The tensor that agrees and comes closest to its tolerance; None where no tensor agrees."""
        shares = (
            Worst(leaf.metrics.share if leaf.metrics else 0.0, item.call.name)
            for item in self.calls
            for leaf in (*item.inputs, *item.made)
            if leaf.is_measured and not leaf.problem
        )
        return max(shares, key=lambda each: each.share, default=None)

    def __bool__(self) -> bool:
        return self.ok
