"""Hold the model classes of a checkout to their promises: ``python -m pytest_tfdebug.conform PATH_OR_REPO``.

The models are built small and with weights that follow from their names: the checkpoint's own are not loaded. With
``--trust-remote-code`` this runs the code of the checkout.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_tfdebug.errors import ConformanceError, TFDebugError, printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_tfdebug.conform.accepted import Known
    from pytest_tfdebug.conform.subject import Subject
    from pytest_tfdebug.conformance_verdict import Verdict


def main(arguments: Sequence[str] | None = None) -> int:
    """Look at a checkout; 0 when its models keep their promises, 1 when not, 2 when nothing could be looked at."""
    parser = argparse.ArgumentParser(
        prog="python -m pytest_tfdebug.conform", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("source", metavar="PATH_OR_REPO", help="directory with a config.json, or a repository's name")
    parser.add_argument("--revision", help="branch, tag or commit of a repository")
    parser.add_argument("--trust-remote-code", action="store_true", help="run the model code of the checkout")
    parser.add_argument("--known", type=Path, metavar="FILE", help="promises that are known to be broken, as JSON")
    chosen = parser.parse_args(arguments)

    import transformers

    from pytest_tfdebug.conform.checkout import subjects
    from pytest_tfdebug.report.conformance import render_table

    transformers.logging.disable_progress_bar()
    if chosen.trust_remote_code:
        sys.stderr.write(f"Running the model code of {printable(chosen.source)}.\n")
    verdicts: list[Verdict] = []
    try:
        known: Known = _known(chosen.known) if chosen.known else {}
        for subject in subjects(chosen.source, chosen.revision, trusts_code=chosen.trust_remote_code):
            verdicts += _verdicts(subject, known)
    except (TFDebugError, ValueError) as error:
        sys.stderr.write(f"{printable(str(error), keep=chr(10))}\n")
        return 2
    sys.stdout.write("\n".join(printable(line) for line in render_table(verdicts)) + "\n")
    return int(any(verdict.state == "fails" for verdict in verdicts))


def _known(file: Path) -> Known:
    """Return what is known to be broken.

    Raises:
        TFDebugError: If there is no such file, or it cannot be read.
    """
    from pytest_tfdebug.conform.accepted import read

    if not file.exists():
        raise TFDebugError(
            f"{file} does not exist.\nWrite it with pytest --tf-conformance-known={file} --tf-conformance-accept."
        )
    return read(file)


def _verdicts(subject: Subject, known: Known) -> Iterator[Verdict]:
    from pytest_tfdebug.conform.judge import judge
    from pytest_tfdebug.conform.promises import PROMISES

    for promise in PROMISES:
        try:
            yield judge(subject, promise, known=known.get(promise.name, {}).get(subject.name, ""))
        except ConformanceError as error:  # noqa: PERF203 - each promise is looked at
            sys.stdout.write(f"{printable(str(error), keep=chr(10))}\n\n")
            yield error.verdict


if __name__ == "__main__":
    sys.exit(main())
