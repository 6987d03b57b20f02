"""What the tensors of a failed forward are: ids without a row, another dtype or width than a module takes."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_tfdebug.frames import is_users, module_of, package_of
from pytest_tfdebug.triage.rules import Facts, is_a, shown, site_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import FrameType

    from pytest_tfdebug.triage.rules import Failure, Link


#: What models call ids and labels.
_ARGUMENTS = ("input_ids", "decoder_input_ids", "token_type_ids", "position_ids", "labels")
_IGNORED_LABEL = -100


def read_ranges(failure: Failure, _link: Link, _matched: re.Match[str]) -> Facts:
    """Give the range of ids and labels against the embedding's rows and the number of classes."""
    models = failure.local_values("self", "model")
    vocabularies = [getattr(getattr(model, "config", None), "vocab_size", None) for model in models]
    found: dict[str, dict[str, str]] = {}  # a line -> the names that it fills in; none where all indices are inside
    for indices, kind, room, of in _indexings(failure):
        flat = indices.detach().reshape(-1)
        if flat.is_floating_point() or flat.is_meta:
            continue
        flat = flat[flat != _IGNORED_LABEL].cpu() if kind == "labels" else flat.cpu()
        if not flat.numel():
            continue
        name, outside = _named(failure, indices, kind), int(((flat < 0) | (flat >= room)).sum())
        verdict = f"{outside} of {flat.numel()} outside" if outside else "all inside"
        line = f"{name} holds {int(flat.min())} to {int(flat.max())}, {of} take 0 to {room - 1}: {verdict}"
        what = "indices" if kind == "ids" and room not in vocabularies else kind  # positions and token types are no ids
        names = {"range": line, what: shown(name), "limit": str(room), "last": str(room - 1)}
        found.setdefault(line, names if outside else {})
    wrong = next((line for line, names in found.items() if names), "")
    return Facts(found.get(wrong, {}), tuple(line for line in found if line != wrong)[:6])


def _indexings(failure: Failure) -> Iterator[tuple[Any, str, int, str]]:
    """Yield tensors of indices, what they are, and how many of what they index, by the functions that do."""
    for frame in failure.frames:
        given, weight, target = (frame.f_locals.get(name) for name in ("input", "weight", "target"))
        if module_of(frame) != "torch.nn.functional" or not is_a(given, "Tensor"):
            continue
        if frame.f_code.co_name == "embedding" and is_a(weight, "Tensor"):
            yield given, "ids", weight.shape[0], f"the embedding's {weight.shape[0]} rows"
        elif frame.f_code.co_name in {"cross_entropy", "nll_loss"} and is_a(target, "Tensor"):
            classes = given.shape[1 if given.dim() > 1 else 0]
            yield target, "labels", classes, f"the {classes} classes"


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


class _FailedModule(NamedTuple):
    """The module whose forward failed."""

    module: Any  # the innermost module
    root: Any  # the outermost one that holds it
    path: str  # its path in there; empty for the root itself
    name: str  # its path and class
    frame: FrameType  # the frame of its forward


def read_dtypes(_failure: Failure, link: Link, _matched: re.Match[str]) -> Facts:
    """Name the module and the tensor whose dtype differs; nothing if the module was called by itself."""
    running = _running(link)
    if running is None or not running.path:
        return Facts()
    weight: Any = getattr(running.module, "weight", None)
    given: Any = running.frame.f_locals.get("input")
    if not is_a(weight, "Tensor") or not is_a(given, "Tensor"):
        return Facts()
    own, counts = {id(parameter) for parameter in running.module.parameters()}, Counter[Any]()
    for parameter in running.root.parameters():
        if id(parameter) not in own and parameter.is_floating_point():
            counts[parameter.dtype] += parameter.numel()
    rest = max(counts, key=counts.__getitem__, default=weight.dtype)  # of most weights that are not its own
    has, root = f"{running.name} has {_short(weight.dtype)} weights", type(running.root).__name__
    if weight.dtype != rest:
        mend = f"model.{running.path}.to({rest})    # or all of it: model.to({rest})"
        return Facts({"told": f"{has}, and the rest of {root} is {_short(rest)}", "mend": mend})
    mend = f"cast what it is given to {weight.dtype}"
    outside = (step for step in reversed(link.steps) if package_of(step.tb_frame) != "torch")
    caller = next((step for step in outside if step.tb_frame is not running.frame), None)
    if caller is not None:
        site = site_of(caller)
        mend += f", in {site}: {shown(site.code)}"
    return Facts({"told": f"{has}, as {root} has, and was given {_short(given.dtype)}", "mend": mend})


def read_widths(_failure: Failure, link: Link, matched: re.Match[str]) -> Facts | None:
    """Name the linear layer that got another number of features than it takes; None for any other product."""
    running = _running(link)
    if running is None or not hasattr(running.module, "in_features"):
        return None
    given: Any = running.frame.f_locals.get("input")
    lines = (f"it was given a tensor of shape {tuple(given.shape)}",) if is_a(given, "Tensor") else ()
    takes = f"{running.name} takes {matched['wanted']} features (in_features) and was given {matched['given']}"
    return Facts({"layer": running.name, "takes": takes}, lines)


