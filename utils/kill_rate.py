"""Whether what ``--tf-certify`` says of a test holds for other changes of its port.

The test of a port is certified: so many changes of the port's lines, each put through the check. Of those that it
catches, and those that it misses and a variant of the port shows, the share that is caught is *predicted* for others.
Then other edits of the lines that the port runs are drawn as in ``first_try.py``; each is imported anew and held to the
golden on disk. An edit that the check misses is one where a variant shows it; ``--show`` prints all that pass, on both
sides: to read, for a variant need not show what a person sees.
"""

from __future__ import annotations

import contextlib
import functools
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torch

import command

# isort: split
from as_checked import checked
from cases import Case
from corpus import all_ports
from editing import EditedFile
from judging import built, is_installed, seeded

from edits import lines_of
from pytest_tfdebug.certify import hooks, swap
from pytest_tfdebug.certify.edits import LineEdit, edits_of
from pytest_tfdebug.certify.variants import Variants
from pytest_tfdebug.errors import ParityError
from pytest_tfdebug.parity.patch.tried_source import TriedFile
from pytest_tfdebug.tracing.values.rerun import Rerun

#: Ports that are measured, unless ``--only`` names others: two that are written by hand, three of packages.
PORTS = ("packed-bert", "plain-t5", "dinov2", "litgpt-pythia", "whisper")


def certified(port: Any, clean: Case, count: int) -> tuple[dict[str, Any], set[LineEdit], float]:
    """Certify the test of a port; return what is told, the changes that were tried, and the forwards of each."""
    kind, tried, forwards = type(clean.port), set[LineEdit](), Counter[str]()
    edited, forward = swap.edited, kind.forward

    def noted(file: TriedFile, edit: LineEdit) -> Any:
        tried.add(edit._replace(text=edit.text.strip()))
        return edited(file, edit)

    @functools.wraps(forward)
    def counted(*args: Any, **kwargs: Any) -> Any:
        forwards[kind.__name__] += 1
        return forward(*args, **kwargs)

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "checks.json"
        options = (f"--tf-certify={count}", f"--tf-json={file}", "-o", "tf_certify_seconds=900")
        spied = mock.patch.object(hooks, "edited", noted), mock.patch.object(kind, "forward", counted)
        with spied[0], spied[1], contextlib.suppress(Exception):  # what the last change raised, for which it was run
            checked(functools.partial(_anew, port, clean), *options, modes=("update",))
        told = json.loads(file.read_text(encoding="utf-8"))["checks"]
    kills = next(each["kills"] for each in told if each["check"] == "certify")
    return kills, tried, forwards.total() / max(kills["tried"], 1)


def _anew(port: Any, clean: Case) -> Case:
    """Return a port that is built anew, beside the clean one's reference and inputs: a constructor may draw numbers."""
    given = (clean.reference, seeded(port).port, clean.reference_args, clean.reference_kwargs)
    return Case(*given, clean.port_args, clean.port_kwargs, clean.arranged, clean.outputs, clean.main)


def others(port: Any, clean: Case, tried: set[LineEdit], seed: int) -> Iterator[tuple[LineEdit, str, Case]]:
    """Yield random edits of a port that run and were not tried, with what was there and both models."""
    lines = lines_of(port.package, functools.partial(seeded, port))
    texts = {name: Path(sys.modules[name].__file__ or "").read_text(encoding="utf-8") for name in sorted(lines)}
    edits = [each for name, text in texts.items() for each in edits_of(text, lines[name], name)]
    random.Random(f"{seed}{port.name}").shuffle(edits)  # noqa: S311 - the same edits every time
    for edit in edits:
        text, file = texts[edit.file], str(sys.modules[edit.file].__file__)
        before, after = text.splitlines(), text.splitlines()
        after[edit.line - 1] = edit.text
        if LineEdit(file, edit.line, edit.text.strip()) in tried:
            continue
        try:
            changed = EditedFile(edit.file, text, "\n".join(after) + "\n", after="", reloaded=port.reloaded)
            with changed.in_place():
                case = _anew(port, clean)
            with torch.no_grad():
                case.port(*case.port_args, **case.port_kwargs)
        except Exception:  # noqa: BLE001, S112 - most wrong lines do not run at all
            continue
        yield edit, before[edit.line - 1].strip(), case


def is_caught(case: Case) -> bool | None:
    """Tell whether the check of a port fails; None where it cannot be made, as ``--tf-certify`` leaves it out."""
    try:
        return not checked(case, "--tf-explain=off", modes=("update",)).ok
    except ParityError:
        return True
    except Exception:  # noqa: BLE001 - whatever an edited port makes of its outputs
        return None


def measured(port: Any, options: Any) -> dict[str, Any]:
    """Return the cells of a port's row."""
    begun = time.monotonic()
    clean, counts = built(port), Counter[str]()
    kills, tried, forwards = certified(port, clean, options.changes)
    seconds = (time.monotonic() - begun) / max(kills["tried"], 1)
    shown = [each for each in kills["survivors"] if each["shown_by"]]
    if options.show:
        for each in kills["survivors"]:
            told = each["shown_by"] or "no variant shows it"
            print(f"{port.name}: certify: {each['line']}: {each['before']}  ->  {each['after']}  ({told})")
    variants = Variants(Rerun(clean.port, clean.port_args, clean.port_kwargs))
    for edit, before, case in others(port, clean, tried, options.seed):
        if counts.total() == options.edits:
            break
        fails = is_caught(case)
        counts["caught"] += fails is True
        if fails is not False:
            continue
        with contextlib.suppress(RuntimeError):  # an edit of a constructor may draw other weights for both models
            case.port.load_state_dict(clean.port.state_dict())
        told = variants.shown_by(Rerun(case.port, case.port_args, case.port_kwargs))
        counts["missed" if told else "same"] += 1
        if options.show:
            print(
                f"{port.name}: other: {edit.line}: {before}  ->  {edit.text.strip()}  ({told or 'no variant shows it'})"
            )
    predicted, held = _share(kills["caught"], len(shown)), _share(counts["caught"], counts["missed"])
    return {
        "known": kills["known"],
        "changes": kills["tried"],
        "raise": kills["raised"],
        "killed": kills["caught"],
        "blind": len(shown),
        "alter nothing": len(kills["survivors"]) - len(shown),
        "predicted": predicted,
        "others": counts.total(),
        "caught": counts["caught"],
        "missed": counts["missed"],
        "no change": counts["same"],
        "held": held,
        "apart": held - predicted,
        "forwards": forwards,
        "s each": seconds,
    }


def _share(caught: int, missed: int) -> float:
    """Return the share of changes that are caught, in percent."""
    return 100 * caught / max(caught + missed, 1)


def main() -> None:
    """Print the table."""
    parser = command.parser(__doc__, "edits", "seed", "only", "show")
    parser.add_argument("--changes", type=int, default=100, help="that --tf-certify tries (default %(default)s)")
    options = parser.parse_args()
    command.quiet()
    table = None
    for port in all_ports():
        if port.name in (options.only or PORTS) and is_installed(port):
            row = measured(port, options)
            table = table or command.Table("port", *row)
            table.add(port.name, row)
    if table is not None:
        table.total()


if __name__ == "__main__":
    main()
