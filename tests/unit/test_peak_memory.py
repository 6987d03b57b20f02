"""Saving a large tensor takes little memory beside it: it is widened, summed and written a piece at a time."""

import os
import subprocess
import sys

import pytest

#: Traces a tensor of so many bytes inside a model, and prints the kilobytes that saving it takes beyond another forward.
SAVE = """
import resource
import sys
from pathlib import Path
import torch
from pytest_tfdebug import trace
from pytest_tfdebug.goldens.golden_file import save

torch.set_num_threads(1)
dtype, size, file = getattr(torch, sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])

class Wide(torch.nn.Module):
    def forward(self, x):
        return x.to(dtype).repeat(size // dtype.itemsize // 4, 1)

class First(torch.nn.Module):
    def forward(self, x):
        return x[0]

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

def saved(size, file):
    model, x = torch.nn.Sequential(Wide(), First()), torch.tensor([0.0, 1.0, 2.0, 3.0])
    recorded = trace(model, x)
    model(x)
    before = peak()
    save(file, recorded, model, "test_it.py::test_it")
    return peak() - before

wanted, size = size, 4096
saved(size, file.with_suffix(".small"))  # what is imported, and room for pieces
size = wanted
print(saved(size, file))
"""
SIZE = 64_000_000


@pytest.mark.nightly
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "bool"])
def test_saving_a_large_tensor_takes_half_of_it_at_most(tmp_path, dtype):
    command = [sys.executable, "-c", SAVE, dtype, str(SIZE), str(tmp_path / "golden.safetensors")]
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "1000000"}  # what is freed is given back, not kept in pieces
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)

    assert int(done.stdout) * 1024 < SIZE / 2
