"""Which ports of mlx-lm are quiet as they are: ``python utils/runtimes/mlx_clean.py [dtype] [types]``."""

from __future__ import annotations

import logging
import sys
import warnings

import mlx.core as mx
from mlx_corpus import IDS, TYPES, mlx_model, reference

from pytest_tfdebug import compare, trace
from pytest_tfdebug.runtimes.mlx import arrays


def main() -> None:
    """Print a line for each type, and the totals."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    mx.set_default_device(mx.cpu)
    dtype, kinds = (sys.argv[1:2] or ["float32"])[0], sys.argv[2:] or [*TYPES]
    quiet = loud = paired = given = 0
    farthest = 0.0
    for kind in kinds:
        try:
            model = reference(kind)
            found = arrays(mlx_model(model, dtype=dtype), mx.array(IDS.numpy()))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - another configuration, or a kernel that MLX has not
            print(f"{kind:18} not run: {type(error).__name__}: {str(error).splitlines()[0][:90]}")
            continue
        report = compare(trace(model, input_ids=IDS, use_cache=False), found)
        quiet, loud = quiet + report.ok, loud + (not report.ok)
        if report.ok:
            paired, given = paired + report.tensors, given + len(report.arrays)
            farthest = max(farthest, *(array.distance for array in report.arrays if array.partners))
        print(f"{kind:18} {'quiet' if report.ok else str(report).splitlines()[0]}", flush=True)
    print(f"{quiet} quiet, {loud} not; of the quiet ones {paired} of {given} arrays paired, farthest {farthest:.1e}")


if __name__ == "__main__":
    main()
