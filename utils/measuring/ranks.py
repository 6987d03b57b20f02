"""What a check costs where a model runs on two ranks, beside the same check of the whole model on one process."""

from __future__ import annotations

import copy
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import multiprocessing
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import pytest_tfdebug
from measuring.alternate import alternate
from measuring.figures import OF_ONE_PROCESS, Figure, of_rounds
from measuring.forwards import places
from measuring.work import WORKS, Work
from pytest_tfdebug.goldens.check.held_model import compare_with
from pytest_tfdebug.goldens.check.on_ranks import sharing_group
from pytest_tfdebug.goldens.check.port_call import PortCall
from pytest_tfdebug.goldens.settings import CheckSettings, Kept
from pytest_tfdebug.goldens.store.golden_file import load, save
from pytest_tfdebug.parity.tensors.tolerance import Tolerances

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.connection import Connection
    from pathlib import Path

    from measuring.figures import Settings

FORWARD, CHECK, CHECK_OF_WHOLE = "bare forward", "golden, check", "golden that holds every element, check"
_RANKS, _ROUNDING = 2, 1.2e-7
_COLUMNS = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj")
_ROWS = ("self_attn.o_proj", "mlp.down_proj")
#: File of the golden that each check reads.
_GOLDENS = {CHECK: "golden.safetensors", CHECK_OF_WHOLE: "whole.safetensors"}


def measure(settings: Settings) -> Iterator[Figure]:
    """Yield the time of a forward and of its checks on two ranks, over that on one process.

    Each process has one thread. No tensor is bit-equal to the golden's, neither on ranks nor on one process: each is
    measured on all.
    """
    torch.set_num_threads(1)
    for name in (name for name in settings.models if name in {"tiny", "llama"}):
        work = WORKS[name]()
        with places() as place:
            traced = pytest_tfdebug.trace(_rounded(work.model), **work.inputs)
            save(place.kept / _GOLDENS[CHECK], traced, work.model, "bench")
            save(
                place.kept / _GOLDENS[CHECK_OF_WHOLE],
                traced,
                work.model,
                "bench",
                kept=Kept("full", max_size=None),
            )
            here = _runs(work, place.kept)
            with _on_ranks(name, place.kept) as there:
                for what, run in here.items():
                    if settings.wants(what):
                        asked = {what: partial(there, what)}
                        timed = alternate(run, asked, settings.rounds, patience=settings.patience)[what]
                        yield of_rounds("ranks", work.name, what, timed.ratios, OF_ONE_PROCESS, seconds=timed.seconds)
    torch.set_num_threads(settings.threads)


@torch.no_grad()
def _rounded(model: torch.nn.Module) -> torch.nn.Module:
    """Return a copy of a model whose parameters differ by about their rounding."""
    model = copy.deepcopy(model)
    for parameter in model.parameters():
        parameter.mul_(1 + _ROUNDING)
    return model


def _runs(work: Work, folder: Path) -> dict[str, Callable[[], object]]:
    """Return what is timed, by name."""

    def check(file: str) -> None:
        settings, called = CheckSettings(Tolerances(), None, (), (), "all"), PortCall((), dict(work.inputs))
        report = compare_with(load(folder / file), work.model, called, settings, group=sharing_group(None))
        assert report.ok  # noqa: S101 - what is measured must compare something
        assert report.tensors  # noqa: S101

    return {FORWARD: work.forward, **{name: partial(check, file) for name, file in _GOLDENS.items()}}


@contextmanager
def _on_ranks(name: str, folder: Path) -> Iterator[Callable[[str], None]]:
    """Start the ranks, and yield what has each of them run one thing and waits for it."""
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe() for _ in range(_RANKS)]
    ranks = [
        context.Process(target=_rank, args=(rank, pipe, name, folder), daemon=True)
        for rank, (_, pipe) in enumerate(pipes)
    ]
    for process in ranks:
        process.start()

    def ask(what: str) -> None:
        for own, _ in pipes:
            own.send(what)
        for own, _ in pipes:
            own.recv()

    yield ask
    for own, _ in pipes:
        own.send("")
    for process in ranks:
        process.join()


def _rank(rank: int, asked: Connection[Any, Any], name: str, folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/ranks", rank=rank, world_size=_RANKS)
    work = WORKS[name]()
    plan = {
        **{f"model.layers.*.{each}": ColwiseParallel() for each in _COLUMNS},
        **{f"model.layers.*.{each}": RowwiseParallel() for each in _ROWS},
    }
    parallelize_module(work.model, init_device_mesh("cpu", (_RANKS,)), plan)
    runs = _runs(work, folder)
    while what := asked.recv():
        runs[what]()
        asked.send(what)
    dist.destroy_process_group()
