"""Which module or tensor of a failed forward has another dtype or width than what it is combined with."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from pytest_tfdebug.frames import is_users, package_of
from pytest_tfdebug.triage import text
from pytest_tfdebug.triage.failure import is_a
from pytest_tfdebug.triage.rules import Facts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType, TracebackType

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

    def dtype(self, *, but_own: bool = False) -> Any:  # noqa: ANN401 - a torch.dtype
        """Return the dtype of most weights of the root; ``but_own`` leaves the module's own out of the count."""
        own = {id(parameter) for parameter in self.module.parameters()} if but_own else set()
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
    if is_a(weight, "Tensor") and is_a(given, "Tensor"):
        return _of_weights(failure, link, running, weight.dtype, given.dtype) if running.path else Facts()
    return _of_values(failure, link, running)


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
    rest, model = running.dtype(but_own=True), _name_of(link, running.root)
    if rest is not None and weights != rest:
        told = f"{running.name} has {_short(weights)} weights, and the rest of {running.of} is {_short(rest)}"
        mend = f"{model}.{running.path}.to({rest})    # or all of it: {model}.to({rest})"
        return Facts({"told": told, "mend": mend})
    told = f"{running.name} has {_short(weights)} weights, as {running.of} has, and was given {_short(given)}"
    for name, tensor, step in _given(link, running):
        if tensor.dtype == given:
            code = failure.site_of(step).code
            return Facts({"told": told, "mend": f"{name} = {name}.to({weights})    # before: {text.value(code)}"})
    mend = f"cast what it is given to {weights}"
    caller = next((step for step in _outside_torch(link) if step.tb_frame is not running.frame), None)
    if caller is not None:
        site = failure.site_of(caller)
        mend += f", in {PurePath(site.path).name}:{site.line}: {text.value(site.code)}"
    return Facts({"told": told, "mend": mend})


def _of_values(failure: Failure, link: Link, running: _FailedModule) -> Facts:
    """Name the variables of the failed line whose dtype is not the model's, and cast them."""
    wanted, step = running.dtype(), next(_outside_torch(link), None)
    if wanted is None or step is None:
        return Facts()
    frame, words = step.tb_frame, set(re.findall(r"\w+", failure.site_of(step).code))
    tensors = {name: value for name, value in list(frame.f_locals.items()) if is_a(value, "Tensor")}
    odd = [
        name for name, value in tensors.items() if name in words and value.is_floating_point() and value.dtype != wanted
    ]
    if not odd:
        return Facts()
    owner: Any = frame.f_locals.get("self")
    path = _path(running.root, owner) if _is_module(owner) else None
    place = running.name if path is None else _FailedModule(owner, running.root, path, frame).name
    like = next((f"{name}.dtype" for name, value in tensors.items() if value.dtype == wanted), str(wanted))
    verb = "are" if len(odd) > 1 else "is"
    told = (
        f"{' and '.join(odd)} {verb} {_short(tensors[odd[0]].dtype)} in {place}, and {running.of} is {_short(wanted)}"
    )
    return Facts({"told": told, "mend": f"{', '.join(odd)} = {', '.join(f'{name}.to({like})' for name in odd)}"})


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


def _given(link: Link, running: _FailedModule) -> Iterator[tuple[str, Any, TracebackType]]:
    """Yield the floating-point tensors that the user gave the root: name, tensor, and where the user called it."""
    call = next((frame for frame in link.frames if frame.f_locals.get("self") is running.root), None)
    if call is None:
        return
    values = (*call.f_locals.get("args", ()), *call.f_locals.get("kwargs", {}).values())
    given = {id(value) for value in values if is_a(value, "Tensor") and value.is_floating_point()}
    for step in link.steps:
        if is_users(step.tb_frame):
            found = list(step.tb_frame.f_locals.items())
            yield from ((name, value, step) for name, value in found if id(value) in given)


def _name_of(link: Link, root: object) -> str:
    """Return what the user calls a model."""
    users = filter(is_users, link.frames)
    names = (name for frame in users for name, value in frame.f_locals.items() if value is root and name != "self")
    return next(names, "model")


def _outside_torch(link: Link) -> Iterator[TracebackType]:
    """Yield the entries of a traceback outside torch, innermost first."""
    return (step for step in reversed(link.steps) if package_of(step.tb_frame) != "torch")


def _is_module(value: object) -> bool:
    return any(kind.__name__ == "Module" and kind.__module__.startswith("torch.") for kind in type(value).__mro__)


def _short(dtype: object) -> str:
    return str(dtype).removeprefix("torch.")
