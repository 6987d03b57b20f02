"""Settings of the tests that run real models."""

import torch
import torch._dynamo  # loaded once for all runs inside this process: torch refuses to load it a second time

import pytest_tfdebug
import pytest_tfdebug.goldens.fixture

# pytester unloads what a run loaded, and the package keeps the public names that it has looked up: load all of it first.
for name in pytest_tfdebug.__all__:
    getattr(pytest_tfdebug, name)

# The models are tiny: more threads than one cost more than they give, most of all under pytest-xdist.
torch.set_num_threads(1)
