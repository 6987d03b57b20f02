"""Which module or tensor of a failed forward has another dtype or width than what it is combined with."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from pytest_tfdebug.frames import package_of
from pytest_tfdebug.triage import text
from pytest_tfdebug.triage.failure import is_a
from pytest_tfdebug.triage.rules import Facts

if TYPE_CHECKING:
    import re
    from types import FrameType

    from pytest_tfdebug.triage.failure import Failure, Link


@dataclass(frozen=True)
class _FailedModule:
    """The module whose forward failed."""

    module: Any  # the innermost module
    root: Any  # the outermost one that holds it
    path: str  # its path in there; empty for the root itself
    frame: FrameType  # the frame of its forward

    @property
    def name(self) -> str:
        """Path and class."""
        kind = type(self.module).__name__
        return f"{self.path} ({kind})" if self.path else kind

    @property
    def of(self) -> str:
        """Class of the root."""
        return type(self.root).__name__

    def dtype_of_rest(self) -> Any:  # noqa: ANN401 - a torch.dtype
        """Return the dtype of most weights of the root that are not the module's own."""
        own = {id(parameter) for parameter in self.module.parameters()}
        counts: Counter[Any] = Counter()
        for parameter in self.root.parameters():
            if id(parameter) not in own and parameter.is_floating_point():
                counts[parameter.dtype] += parameter.numel()
        return counts.most_common(1)[0][0] if counts else None


def read_dtypes(failure: Failure, link: Link, _matched: re.Match[str]) -> Facts:
    """Name the module and the tensor whose dtype differs; nothing if the module was called by itself."""
    running = _running(link)
    if running is None:
        return Facts()
    weight: Any = getattr(running.module, "weight", None)
    given: Any = running.frame.f_locals.get("input")
    if running.path and is_a(weight, "Tensor") and is_a(given, "Tensor"):
        return _of_weights(failure, link, running, weight.dtype, given.dtype)
    return Facts()


def read_widths(_failure: Failure, link: Link, matched: re.Match[str]) -> Facts | None:
    """Name the linear layer that got another number of features than it takes; None for any other product."""
    running = _running(link)
    if running is None or not hasattr(running.module, "in_features"):
        return None
    given: Any = running.frame.f_locals.get("input")
    lines = (f"it was given a tensor of shape {tuple(given.shape)}",) if is_a(given, "Tensor") else ()
    takes = f"{running.name} takes {matched['wanted']} features (in_features) and was given {matched['given']}"
    return Facts({"layer": running.name, "takes": takes}, lines)


def _of_weights(failure: Failure, link: Link, running: _FailedModule, weights: Any, given: Any) -> Facts:  # noqa: ANN401
    rest = running.dtype_of_rest()
    if rest is not None and weights != rest:
        told = f"{running.name} has {_short(weights)} weights, and the rest of {running.of} is {_short(rest)}"
        return Facts({"told": told, "mend": f"model.{running.path}.to({rest})    # or all of it: model.to({rest})"})
    told = f"{running.name} has {_short(weights)} weights, as {running.of} has, and was given {_short(given)}"
    mend = f"cast what it is given to {weights}"
    outside = (step for step in reversed(link.steps) if package_of(step.tb_frame) != "torch")
    caller = next((step for step in outside if step.tb_frame is not running.frame), None)
    if caller is not None:
        site = failure.site_of(caller)
        mend += f", in {PurePath(site.path).name}:{site.line}: {text.value(site.code)}"
    return Facts({"told": told, "mend": mend})


def _running(link: Link) -> _FailedModule | None:
    """Return the innermost module that ran, and the outermost that holds it."""
    frames = [frame for frame in link.frames if _is_module(frame.f_locals.get("self"))]
    if not frames:
        return None
    module = frames[-1].f_locals["self"]
    for frame in frames:
        path = _path(frame.f_locals["self"], module)
        if path is not None:
            return _FailedModule(module, frame.f_locals["self"], path, frames[-1])
    return None


def _path(root: Any, module: object) -> str | None:  # noqa: ANN401 - a torch.nn.Module
    return next((name for name, one in root.named_modules() if one is module), None)


def _is_module(value: object) -> bool:
    return any(kind.__name__ == "Module" and kind.__module__.startswith("torch.") for kind in type(value).__mro__)


def _short(dtype: object) -> str:
    return str(dtype).removeprefix("torch.")