def _running(link: Link) -> _FailedModule | None:
    """Return the innermost module that ran, and the outermost that holds it."""
    frames = [step.tb_frame for step in link.steps]
    ran = [(frame, frame.f_locals["self"]) for frame in frames if _is_module(frame.f_locals.get("self"))]
    for _, root in ran:
        frame, module = ran[-1]
        path = next((path for path, one in root.named_modules() if one is module), None)
        if path is not None:
            kind = type(module).__name__
            return _FailedModule(module, root, path, f"{path} ({kind})" if path else kind, frame)
    return None


def _is_module(value: object) -> bool:
    return any(kind.__name__ == "Module" and kind.__module__.startswith("torch.") for kind in type(value).__mro__)


def _short(dtype: object) -> str:
    return str(dtype).removeprefix("torch.")


#: What configurations call the number of positions.
_POSITIONS = ("max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length")
_INPUTS = ("input_ids", "inputs_embeds", "decoder_input_ids", "decoder_inputs_embeds")


def read_length(failure: Failure, _link: Link, matched: re.Match[str]) -> Facts | None:
    """Hold the length of the inputs to the positions of the model; None where another table is to blame."""
    models = [value for value in failure.local_values("self") if hasattr(value, "config")]
    known = ((model, name, getattr(model.config, name, 0)) for model in models for name in _POSITIONS)
    model, field, limit = next((each for each in known if each[2]), (None, "", 0))
    given = [(name, value) for name in _INPUTS for value in failure.local_values(name) if is_a(value, "Tensor")]
    name, length = next(((name, value.shape[1]) for name, value in given if value.dim() > 1), ("", 0))
    sizes = {int(size) for size in matched.groups() if size is not None}
    tables = [room for _, _, room, _ in _indexings(failure)]
    if model is None or length <= limit or not (_is_near(limit, sizes or tables[:1])):
        return None
    reserved = _reserved(failure)
    facts = {"name": name, "length": str(length), "model": type(model).__name__, "limit": str(limit - reserved)}
    lines = (f"{field} is {limit}, of which {reserved} are kept for pads",) if reserved else ()
    return Facts(facts | {"field": field}, lines)


def _is_near(limit: int, sizes: Iterable[int]) -> bool:
    """Tell whether a table has the size of the positions; some have two rows more (OPT, BART)."""
    return any(limit <= size <= limit + 2 for size in sizes)


def _reserved(failure: Failure) -> int:
    """Return how many positions a model keeps for pads, as RoBERTa does: it counts from behind the pad's id."""
    tables = (getattr(value, "position_embeddings", None) for value in failure.local_values("self"))
    pads = (getattr(table, "padding_idx", None) for table in tables if table is not None)
    return next((pad + 1 for pad in pads if isinstance(pad, int)), 0)


def read_operands(_failure: Failure, link: Link, _matched: re.Match[str]) -> Facts:
    """Give the line of the operation, and the shapes of the tensors that it names."""
    own = [step for step in link.steps if package_of(step.tb_frame) != "torch"]
    if not own:
        return Facts()
    site, frame = site_of(own[-1]), own[-1].tb_frame
    named = {name: value for name, value in frame.f_locals.items() if is_a(value, "Tensor")}
    words = set(re.findall(r"\w+", site.code))
    shapes = [f"{name}: {tuple(value.shape)}" for name, value in named.items() if name in words]
    return Facts({"where": f"{site}: {shown(site.code)}"}, tuple(shapes[:6]))


def read_frozen(failure: Failure, _link: Link, _matched: re.Match[str]) -> Facts:
    """Say whether all parameters of the model are frozen; nothing where some are not."""
    values = (value for frame in failure.frames if is_users(frame) for value in list(frame.f_locals.values()))
    model = next((value for value in values if _is_module(value)), None)
    parameters = [] if model is None else list(model.parameters())
    if not parameters or any(parameter.requires_grad for parameter in parameters):
        return Facts()
    told = f"all {len(parameters)} parameters of {type(model).__name__} have requires_grad=False"
    return Facts({"frozen": told, "mend": "unfreeze what is to be trained: parameter.requires_grad_(True)"})


def read_recomputed(_failure: Failure, link: Link, _matched: re.Match[str]) -> Facts | None:
    """Apply where a checkpoint computes its block again; None anywhere else."""
    return Facts() if any(module_of(step.tb_frame) == "torch.utils.checkpoint" for step in link.steps) else None


def read_ids_or_embeddings(_failure: Failure, link: Link, matched: re.Match[str]) -> Facts:
    """Say which of two inputs a model was given: both, or neither."""
    frame = next((step.tb_frame for step in reversed(link.steps) if matched["one"] in step.tb_frame.f_locals), None)
    if frame is None or not _is_module(frame.f_locals.get("self")):
        return Facts()
    one, other = matched["one"], matched["other"]
    has = [name for name in (one, other) if frame.f_locals.get(name) is not None]
    outer = [step.tb_frame.f_locals for step in link.steps]
    is_decoder = any(seen.get("decoder_input_ids", seen) is None for seen in outer) and not has
    mend = f"leave out {one}" if has else "give decoder_input_ids, or labels" if is_decoder else f"give {one}"
    given = f"both {one} and {other}" if has else f"neither {one} nor {other}"
    return Facts({"model": type(frame.f_locals["self"]).__name__, "given": given, "mend": mend})
