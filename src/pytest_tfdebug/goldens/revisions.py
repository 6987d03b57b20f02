"""What exactly a check has compared: which text, in which version, and which numbers."""

from __future__ import annotations

import hashlib
import inspect
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pytest_tfdebug.check_record import RevisionRecord
from pytest_tfdebug.errors import counted
from pytest_tfdebug.goldens.weights import fingerprint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import torch

    from pytest_tfdebug.tracing.file.codec import TraceFile
    from pytest_tfdebug.tracing.trace import Trace
    from pytest_tfdebug.tracing.values.rerun import Rerun

_DIGITS = 12


def revisions(
    model: torch.nn.Module, reference: Callable[[], Rerun] | None, golden: TraceFile[Trace]
) -> Iterator[RevisionRecord]:
    """Yield the revision of a model and of what it is held to, and those of the numbers in both."""
    yield _of_class("port", type(model))
    if reference is not None:
        yield _of_class("reference", type(reference().model))
    else:
        recorded = golden.extra["provenance"].get("transformers")
        version = f"transformers {recorded}" if recorded else ""
        yield RevisionRecord("reference", golden.trace.model_class, "", version)
    yield _of_numbers("port's weights", fingerprint(model))
    yield _of_numbers("golden's weights", golden.extra["weights"])


def _of_class(of: Literal["port", "reference"], cls: type[Any]) -> RevisionRecord:
    package = cls.__module__.partition(".")[0]
    try:
        version = f"{package} {metadata.version(package)}"
    except metadata.PackageNotFoundError:  # a file of the test's own
        version = ""
    try:
        revision = hashlib.sha256(Path(inspect.getfile(cls)).read_bytes()).hexdigest()[:_DIGITS]
    except (OSError, TypeError):  # a class that was typed in
        revision = ""
    return RevisionRecord(of, f"{cls.__module__}.{cls.__qualname__}", revision, version)


def _of_numbers(of: Literal["port's weights", "golden's weights"], hashes: Mapping[str, str]) -> RevisionRecord:
    text = "\n".join(f"{name} {number}" for name, number in sorted(hashes.items()))
    return RevisionRecord(of, counted(len(hashes), "tensor"), hashlib.sha256(text.encode()).hexdigest()[:_DIGITS])
