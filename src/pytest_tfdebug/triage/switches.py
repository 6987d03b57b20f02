"""The switches for a second look: set before anything heavy is imported, taken back when the run ends.

A library that a plugin imported even earlier has already read its variables, so its own setting is changed too.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pytest_tfdebug.options import Options

_OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
#: Where a library that was imported before this run keeps what it has read of these.
_READ = {"huggingface_hub.constants": "HF_HUB_OFFLINE", "transformers.utils.hub": "_is_offline_mode"}
_HIDDEN_GPUS = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}
#: The variable by which transformers' own tests choose their device.
_TEST_DEVICE = "TRANSFORMERS_TEST_DEVICE"


def apply(config: pytest.Config, chosen: Options) -> None:
    """Set what the flags ask for, for this run and the processes that it starts."""
    patch, variables = pytest.MonkeyPatch(), dict[str, str]()
    config.add_cleanup(patch.undo)
    if chosen.sync_cuda:
        _refuse_started_cuda("--tf-sync-cuda", "CUDA reads CUDA_LAUNCH_BLOCKING once")
        variables["CUDA_LAUNCH_BLOCKING"] = "1"
    if chosen.device == "cpu":
        _refuse_started_cuda("--tf-device=cpu", "the GPUs cannot be hidden any more")
        variables |= {**_HIDDEN_GPUS, _TEST_DEVICE: "cpu"}
    if chosen.offline:
        variables |= _OFFLINE
        for name, attribute in _READ.items():
            module = sys.modules.get(name)
            if module is not None and hasattr(module, attribute):
                patch.setattr(module, attribute, True)
    for name, text in variables.items():
        patch.setenv(name, text)
    if chosen.device == "cuda":  # which may ask CUDA, so all that it reads is set by now
        _demand_cuda()
        patch.setenv(_TEST_DEVICE, "cuda")


def _refuse_started_cuda(flag: str, why: str) -> None:
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        raise pytest.UsageError(
            f"{flag} comes too late: CUDA has already started in this process ({why}). "
            "A plugin or an earlier import started it: find it with -p no:NAME, or set the variable in the shell."
        )


def _demand_cuda() -> None:
    torch: Any = import_module("torch")
    if not torch.cuda.is_available():
        built = f"with CUDA {torch.version.cuda}" if torch.version.cuda else "without CUDA"
        raise pytest.UsageError(
            f"--tf-device=cuda, and no CUDA device is available: torch {torch.__version__} is built {built}. "
            "Use --tf-device=cpu or auto."
        )
