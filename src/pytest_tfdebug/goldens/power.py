"""What a golden check would see: it is made again for each module, with the module's output nudged."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from pytest_tfdebug.goldens.held_model import compare_with
from pytest_tfdebug.parity.rename import renamer
from pytest_tfdebug.tracing.capture import dtype_name
from pytest_tfdebug.tracing.leaves import replaced, walk
from pytest_tfdebug.tracing.selection import modules_of, root_name
from pytest_tfdebug.tracing.signatures import method_of
from pytest_tfdebug.tracing.state import preserved

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_tfdebug.goldens.port_call import PortCall
    from pytest_tfdebug.goldens.progress import Progress
    from pytest_tfdebug.goldens.settings import CheckSettings
    from pytest_tfdebug.tracing.codec import TraceFile

#: Size of a nudge: a multiple of the tolerance of the module's output, and at most this share of the output.
_NUDGE, _MOST = 100.0, 0.25
#: Inputs that say where tokens are, not what they are.
_OF_PLACES = ("mask", "position")


@dataclass
class Power:
    """What a check sees of its model.

    Args:
        nudged: Number of modules that were nudged.
        unseen: Modules whose nudge the check did not see.
        inside: Modules whose nudge is seen inside the model and in no output, so the check only warns.
        dead: Outputs that no input changes, in words.
    """

    nudged: int = 0
    unseen: list[str] = field(default_factory=list)
    inside: list[str] = field(default_factory=list)
    dead: list[str] = field(default_factory=list)

    def lines(self, test: str) -> Iterator[str]:
        """Yield what a person is told, the first line with the test."""
        seen = self.nudged - len(self.unseen) - len(self.inside)
        yield f"{test}: {seen} of {self.nudged} nudged modules fail the check"
        yield from (f"  not seen: {path}" for path in self.unseen)
        yield from (f'  seen inside alone (internal="fail" fails): {path}' for path in self.inside)
        yield from (f"  dead: {what}" for what in self.dead)


class _Nudge:
    """A hook that adds seeded noise to a module's output.

    Args:
        amount: Returns the standard deviation of the noise, in the units of the tensor; takes the tensor and its rms.
    """

    def __init__(self, amount: Callable[[torch.Tensor, float], float]) -> None:
        self._amount = amount
        self.is_done = self.is_constant = False

    def __call__(self, _module: torch.nn.Module, _args: Any, output: Any) -> Any:  # noqa: ANN401 - what a module gives
        return replaced(output, self._nudged)

    def _nudged(self, tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_floating_point() or tensor.numel() < 2:  # noqa: PLR2004 - one number has no spread
            return tensor
        wide = tensor.float()
        self.is_constant |= bool(wide.min() == wide.max())
        rms = float(wide.square().mean().sqrt())
        noise = torch.randn(tensor.shape, generator=torch.Generator().manual_seed(0))
        self.is_done = True
        return tensor + (self._amount(tensor, rms) * noise).to(tensor)


def measure_power(
    golden: TraceFile, model: torch.nn.Module, anew: Callable[[], PortCall], settings: CheckSettings, progress: Progress
) -> Power:
    """Nudge each module that has no submodules, and make the check again; look for outputs that no input changes.

    A nudge is noise of a hundred times what the check allows the module's own output to differ by, up to a quarter of
    that output: far above rounding, and far below most bugs.

    Args:
        golden: The golden.
        model: A model that agrees with it.
        anew: Gives the call with its inputs as they were.
        settings: The settings of the check.
        progress: Told how far it is.
    """
    power = Power(dead=list(_dead_outputs(model, anew)))
    to_golden = renamer(settings.rename)
    floors = {(call.path, record.dtype): record.floor for call in golden.trace.calls for record in call.outputs or ()}
    leaves = {path: module for path, module in modules_of(model).by_path.items() if not any(module.children())}
    for number, (path, module) in enumerate(leaves.items(), start=1):
        progress.step("module", number, len(leaves))

        def amount(tensor: torch.Tensor, rms: float, path: str = path) -> float:
            dtype = dtype_name(tensor.dtype)
            allowed = settings.tolerances.of(path, dtype, floors.get((to_golden(path), dtype)))
            share = max(allowed.rtol, allowed.noise)
            return min(_NUDGE * max(allowed.absolute(rms), share * rms), _MOST * rms)

        nudge = _Nudge(amount)
        handle = module.register_forward_hook(nudge)
        try:
            report = compare_with(golden, model, anew(), settings, is_explained=False)
        finally:
            handle.remove()
        if nudge.is_constant:
            power.dead.append(f"the output of {path} is constant")
        elif nudge.is_done:
            power.nudged += 1
            power.inside += [path] if report.ok and report.internal else []
            power.unseen += [path] if report.ok and not report.internal else []
    return power


def _dead_outputs(model: torch.nn.Module, anew: Callable[[], PortCall]) -> Iterator[str]:
    """Yield the outputs of a model that are constant, and those that other inputs do not change."""
    first, second = anew(), anew()
    other = (
        tuple(map(_flipped, second.args)),
        {
            name: value if any(word in name for word in _OF_PLACES) else _flipped(value)
            for name, value in second.kwargs.items()
        },
    )
    own = walk((first.args, first.kwargs))
    is_other = any(not torch.equal(one.tensor, two.tensor) for one, two in zip(own, walk(other), strict=True))
    run = model if first.method == "forward" else method_of(model, first.method)
    with preserved(model), torch.no_grad():
        before = walk(run(*first.args, **first.kwargs))
        after = walk(run(*other[0], **other[1])) if is_other else []
    changed = {leaf.path: leaf.tensor for leaf in after}
    for path, tensor in before:
        name = f"output {path} of {root_name(model)}".replace("  ", " ")
        if tensor.numel() > 1 and bool((tensor == tensor.flatten()[0]).all()):
            yield f"{name} is constant"
        elif path in changed and tensor.shape == changed[path].shape and torch.equal(tensor, changed[path]):
            yield f"{name} does not change with the input"


def _flipped(value: Any) -> Any:  # noqa: ANN401 - an input
    return replaced(value, lambda tensor: tensor.flip(-1) if tensor.dim() else tensor)
