"""How many bugs are named in ports that the tool was not built on: random edits of packages seen for the first time.

Each port of ``tests/ports/unseen`` is edited at random, a line of its forward at a time, and compared with its
reference as it is, without ``rename=``. Edits that change the output by less than a bug does are passed over. What the
columns say is told in ``edits.py``; ``reference`` is the line of the reference that computes what the edited line
computed in the clean port, or the first value after it that both have, or the first value that the edit changes; the
line of a call that returns such a value; and that of what an edited line hands on which computes nothing.
The first run on new ports is the figure of docs/evidence.md. After it they may be looked at: they go to
``tests/ports/tried`` (``--set tried``), and new ones come.

``--set copies``: the commonest port, with the reference's own names. A modeling file of transformers is copied, one
line that runs is edited at random (in a forward, an ``__init__`` or a helper such as ``rotate_half``), the copy takes
the reference's weights, and both are compared. The same line of the reference counts as ``reference``.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import torch

import command

# isort: split
from cases import Case, to_edit
from judging import DIFFERS, built, is_installed, relative_l2

from edits import Place, Subject, lines_of, measure
from models import ARCHITECTURES, DECODER, build
from padding_models import _of
from pytest_tfdebug.certify.edits import LineEdit
from pytest_tfdebug.parity.proof.matching import reordered_axes
from pytest_tfdebug.tracing.record.leaves import walk
from pytest_tfdebug.tracing.values.operators import values_of
from pytest_tfdebug.values import Fingerprint, Value, Values, distance

#: Distance up to which two values are one, and steps to the first value after an edited line that both sides have.
_SAME, _FAR = 1e-5, 12


class Equivalents:
    """Which lines of the reference compute what a line of the clean port does.

    Args:
        case: The clean pair of models.
    """

    def __init__(self, case: Any) -> None:
        self._port = values_of(case.port, "forward", case.port_args, case.port_kwargs)
        reference = values_of(case.reference, "forward", case.reference_args, case.reference_kwargs)
        self._lines, theirs = _lines_of(self._port, is_all=True), _lines_of(reference, is_all=False)
        computed = [value for value in reference.values if value.operator and value.print.elements]
        self._partners: list[set[Place]] = [
            set().union(*(theirs[other.index] for other in computed if distance(value.print, other.print) <= _SAME))
            if value.operator
            else set()
            for value in self._port.values
        ]
        self._users: dict[int, list[int]] = {}
        for value in self._port.values:
            for made in value.producers:
                self._users.setdefault(made, []).append(value.index)

    def of(self, file: str, line: int, wrong: Values) -> set[Place]:
        """Return the places in the reference's sources; empty where nothing tells."""
        on_the_line = {index for index, lines in enumerate(self._lines) if (file, line) in lines}
        changed = self._first_changed(wrong)
        handed_on = set() if on_the_line else self._not_taken(changed, wrong)
        return set().union(*map(self._partners_of, (on_the_line, changed, handed_on)))

    def _not_taken(self, changed: set[int], wrong: Values) -> set[int]:
        """Return what some values of the clean port are computed from, and the same lines of the edited one are not."""
        taken: dict[object, list[Fingerprint]] = {}
        for value in wrong.values:
            taken.setdefault(_told(value), []).extend(wrong.values[made].print for made in value.producers)
        values = self._port.values
        return {
            made
            for value in map(values.__getitem__, changed)
            for made in value.producers
            if not any(distance(values[made].print, other) <= _SAME for other in taken.get(_told(value), ()))
        }

    def _first_changed(self, wrong: Values) -> set[int]:
        """Return what the clean port computes first and the edited one does not."""
        made = [value.print for value in wrong.values if value.print.elements]
        sizes = np.array([each.rms for each in made])
        changed = set()
        for value in self._port.values:
            own = value.print
            near = np.flatnonzero(np.abs(sizes - own.rms) <= _SAME * own.rms)
            is_made = any(distance(own, made[k]) <= _SAME and not reordered_axes(own, made[k]) for k in near)
            if value.operator and own.elements and not is_made:
                changed.add(value.index)
        return {index for index in changed if changed.isdisjoint(self._port.values[index].producers)}

    def _partners_of(self, level: set[int]) -> set[Place]:
        """Return where the reference computes some values of the port, or the first after them that it has."""
        for _ in range(_FAR):
            found = {place for index in level for place in self._partners[index]}
            if found or not level:
                return found
            level = {user for index in level for user in self._users.get(index, ())}
        return set()


