"""What a finder says: a claim names one place that may be to blame, and the evidence that speaks for it.

A finder claims, and :func:`pytest_tfdebug.parity.settle.settle` decides: which claim goes first, and whether it is
certain, follows from the evidence alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import Enum
from typing import TYPE_CHECKING, Any

from pytest_tfdebug.records import Culprit, explained

if TYPE_CHECKING:
    from pytest_tfdebug.records import Call, ChangeRecord, Divergence, Kind, SourceRange


class Evidence(Enum):
    """What speaks for a claim; :data:`pytest_tfdebug.parity.settle.POLICY` says what each is worth."""

    RAISED = "the line raised an error"
    INPUTS = "the model was given other inputs"
    DTYPE = "most modules compute in another dtype"
    MODE = "in the mode of the reference other values come out"
    AUTOCAST = "without autocast every output agrees"
    COMPILER = "uncompiled every output agrees"
    SHARED = "as one module, as in the reference, two modules give every output"
    MADE_WITH = "made with the reference's argument, modules hold what the reference's do and give every output"
    MADE_OF = "likewise, and the line that chooses the argument is not known"
    SHARED_HERE = "one module stands for two of the reference's, and differs as the second"
    LAYERS = "with the reference's pattern of layers of several kinds every output agrees"
    ARGUMENT = "with an argument that its partner had every output agrees"
    WEIGHT = "a parameter of the module is not the reference's"
    CALL = "only one side calls a module that both have, or that the reference has not"
    EDIT = "one edit of the port's source mends every output"
    EDIT_OF_MANY = "edits of several lines of the port's source mend every output, each alone"
    PROOF = "one change, in one module, mends every output"
    REVERSE_PROOF = "the reference gives every output of the port after one change, of what this module does"
    PROVED_WEIGHT = "the reference's numbers in one parameter mend every output"
    PROVED_TABLE = "the reference's numbers in a table that a constructor makes mend every output"
    STATEMENT = "one statement is not the reference's text"
    ATTRIBUTE = "the lines read one attribute that is not the reference's"
    CALLS = "the inputs of the module agree, and its output does not"
    INFERRED_PROOF = "the reference gives every output of the port after a change, of which the place is inferred"
    HANDED_ON = "one change mends every output: of a number that its line was given"
    PROOF_OF_MANY = "changes in several modules mend every output, each alone"
    PROOF_OR_GIVEN = "a change mends every output, and so does one of what the module is given"
    THESE_INPUTS = "a change mends every output of these inputs, and not of others"
    ONE_OF_SEVERAL = "the change mends every output together with changes of other faults"
    LED_PAST = "the reference's value in this place leads to right ones behind it"
    MAKES_UP = "what mends every output is a change of a step that is right"
    NEAR_WEIGHTS = "the reference's numbers in all parameters that are near them mend every output"
    PROVED_WEIGHTS = "other numbers in a parameter mend every output, as other changes do"
    EXCHANGE = "weights are in each other's place: loaded so, or taken so by the code"
    ORDER_OF_WEIGHT = "with the elements of a weight in another order the reference gives every output of the port"
    STATEMENTS = "no single statement is known to differ from the reference's text"
    ATTRIBUTES = "the lines read several attributes that are not the reference's"
    NAMED_WEIGHT = "a parameter of the module holds what the reference has nowhere"
    LINE_OF_VALUE = "calls name the module, and the first wrong value the line"
    ROUNDED_CALLS = "the first output that differs may be off by rounding alone"
    ROUNDS = "all agrees in float32, and by itself the module rounds several times as much as the reference's does"
    ROUNDS_MOST = "all agrees in float32, and the module rounds most"
    UNPAIRED_CALLS = "none of the calls in these lines could be compared"
    RANDOM = "the first wrong value is drawn at random"
    WEIGHT_OF_VALUE = "the first wrong value uses a parameter that is another in every other layer"
    NO_NUMBERS = "a parameter holds what the reference has nowhere, and the reference's numbers mend every output"
    ODD_WEIGHT = "the first wrong value uses a parameter that the reference has nowhere"
    VALUE = "the first value that the reference never computes"
    OTHER_CALL = "the reference calls a module that the port does not have"
    STEP = "the first step that only one side does"
    FOUND_CALLS = "under names that were found the inputs of the module agree, and its output does not"
    FAINT_VALUE = "the first value that the reference never computes is hardly further off than what it is made of"
    UNREADABLE = "no tensor can be found in what the model returns"
    UNNAMED_CALLS = "calls differ whose names do not pair"
    GRADIENT_PROOF = "one change of the backward mends every gradient"
    SEEN_IN_BACKWARD = "the graph of the backward shows what is wrong"
    GRADIENT = "the first gradient that differs"
    STEP_PROOF = "one change of the optimiser's rule gives the port's steps"
    TRAINING = "the first thing of a training that is done otherwise"
    LATER_STEP = "a step that no change explains"
    BACKWARDS = "what all backwards of a step add up to, where their number is another"
    LOSS = "another loss, and no value of the forward tells why"
    NOT_FINITE = "the first value that is not finite was read"
    HEADROOM = "the value that comes nearest to the end of its dtype was read"
    NOT_COMPARED = "an output was held to nothing"
    FIRST_STEP = "the first step of a module that gives something else in the second of two calls of it"
    FIRST_OF_CALLS = "the first tensor that differs belongs to a call that only one forward makes"
    MASK = "the first call that had a good mask, and gave none or one that lets pads through"
    WRITTEN = "an input is another after this call"
    NO_ARRAY = "the first value of the reference that none of the arrays is"


#: Proofs by a change of the port.
IN_PORT = (
    Evidence.EDIT,
    Evidence.EDIT_OF_MANY,
    Evidence.PROOF,
    Evidence.HANDED_ON,
    Evidence.PROOF_OF_MANY,
    Evidence.PROOF_OR_GIVEN,
    Evidence.ONE_OF_SEVERAL,
)


@dataclass(frozen=True, slots=True)
class Claim:
    """One place that may be to blame."""

    path: str  # module path; for ``not-called`` the path of the expected module
    kind: Kind  # what is wrong there
    evidence: Evidence  # what speaks for it
    class_name: str  # the module's class
    why: str = ""  # what was observed, in sentences
    wrong: str = ""  # what the module does wrong, in a few words; empty where the kind says it
    source: SourceRange | None = None  # the port's lines
    reference: SourceRange | None = None  # the reference's lines that the port does otherwise, or not at all
    proved: str = ""  # the change that was tried and after which every output agrees, in a sentence
    changes: tuple[ChangeRecord, ...] = ()  # that change as data; several where they cannot be told apart
    patch: str = ""  # a diff of the port's source that was tried, too
    weights: tuple[str, ...] = ()  # names of the parameters that are wrong
    lacks_step: bool = False  # whether the port lacks a step of the reference there
    is_of_both: bool = False  # whether the reference has the port's lines in the same words, and holds what they read
    ranks: str = ""  # on which ranks of a forward on several it shows
    function: str = ""  # name of the function that holds ``source``, where the forward calls it
    callers: tuple[SourceRange, ...] = ()  # the statements that lead to it from the forward, innermost first
    divergence: Divergence | None = None  # the tensor that decided
    narrows: Claim | None = field(default=None, repr=False)  # a claim on the same module, of which this has the line

    @property
    def explanation(self) -> str:
        """What is wrong and what was observed, in sentences."""
        return explained(self.class_name, self.wrong, self.why)


def claim_on(culprit: Culprit, evidence: Evidence, **other: Any) -> Claim:  # noqa: ANN401 - fields of a claim
    """Return a claim on the place of a culprit that was settled, with what else was found of it."""
    names = {each.name for each in fields(Claim)} & {each.name for each in fields(Culprit)}
    return Claim(**{**{name: getattr(culprit, name) for name in names}, "evidence": evidence, **other})


def claim_of(
    call: Call,
    kind: Kind,
    why: str,
    divergence: Divergence,
    source: SourceRange | None = None,
    *,
    wrong: str = "",
    evidence: Evidence = Evidence.CALLS,
) -> Claim:
    """Return the claim that a call of the actual forward is to blame."""
    return Claim(call.path, kind, evidence, call.class_name, why, wrong, source, divergence=divergence)
