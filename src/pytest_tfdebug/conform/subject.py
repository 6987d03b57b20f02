"""A model class as the promises check it: small, seeded, called once."""

from __future__ import annotations

import copy
import random
import re
import sys
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import torch

from pytest_tfdebug.errors import TFDebugError
from pytest_tfdebug.goldens.weights import fill
from pytest_tfdebug.invariance.calls.model_traits import accepted, special_ids
from pytest_tfdebug.invariance.calls.observed_call import ObservedCall, observe
from pytest_tfdebug.invariance.calls.sequences import FRAMES
from pytest_tfdebug.invariance.checks.base import Outcome
from pytest_tfdebug.tracing.record.leaves import duplicate
from pytest_tfdebug.tracing.record.signatures import named_parameters
from pytest_tfdebug.tracing.record.state import preserved, random_state_kept

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
    from typing import TypeGuard

    from pytest_tfdebug.records import Culprit


def broken(told: str, details: Iterable[str], diagnosis: str, culprit: Culprit | None = None) -> Outcome:
    """Return what is found of a broken promise: a sentence, its details in lines, and what is probably wrong."""
    text = "\n  ".join([told, *details, f"Diagnosis: {diagnosis}"])
    return Outcome(text=text, culprit=culprit, diagnosis=diagnosis)


@dataclass(eq=False)
class Subject:
    """A model that is held to the promises."""

    model_class: type  # the class
    config: object  # what it is built from, which is left as it is
    # keyword inputs of its forward, or a function of the model that makes them
    inputs: Mapping[str, Any] | Callable[[torch.nn.Module], Mapping[str, Any]]
    # what transformers calls the inputs of a forward that has names of its own
    names: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Name of the class."""
        return self.model_class.__name__

    @cached_property
    def model(self) -> Any:  # noqa: ANN401 - a module, most often a pretrained model
        """The model in eval mode, the same in every run.

        Its weights are those of :func:`pytest_tfdebug.fill`. With the usual weights, whose standard deviation is 0.02,
        the attention of a small model is nearly uniform, and wrong positions or masks change its answer by less than
        the tolerance.
        """
        model = self._new()
        with suppress(TFDebugError):  # it keeps parameters that are not plain numbers
            fill(model)
        return model

    def _new(self) -> Any:  # noqa: ANN401 - as above
        with torch.random.fork_rng():
            torch.manual_seed(0)
            try:
                return self.model_class(copy.deepcopy(self.config)).eval()
            except Exception as error:
                why = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
                raise TFDebugError(f"{self.name} cannot be built from its configuration: {why}") from error

    @cached_property
    def call(self) -> ObservedCall:
        """The model's plain call; with the weights that it is built with, where it raises with others."""
        try:
            return self._call()
        except TFDebugError:
            self.model = self._new()  # a detector may point outside of its image with weights of any other size
            with suppress(TFDebugError):
                return self._call()
            raise

    @property
    def named_call(self) -> ObservedCall:
        """The plain call, with its inputs under the names of transformers."""
        return self.call.under_names(self.names)

    def _call(self) -> ObservedCall:
        model, given = self.model, self.inputs
        taken = accepted(model)
        unknown = next((name for name in self.names if name not in taken), None)
        if unknown is not None:
            told = f"inputs= names {unknown!r}, which the forward does not take; it takes {', '.join(taken)}."
            raise TFDebugError(f"{self.name}: {told}")
        try:
            inputs = duplicate(dict(given(model) if callable(given) else given))  # a model may write into them
        except ValueError as error:
            raise TFDebugError(str(error) if self.names else _own_names(model, error)) from None
        try:
            with preserved(model), torch.no_grad():
                torch.manual_seed(0)
                call, _ = observe(model, (), inputs, lambda: model(**inputs))
        except Exception as error:
            told = f"{self.name} cannot be called with {', '.join(inputs) or 'no inputs'}: {type(error).__name__}"
            raise TFDebugError(f"{told}: {error}\nGive inputs= that its forward takes.") from error
        if call.refusal:
            raise TFDebugError(f"{call.refusal}.\nGive inputs= without a cache.")
        call.at = None
        return call


def _own_names(model: torch.nn.Module, error: ValueError) -> str:
    """Return what to say of a model whose inputs could not be made: the names that its forward takes."""
    names = [name for name in named_parameters(cast("Hashable", type(model))) if name != "self"]
    if not names or "its forward takes none of" not in str(error):
        return str(error)
    told = f"{type(model).__name__}'s forward takes {', '.join(names)}"
    return f'{told}: say conformance(..., inputs={{"{names[0]}": ...}})'


_COMMON = "test_modeling_common"
_MASKS = {"attention_mask": "input_ids", "decoder_attention_mask": "decoder_input_ids"}
#: Names of inputs that hold images or sound.
_MEDIA = re.compile(r"pixel|image|video|audio|speech|feature")
#: Names of tokens whose place an image or a sound takes.
_PAD = re.compile(r"^pad_token")
_MEDIA_TOKENS = re.compile(r"image|vision|video|audio|speech")
#: Dimensions of a table of tokens.
_TABLE = 2


def prepared(case: Any) -> Iterator[Subject]:  # noqa: ANN401 - a test class of transformers
    """Yield a subject for each of ``all_model_classes``, with the inputs of the model tester."""
    tester = getattr(case, "model_tester", None)
    if tester is None or not hasattr(tester, "prepare_config_and_inputs_for_common"):
        raise TFDebugError(
            f"{type(case).__name__} has no model_tester with prepare_config_and_inputs_for_common.\n"
            "Mix ConformanceMixin into a model's test class of transformers, or use pytest_tfdebug.conformance."
        )
    for model_class in case.all_model_classes or ():
        with _seeded():
            config, inputs = tester.prepare_config_and_inputs_for_common()
            prepare = getattr(case, "_prepare_for_class", None)
            given = prepare(inputs, model_class) if prepare is not None else inputs
        yield Subject(model_class, config, cleaned(given, config))


