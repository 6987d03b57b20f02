"""Settings of the tests that run real models."""

import torch

# The models are tiny: more threads than one cost more than they give, most of all under pytest-xdist.
torch.set_num_threads(1)
