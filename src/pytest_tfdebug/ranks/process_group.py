"""The process group that a test on ranks runs in."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import NamedTuple

import pytest


class Launched(NamedTuple):
    """What whoever started this process has told it."""

    rank: int  # number of this process
    world_size: int  # number of processes
    rendezvous: str  # URL by which they find each other


#: Who this process is, in a process that was started for one test.
GROUP: pytest.StashKey[Launched] = pytest.StashKey()


def by_torchrun() -> Launched | None:
    """Return what ``torchrun`` told this process; None where it did not start it."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return None
    return Launched(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "env://")


def start_group(launched: Launched, timeout: float) -> None:
    """Join the default process group, once: nccl where each rank has a device, and gloo for what is on the CPU."""
    import torch
    import torch.distributed as dist

    if dist.is_initialized():
        return
    backend = "gloo"
    if torch.cuda.is_available() and torch.cuda.device_count() >= launched.world_size:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        backend = "cpu:gloo,cuda:nccl"
    dist.init_process_group(
        backend,
        init_method=launched.rendezvous,
        rank=launched.rank,
        world_size=launched.world_size,
        timeout=timedelta(seconds=timeout),
    )


def stop_group() -> None:
    """Leave the default process group, if there is one."""
    import torch.distributed as dist

    if dist.is_initialized():
        dist.destroy_process_group()
