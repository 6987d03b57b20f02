"""Record the catalogue's models under one version of transformers, and hold the present one to it.

``python utils/upgrades.py record DIR`` in the environment of each older version, then ``... check DIR`` in the present
one. Weights are those of ``fill``, and inputs are seeded apart from them: both are the same in every version. A
``DIR`` per version; docs/evidence.md has one run.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
import transformers

import pytest_tfdebug
from models import ARCHITECTURES


def traced(name: str) -> pytest_tfdebug.Trace:
    """Return the forward of a model of the catalogue."""
    make_model, make_inputs = ARCHITECTURES[name]
    model = pytest_tfdebug.fill(make_model().eval())
    torch.manual_seed(1)
    return pytest_tfdebug.trace(model, **make_inputs())


def main() -> None:
    """Record, or print a line for each model."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("action", choices=["record", "check"])
    parser.add_argument("directory", type=Path)
    chosen = parser.parse_args()
    chosen.directory.mkdir(parents=True, exist_ok=True)
    for name in ARCHITECTURES:
        file, trace = chosen.directory / f"{name}.safetensors", traced(name)
        if chosen.action == "record":
            trace.save(file)
            told = "recorded"
        else:
            report = pytest_tfdebug.compare(pytest_tfdebug.Trace.load(file), trace)
            told = "; ".join([report.check_text().answer, *report.renamed])
        print(f"{name:8} {transformers.__version__:8} {told}")


if __name__ == "__main__":
    main()
