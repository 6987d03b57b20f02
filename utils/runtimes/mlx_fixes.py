"""Real fixes of mlx-lm replayed: ``python utils/runtimes/mlx_fixes.py PATH_OF_A_CLONE``.

The parent of each fix is to be loud in an interval that holds the line it fixed, the fix itself quiet. Each runs in a
process of its own, with the whole package as it was.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple


class Fix(NamedTuple):
    """A fix, and a model that shows it."""

    commit: str
    what: str
    kind: str
    more: dict[str, Any]
    truth: str


_PLAIN = {"rope_type": "default", "rope_theta": 10000.0}
_SCALED = {"sliding_attention": _PLAIN, "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0}}
_DYNAMIC = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}
_GEMMA2 = {"hidden_activation": "gelu_pytorch_tanh", "sliding_window": 64}
_ROTARY = r"rot|cos|sin|freq"
FIXES = (
    Fix("04a19108", "routing by sigmoid", "lfm2_moe", {"use_expert_bias": True}, r"sigmoid|top_?k|rout|gather"),
    Fix("5261ab85", "order of swiglu's operands", "mixtral", {}, r"act_fn|gate|chunk"),
    Fix("b8bbbca6", "partial rotary", "phi3", {"partial_rotary_factor": 0.5}, _ROTARY),
    Fix("1dc5de4f", "a mask of truth values", "gemma2", _GEMMA2, r"mask|softmax"),
    Fix("cff94b7f", "partial rotary", "glm4", {}, _ROTARY),
    Fix("b343a055", "scaled rotary in windows", "gemma3_text", {"rope_parameters": _SCALED}, _ROTARY),
    Fix("13425df6", "dynamic rotary", "internlm3", {"rope_parameters": _DYNAMIC}, _ROTARY),
)


def judge(fix: Fix) -> None:
    """Print the score of the mlx-lm on the path."""
    import mlx.core as mx
    from mlx_corpus import IDS, mlx_model, reference
    from scoring import score

    from pytest_tfdebug import compare, trace
    from pytest_tfdebug.mlx import arrays

    warnings.simplefilter("ignore")
    mx.set_default_device(mx.cpu)
    model = reference(fix.kind, **fix.more)
    report = compare(trace(model, input_ids=IDS, use_cache=False), arrays(mlx_model(model), mx.array(IDS.numpy())))
    got = "quiet" if report.ok else " ".join(map(str, score(report, lambda text: bool(re.search(fix.truth, text)))))
    print("RESULT", f"{got:10}", "" if report.ok else str(report).splitlines()[0])


def main() -> None:
    """Print a line for the parent of each fix and for the fix."""
    clone, only = sys.argv[1], sys.argv[2:]
    for fix in FIXES:
        for revision in (f"{fix.commit}^", fix.commit) if not only or fix.commit in only else ():
            with TemporaryDirectory() as folder:
                told = _judged(fix, _unpacked(clone, revision, Path(folder)))
            print(f"{revision:10} {fix.kind:12} {fix.what:28} {told}", flush=True)


def _unpacked(clone: str, revision: str, folder: Path) -> Path:
    """Write the package as it was at a revision, and return the folder that it is imported from."""
    listed = _run("git", "-C", clone, "ls-tree", "-d", "--name-only", revision).decode().split()
    inside = "mlx_lm" if "mlx_lm" in listed else "llms/mlx_lm"
    _run("tar", "-x", "-C", str(folder), given=_run("git", "-C", clone, "archive", revision, inside))
    return (folder / inside).parent


def _run(*command: str, given: bytes | None = None) -> bytes:
    done = subprocess.run(command, input=given, capture_output=True, check=True)  # noqa: S603 - git and tar
    return done.stdout


def _judged(fix: Fix, package: Path) -> str:
    path = os.pathsep.join([str(package), *sys.path[1:], *map(str, Path(__file__).resolve().parents[:2])])
    done = subprocess.run(  # noqa: S603 - this script
        [sys.executable, __file__, "--judge", json.dumps(fix)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )
    told = [line.removeprefix("RESULT ") for line in done.stdout.splitlines() if line.startswith("RESULT")]
    last = (done.stderr.strip().splitlines() or ["?"])[-1]
    return told[0] if told else f"not run: {last[:100]}"


if __name__ == "__main__":
    if sys.argv[1] == "--judge":
        judge(Fix(*json.loads(sys.argv[2])))
    else:
        main()
