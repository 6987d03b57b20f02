"""Which ports of mlx-lm are quiet as they are."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import mlx.core as mx

sys.path.append(str(Path(__file__).resolve().parent.parent))

from mlx_corpus import IDS, TYPES, mlx_model, reference

import command
from pytest_tfdebug import compare, trace
from pytest_tfdebug.mlx import arrays


def main() -> None:
    """Print a row for each type."""
    parser = command.parser(__doc__, "only", only=[*TYPES])
    parser.add_argument("--dtype", default="float32")
    options = parser.parse_args()
    command.quiet()
    logging.disable(logging.WARNING)
    mx.set_default_device(mx.cpu)
    table = command.Table("mlx-lm", "quiet", "differs", "paired", "arrays", "farthest", "")
    for kind in options.only:
        try:
            model = reference(kind)
            found = arrays(mlx_model(model, dtype=options.dtype), mx.array(IDS.numpy()))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a kernel that MLX has not
            print(f"{kind}: not run: {type(error).__name__}: {str(error).splitlines()[0][:90]}")
            continue
        report = compare(trace(model, input_ids=IDS, use_cache=False), found)
        farthest = max((array.distance for array in report.arrays if array.partners), default=0.0)
        told = "" if report.ok else str(report).splitlines()[0]
        cells = int(report.ok), int(not report.ok), report.tensors, len(report.arrays), f"{farthest:.1e}", told
        table.add(kind, cells)
    table.total()


if __name__ == "__main__":
    main()