def _told(value: Value) -> object:
    """Return what tells a value, but for its numbers: its operator and the lines that asked for it."""
    return value.operator, tuple((line.file, line.line) for line in value.lines)


def _lines_of(table: Values, *, is_all: bool) -> list[set[Place]]:
    """Return the lines of each value, of calls that return it, and of the call that makes it or all around it."""
    sites: dict[int | None, set[Place]] = {}
    returned: dict[int, set[Place]] = {}
    for call in table.calls:
        made = {(site.file, site.line) for site in (call.site, call.inner_site) if site is not None}
        sites[call.index] = made | (sites.get(call.parent, set()) if is_all else set())
        for _, index in table.outputs.get(call.index, ()):
            returned.setdefault(index, set()).update(made)
    return [
        {(at.file, at.line) for at in value.lines} | sites.get(value.call, set()) | returned.get(value.index, set())
        for value in table.values
    ]


def subject(port: Any, seed: int) -> Subject:
    """Return a port, to be edited."""
    case = built(port)
    equivalents = Equivalents(case)

    def places(edit: LineEdit, wrong: Any) -> set[Place]:
        table = values_of(wrong.port, "forward", wrong.port_args, wrong.port_kwargs)
        return equivalents.of(str(sys.modules[edit.file].__file__), edit.line, table)

    lines, draw = lines_of(port.package, lambda: case), random.Random(f"{seed}{port.name}")  # noqa: S311 - the same edits every time
    return Subject(port, case, lines, draw, lambda wrong: not relative_l2(wrong) < DIFFERS, places)


_DECODERS: dict[str, dict[str, Any]] = {
    "Mistral": {"sliding_window": 4},
    "Gemma2": {"head_dim": 16, "sliding_window": 4, "query_pre_attn_scalar": 24},
    "Phi": {"partial_rotary_factor": 0.5},
    "Qwen2": {"use_sliding_window": False},
    "Falcon": {"alibi": False, "new_decoder_architecture": False, "multi_query": True},
    "OPT": {"ffn_dim": 96, "word_embed_proj_dim": 64},
}
for _name, _more in _DECODERS.items():
    _make = partial(_of, f"{_name}ForCausalLM", f"{_name}Config", **{**DECODER, **_more})
    ARCHITECTURES[_name.lower()] = _make, ARCHITECTURES["llama"][1]


def copies(name: str, seed: int) -> Subject:
    """Return the copies of an architecture's file."""
    reference, inputs = build(name)
    reference.set_attn_implementation("eager")  # the helper that is written out
    kind = type(reference)
    file = str(import_module(kind.__module__).__file__)

    def pair(_: object = None) -> Case:
        port = getattr(import_module(kind.__module__), kind.__name__)(reference.config)
        port.load_state_dict(reference.state_dict(), strict=True)
        return Case(reference, port.eval(), (), inputs, (), inputs)

    with torch.no_grad():
        right = reference(**inputs)
    return Subject(
        to_edit(name, kind.__module__, pair),
        pair(),
        lines_of(kind.__module__, pair),
        random.Random(seed),  # noqa: S311 - the same edits every time
        lambda case: differs(right, case),
        lambda edit, _: {(file, edit.line)},
    )


@torch.no_grad()
def differs(right: object, case: Any) -> bool:
    """Tell whether an output of floating point differs."""
    pairs = zip(walk(right), walk(case.port(**case.port_kwargs)), strict=False)
    floats = [(one.tensor, other.tensor) for one, other in pairs if one.tensor.is_floating_point()]
    return any(one.shape != other.shape or not (one - other).norm() <= DIFFERS * one.norm() for one, other in floats)


def chosen(options: Any) -> Iterator[Subject]:
    """Yield what is edited."""
    if options.set == "copies":
        yield from (copies(name, options.seed) for name in options.only or ARCHITECTURES)
        return
    for port in import_module(f"{options.set}.ports").PORTS:
        if port.name in (options.only or port.name) and is_installed(port):
            yield subject(port, options.seed)


def main() -> None:
    """Print the table."""
    parser = command.parser(__doc__, "edits", "seed", "only", "show", "traces", edits=17)
    sets = ("unseen", "tried", "copies")
    parser.add_argument("--set", choices=sets, default=sets[0], help="which ports (default %(default)s)")
    options = parser.parse_args()
    command.quiet()
    command.only_work_counts()
    measure(chosen(options), options)


if __name__ == "__main__":
    main()
