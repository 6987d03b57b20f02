"""What the live objects of a failure say beyond its text: one reader for each question, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_tfdebug.triage.facts import auto, dtypes, files, hub, memory, names, ranges, weights

if TYPE_CHECKING:
    import re
    from collections.abc import Callable

    from pytest_tfdebug.triage.failure import Failure, Link
    from pytest_tfdebug.triage.rule import Facts

#: Name in a rule -> reader; a reader returns None when it sees that the rule does not apply.
READERS: dict[str, Callable[[Failure, Link, re.Match[str]], Facts | None]] = {
    "argument": names.read_argument,
    "auto classes": auto.read_auto_classes,
    "backends": names.read_backends,
    "directory": files.read_directory,
    "download": hub.read_download,
    "memory": memory.read_memory,
    "dtypes": dtypes.read_dtypes,
    "widths": dtypes.read_widths,
    "lazy import": names.read_lazy_import,
    "missing file": hub.read_missing_file,
    "missing module": names.read_missing_module,
    "missing name": names.read_missing_name,
    "missing package": names.read_missing_package,
    "model directory": auto.read_model_directory,
    "model type": auto.read_model_type,
    "no generate": auto.read_no_generate,
    "path": hub.read_path,
    "ranges": ranges.read_ranges,
    "shard": files.read_shard,
    "state dict": weights.read_state_dict,
    "task": auto.read_task,
    "weights file": files.read_weights_file,
    "weights only": files.read_weights_only,
}
