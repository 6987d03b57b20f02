"""One bug followed through the tables of a failed comparison: what docs/explanation/inside.md shows.

Prints, for a bug of ``fixtures/bugs.py``, the row of fingerprints of the first value that is wrong, the values that are
open, the counterpart, what each finder claims, and what is settled of that.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING
from unittest import mock

import command

# isort: split
from bugs import BUGS
from models import build
from pytest_tfdebug import compare, trace
from pytest_tfdebug.parity import comparison
from pytest_tfdebug.parity.closeness import SAME
from pytest_tfdebug.parity.proof.matching import OpenValues
from pytest_tfdebug.parity.settle import settle

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_tfdebug.parity.claims import Claim
    from pytest_tfdebug.records import Culprit
    from pytest_tfdebug.values import Value

BUG = "gpt2-gelu-instead-of-gelu-tanh"


def followed(name: str) -> Iterator[str]:
    """Yield the tables of a bug, line by line."""
    bug = next(bug for bug in BUGS if bug.name == name)
    model, inputs = build(bug.architecture)
    port = copy.deepcopy(model)
    bug.inject(port)
    claims: list[Claim] = []

    def settled(heard: list[Claim]) -> list[Culprit]:
        claims[:] = heard
        return settle(heard)

    with mock.patch.object(comparison, "settle", settled):
        report = compare(trace(model, **inputs), trace(port, **inputs))
    look = report.explained
    assert look is not None and look.pair is not None and look.finding is not None  # noqa: PT018 - it fails
    pair, finding = look.pair, look.finding
    yield f"bug: {bug.name}"
    yield f"outputs: {len(pair.pair_results(SAME).apart)} of {len(pair.port.table.results)} differ"
    yield "fingerprints (elements, mean, size, root mean square):"
    yield f"  port       {_row(finding.values[0])}"
    yield f"  reference  {_row(finding.reference)}" if finding.reference else "  reference  none"
    results = [index for _, index in pair.port.table.results]
    opened = OpenValues(pair.port, pair.matches, SAME, results, known=pair.weights.known)
    yield f"open: {len(opened.open)} of {len(pair.port.values)} values, the first at {finding.values[0].lines[0].line}"
    for claim in claims:
        narrows = "narrowed to " if claim.narrows is not None else ""
        yield f"claim {claim.evidence.name}: {narrows}{claim.source or claim.path}" + (
            f", {claim.proved}" if claim.proved else ""
        )
    culprit = report.culprit
    assert culprit is not None
    sure = "certain" if culprit.certain else "not certain"
    yield f"settled: {culprit.path} ({culprit.kind}), {culprit.source}, {sure}: {culprit.why_certain}"


def _row(value: Value) -> str:
    fingerprint = value.print
    numbers = (fingerprint.mean, fingerprint.size, fingerprint.rms)
    return f"{value.operator:12} {fingerprint.elements:6} " + " ".join(f"{number:11.5g}" for number in numbers)


def main() -> None:
    """Print the tables of the bug."""
    options = command.parser(__doc__)
    options.add_argument("--bug", default=BUG, help="a name of fixtures/bugs.py")
    given = options.parse_args()
    command.quiet()
    for line in followed(given.bug):
        print(line)


if __name__ == "__main__":
    main()
