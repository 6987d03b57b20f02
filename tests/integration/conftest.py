"""Settings of the tests that run real models."""

import torch
import torch._dynamo  # loaded once for all runs inside this process: torch refuses to load it a second time

# The models are tiny: more threads than one cost more than they give, most of all under pytest-xdist.
torch.set_num_threads(1)