def cleaned(inputs: dict[str, Any], config: object) -> dict[str, Any]:
    """Return inputs whose masks have no holes, with pads where they are 0 and without stray special tokens elsewhere.

    A special token that is in the same place of every row is there on purpose, and so is a token that an image or sound
    takes the place of, where one is given: they stay, and no mask hides them. All frames of sound become real ones: a
    model pools frames, and nobody can tell which of the pooled ones are pads.
    """
    made = {name: copy.deepcopy(value) for name, value in inputs.items() if value is not None}
    special, pad = special_ids(config), getattr(config, "pad_token_id", None)
    places = special_ids(config, _MEDIA_TOKENS) if any(map(_MEDIA.search, made)) else set()
    for mask_name, ids_name in _MASKS.items():
        mask, ids = made.get(mask_name), made.get(ids_name)
        if _is_table(ids):
            # a token that is in half of the rows or more was not merely drawn
            places = {place for place in places if 2 * int((ids == place).any(dim=1).sum()) >= len(ids)}
            made[ids_name] = ids = _without_strays(ids, special, special_ids(config, _PAD), places)
        if not _is_table(mask):
            continue
        made[mask_name] = _on_the_left(mask)
        if _is_table(ids) and ids.shape == mask.shape:
            made[ids_name], made[mask_name] = _padded(ids, made[mask_name], special - {pad}, places, pad)
        elif mask_name == FRAMES.mask and any(name in made for name in FRAMES.mains):
            made[mask_name] = torch.ones_like(mask)
    return made


def _padded(
    ids: torch.Tensor, mask: torch.Tensor, special: set[Any], places: set[int], pad: object
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ids with pads behind their real tokens, and a mask that hides none that no pad may replace.

    A special token that ends every row still ends it; one that is in the last column alone moves to where its row ends.
    """
    kept = _is_meant(ids, special)
    if ids.shape[1] > 1 and not bool(kept[0, -2]):
        kept[:, -1] = False
    kept |= _is_among(ids, places)
    positions = torch.arange(1, mask.shape[1] + 1, device=mask.device)
    if not bool((mask[kept] != 0).all()):
        count = torch.maximum((mask != 0).sum(dim=1), (positions * kept).amax(dim=1))
        mask = (positions <= count[:, None]).to(mask.dtype)
    if not isinstance(pad, int):
        return ids, mask
    made = ids.where(mask.bool(), torch.full_like(ids, pad))
    if bool(_is_meant(ids[:, -1:], special).all()):
        made[torch.arange(len(ids)), mask.sum(dim=1) - 1] = ids[:, -1]
    return made, mask


def _is_table(value: Any) -> TypeGuard[torch.Tensor]:  # noqa: ANN401 - any input
    return isinstance(value, torch.Tensor) and value.dim() == _TABLE and not value.is_floating_point()


def _on_the_left(mask: torch.Tensor) -> torch.Tensor:
    """Return a mask with the same number of real tokens in each row, but half of them at least, all at its beginning.

    A mask without holes that hides no more than that is left as it is. What a mask hides is held to no promise, and
    attention that may look at nothing looks at everything.
    """
    changes = (mask[:, 1:] != mask[:, :-1]).sum(dim=1)
    count, half = (mask != 0).sum(dim=1, keepdim=True), (mask.shape[1] + 1) // 2
    if bool((changes <= 1).all()) and bool((count >= half).all()):
        return mask
    return (torch.arange(mask.shape[1], device=mask.device)[None, :] < count.clamp(min=half)).to(mask.dtype)


def _without_strays(ids: torch.Tensor, special: set[int], pads: set[int], places: set[int]) -> torch.Tensor:
    """Return ids in which special tokens are replaced, unless they are meant or hold the place of an image or sound.

    A pad is meant where a decoder begins with it, or at an end.
    """
    is_special = _is_among(ids, special)
    ordinary = ids[~is_special]
    if not ordinary.numel():
        return ids
    is_meant = _is_meant(ids, special)
    is_meant[:, 1:-1] &= ~_is_among(ids[:, 1:-1], pads)
    return ids.where(~is_special | is_meant | _is_among(ids, places), ordinary.flatten()[0])


def _is_meant(ids: torch.Tensor, special: set[Any]) -> torch.Tensor:
    """Return where every row has the same special token in that column, ``(batch, length)``, bool."""
    is_same = (_is_among(ids, special) & (ids == ids[:1])).all(dim=0, keepdim=True)
    return is_same.repeat(len(ids), 1)


def _is_among(ids: torch.Tensor, some: set[Any]) -> torch.Tensor:
    return torch.isin(ids, torch.tensor(sorted(some), dtype=ids.dtype, device=ids.device))


@contextmanager
def _seeded() -> Iterator[None]:
    """Seed every generator of random numbers, that of transformers' own tests included."""
    own = [module for name, module in list(sys.modules.items()) if name.rpartition(".")[2] == _COMMON]
    generators = [vars(module).get("global_rng") for module in own]
    kept = [(each, each.getstate()) for each in generators if isinstance(each, random.Random)]
    with random_state_kept():
        try:
            torch.manual_seed(0)
            random.seed(0)
            if "numpy" in sys.modules:
                sys.modules["numpy"].random.seed(0)
            for generator, _ in kept:
                generator.seed(0)
            yield
        finally:
            for generator, state in kept:
                generator.setstate(state)
