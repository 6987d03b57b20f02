"""What the tensors of a failed forward are: ids without a row, another dtype or width than a module takes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_tfdebug.frames import is_users, module_of, package_of
from pytest_tfdebug.triage.failure import is_a, site_of
from pytest_tfdebug.triage.rules import Facts, shown

if TYPE_CHECKING:
    import re
    from types import FrameType

    from pytest_tfdebug.triage.failure import Failure, Link


#: What models call ids and labels.
_ARGUMENTS = ("input_ids", "decoder_input_ids", "token_type_ids", "position_ids", "labels")
_IGNORED_LABEL = -100


@dataclass(frozen=True)
class Range:
    """The values of an integer tensor and what they index.

    ``room`` is the number of rows or classes; valid values are 0 to ``room - 1``, and ``outside`` of ``count`` are not.
    """

    name: str
    of: str
    low: int
    high: int
    outside: int
    count: int
    room: int

    def __str__(self) -> str:
        verdict = f"{self.outside} of {self.count} outside" if self.outside else "all inside"
        return f"{self.name} holds {self.low} to {self.high}, {self.of} take 0 to {self.room - 1}: {verdict}"


def read_ranges(failure: Failure, _link: Link, _matched: re.Match[str]) -> Facts:
    """Give the range of ids and labels against the embedding's rows and the number of classes."""
    measured = [_measure(*pair) for pair in _pairs(failure)]
    found = [entry for entry in measured if entry is not None]
    lines = dict.fromkeys(map(str, found))
    wrong = next((entry for entry in found if entry.outside), None)
    if wrong is None:
        return Facts({}, tuple(lines)[:6])
    kind = "labels" if "classes" in wrong.of else ("ids" if wrong.room in _vocabularies(failure) else "indices")
    names = {"range": str(wrong), kind: shown(wrong.name), "limit": str(wrong.room), "last": str(wrong.room - 1)}
    return Facts(names, tuple(line for line in lines if line != str(wrong))[:6])


def _pairs(failure: Failure) -> list[tuple[Any, str, int, str]]:
    """Find tensors of indices and what they index, in the frames of the functions that do."""
    pairs: list[tuple[Any, str, int, str]] = []
    for frame in failure.frames:
        values, function = frame.f_locals, frame.f_code.co_name
        if module_of(frame) == "torch.nn.functional" and is_a(values.get("input"), "Tensor"):
            if function == "embedding" and is_a(values.get("weight"), "Tensor"):
                rows = values["weight"].shape[0]
                pairs.append(
                    (values["input"], _named(failure, values["input"], "ids"), rows, f"the embedding's {rows} rows")
                )
            elif function in {"cross_entropy", "nll_loss"} and is_a(values.get("target"), "Tensor"):
                classes = values["input"].shape[1 if values["input"].dim() > 1 else 0]
                name = _named(failure, values["target"], "labels")
                pairs.append((values["target"], name, classes, f"the {classes} classes"))
    return pairs


def _vocabularies(failure: Failure) -> set[int]:
    """Return the vocabulary sizes of the models at hand, which tell ids from positions and token types."""
    models = (model for _, model in failure.local_values("self", "model"))
    sizes = (getattr(getattr(model, "config", None), "vocab_size", None) for model in models)
    return {size for size in sizes if isinstance(size, int)}


def _measure(values: Any, name: str, room: int, of: str) -> Range | None:  # noqa: ANN401 - a torch tensor
    flat = values.detach().reshape(-1)
    if flat.is_floating_point() or flat.is_meta or flat.numel() == 0:
        return None
    flat = flat.cpu()
    if "classes" in of:
        flat = flat[flat != _IGNORED_LABEL]
    if flat.numel() == 0:
        return None
    outside = int(((flat < 0) | (flat >= room)).sum())
    return Range(name, of, int(flat.min()), int(flat.max()), outside, flat.numel(), room)


def _named(failure: Failure, tensor: Any, otherwise: str) -> str:  # noqa: ANN401 - a torch tensor
    """Return the user's name for a tensor, or else the model's: that of a variable on the same memory."""
    model_name = otherwise
    for frame in failure.frames:
        for name, value in list(frame.f_locals.items()):
            if is_a(value, "Tensor") and value.dtype == tensor.dtype and value.data_ptr() == tensor.data_ptr():
                if is_users(frame):
                    return name
                if name in _ARGUMENTS:
                    model_name = name
    return model_name


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


def read_dtypes(_failure: Failure, link: Link, _matched: re.Match[str]) -> Facts:
    """Name the module and the tensor whose dtype differs; nothing if the module was called by itself."""
    running = _running(link)
    if running is None:
        return Facts()
    weight: Any = getattr(running.module, "weight", None)
    given: Any = running.frame.f_locals.get("input")
    if running.path and is_a(weight, "Tensor") and is_a(given, "Tensor"):
        return _of_weights(link, running, weight.dtype, given.dtype)
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


def _of_weights(link: Link, running: _FailedModule, weights: Any, given: Any) -> Facts:  # noqa: ANN401
    rest = running.dtype_of_rest()
    if rest is not None and weights != rest:
        told = f"{running.name} has {_short(weights)} weights, and the rest of {running.of} is {_short(rest)}"
        return Facts({"told": told, "mend": f"model.{running.path}.to({rest})    # or all of it: model.to({rest})"})
    told = f"{running.name} has {_short(weights)} weights, as {running.of} has, and was given {_short(given)}"
    mend = f"cast what it is given to {weights}"
    outside = (step for step in reversed(link.steps) if package_of(step.tb_frame) != "torch")
    caller = next((step for step in outside if step.tb_frame is not running.frame), None)
    if caller is not None:
        site = site_of(caller)
        mend += f", in {site}: {shown(site.code)}"
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
