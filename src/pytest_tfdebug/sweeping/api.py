"""``pytest_tfdebug.sweep``: which fields of a configuration matter, and which does a port follow?"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from pytest_tfdebug.errors import TFDebugError, listed
from pytest_tfdebug.sweeping.fields import fields, plain
from pytest_tfdebug.sweeping.port import Port
from pytest_tfdebug.sweeping.reference import LARGEST, Inputs, Reference, called, is_small, quiet
from pytest_tfdebug.sweeping.result import FAILING, FieldRow, SweepReport
from pytest_tfdebug.sweeping.search import FieldSearch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_tfdebug.sweeping.fields import Field
    from pytest_tfdebug.sweeping.port import Build, Load
    from pytest_tfdebug.sweeping.reference import Forward
    from pytest_tfdebug.sweeping.search import Move

_UNJUDGED = "it shows only together with another field, and with that one the port is wrong already."
_UNHELD = ("refused", "never")
#: Names of fields that make a model large.
_SIZES = "size|dim|layers|d_model|d_ff|n_embd|n_inner|experts$"
_ORDER = ("ignored", "differs", "refused", "agrees", "matters", "never")


def sweep(
    reference: type,
    config: Any,  # noqa: ANN401 - a configuration of transformers
    *,
    build: Build | None = None,
    inputs: Inputs | None = None,
    known: Mapping[str, str] | None = None,
    load: Load | None = None,
    forward: Forward = called,
) -> SweepReport:
    """Move each field of a configuration, and see what the reference does, and whether a port does the same.

    Without ``build`` the report says which fields matter, and which of them these inputs cannot see at their own value.

    Args:
        reference: Class of the reference: ``Phi3ForCausalLM``.
        config: Its configuration; a small one.
        build: Returns the port for a configuration: a module whose state dict has the reference's names and shapes, or
            anything that ``load`` and ``forward`` know.
        inputs: Keyword inputs of the reference; None for seeded ones that fit it.
        known: Field -> why the port does not follow it. One that agrees by now fails.
        load: Gives the port the reference's weights: ``load(port, reference)``.
        forward: Calls the port: ``forward(port, inputs)``.

    Returns:
        The report: false if the port ignores a field, or differs at another value of it.

    Raises:
        TFDebugError: If the reference is large or cannot be run, the port differs before any field moves or refuses
            every move, or ``known`` names no field.

    Example:
        >>> assert pytest_tfdebug.sweep(LlamaForCausalLM, LlamaConfig(...), build=lambda config: MyLlama(config))
    """
    if build is None and (load is not None or forward is not called or known):
        raise TFDebugError("load=, forward= and known= are for a port: give build=lambda config: ...")
    with quiet():
        _refuse_large(reference, config)
        search = FieldSearch(Reference(reference, config, inputs))
        port = None if build is None else Port(build, search.reference, load, forward)
        report = SweepReport(search.reference.name, [], [], has_port=port is not None)
        search.move_all(lambda fields: _shown(fields, search.reference.name))
        for field in _shown(search.fields, "the port") if port else search.fields:
            moves = search.moves(field)
            spot = search.blind_spot(field) if moves else None
            report.blind += [spot] if spot else []
            rows = [row for move in moves if (row := port.judged(_row(move), move) if port else _row(move))]
            if moves and not rows:
                report.notes.append(f"{field.name} was not compared: {_UNJUDGED}")
            report.rows += rows if moves else [FieldRow(field.name, "never", plain(field.value), None)]
    if port is not None and all(row.verdict in _UNHELD for row in report.rows):
        refused = next((f", {row.field} with {row.note}" for row in report.rows if row.verdict == "refused"), "")
        raise TFDebugError(f"Nothing was compared: no field moves the reference, or the port refuses it{refused}.")
    return _with_known(report, known or {})


def _refuse_large(reference: type, config: Any) -> None:  # noqa: ANN401
    with torch.device("meta"):
        is_large = not is_small(reference(config))
    if is_large:
        sizes = (field for field in fields(config.to_dict()) if re.search(_SIZES, field.name))
        told = [f"{field.name}={field.value}" for field in sizes if type(field.value) is int]
        raise TFDebugError(
            f"{reference.__name__} has more than {LARGEST:,} parameters with this configuration, and a sweep runs it "
            f"again and again.\nGive a small configuration, such as hidden_size=32 and two layers. This one has "
            f"{listed(told, len(told))}."
        )


def _shown(fields: Sequence[Field], name: str) -> Iterator[Field]:
    """Yield fields, with a progress bar on a terminal."""
    from tqdm import tqdm

    yield from tqdm(fields, f"sweep of {name}", unit="field", leave=False, disable=None)


def _row(move: Move) -> FieldRow:
    """Return the row of a field at another value, on which nothing is said yet but that it matters."""
    beside = ", ".join(f"{name}={value!r}" for name, value in move.beside.items())
    own, value = plain(move.field.value), plain(move.value)
    return FieldRow(move.field.name, "matters", own, value, move.distance, note=f"with {beside}" if beside else "")


def _with_known(report: SweepReport, known: Mapping[str, str]) -> SweepReport:
    names = {row.field for row in report.rows}
    unknown = [name for name in known if name not in names]
    if unknown:
        raise TFDebugError(
            f"known= names {listed(unknown)}, which are not fields here.\nFields: {', '.join(sorted(names))}"
        )
    failing = {row.field for row in report.rows if row.verdict in FAILING}
    report.outdated = [name for name in known if name not in failing]
    rows = [replace(row, known=known.get(row.field, "")) if row.verdict in FAILING else row for row in report.rows]
    report.rows = sorted(
        rows, key=lambda row: (not row.fails, _ORDER.index(row.verdict), -min(row.reference_moved, 9.9))
    )
    return report
