"""How far apart two tensors may be, and rules of ``tolerance=`` and ``rename=`` that match nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, get_args

import torch

from pytest_tfdebug.errors import TFDebugError
from pytest_tfdebug.parity.pair.rename import rules_of
from pytest_tfdebug.tracing.record.modules import MEANING, checked, matches, nearest

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from pytest_tfdebug.parity.pair.rename import Rename, Rule
    from pytest_tfdebug.tracing.trace import Trace


class Tolerance(NamedTuple):
    """Elements agree when ``|actual - expected| <= atol + rtol * |expected|``."""

    rtol: float
    atol: float  # absolute tolerance, in the tensor's units
    # multiply ``atol`` by the root mean square of the expected tensor where that is above 1: a sum of large numbers
    # that ends near 0 carries the rounding of the large numbers
    scaled: bool = False
    # relative L2 up to which a tensor whose elements stay within :data:`NOISE_REACH` times the allowed difference is
    # rounding all the same: in a deep model the largest of many elements leaves a tolerance that was made for one
    # operation. 0 for none.
    noise: float = 0.0
    least_scale: float = 1.0  # what takes the place of 1 in ``scaled``

    def times(self, share: float) -> Tolerance:
        """Return a share of what is allowed."""
        return self._replace(rtol=share * self.rtol, atol=share * self.atol, noise=share * self.noise)

    def absolute(self, rms: float) -> float:
        """Return the absolute tolerance for an expected tensor of this root mean square."""
        return self.atol * max(self.least_scale, rms) if self.scaled and math.isfinite(rms) else self.atol


#: How far single elements may leave the tolerance of a tensor that is noise as a whole. A correct port of
#: all-MiniLM-L6-v2 has a relative L2 of 1.3e-6 and elements at 7 times the tolerance; bugs start at 1e-4.
NOISE_REACH = 30.0


#: Default tolerance by dtype. The relative tolerances, and the absolute ones of float32 and float64, are those of
#: ``torch.testing.assert_close``. float16 and bfloat16 allow the noise of eight random layers in another order of
#: operations at a scale of 1 (1e-3 and 1e-2, see transformers' test_eager_matches_sdpa_inference for the same sizes).
#: The noise of float32 is ten times what correct ports show, and a tenth of the smallest bug of our catalogue.
#: float8 has one step of its mantissa. Integers and booleans are equal or not.
DEFAULTS: dict[str, Tolerance] = {
    "float64": Tolerance(1e-7, 1e-7, scaled=True),
    "complex128": Tolerance(1e-7, 1e-7, scaled=True),
    "float32": Tolerance(1.3e-6, 1e-5, scaled=True, noise=1e-5),
    "complex64": Tolerance(1.3e-6, 1e-5, scaled=True),
    "float16": Tolerance(1e-3, 1e-3, scaled=True, noise=2e-3),
    "complex32": Tolerance(1e-3, 1e-3, scaled=True),
    "bfloat16": Tolerance(1.6e-2, 1e-2, scaled=True, noise=1.6e-2),
    "float8_e4m3fn": Tolerance(0.125, 0.125, scaled=True),
    "float8_e5m2": Tolerance(0.25, 0.25, scaled=True),
}
_EXACT = Tolerance(0.0, 0.0)
#: Where a tolerance comes from that nobody gave: from the dtype, or from the floor that was measured in float64.
ToleranceBy = Literal["dtype", "fp64"]
#: How many times its floor a tensor may differ by. Under other kernels (eager attention, implementations of experts)
#: the models of utils/architectures.py differ from themselves by up to 1.4 floors, single elements by up to 5.
FLOORS = 8.0
#: Share of the dtype's epsilon that a floor is at least taken for: one rounding, where none was seen by luck.
_ONE_ROUNDING = 0.25


def by_floor(floor: float, dtype: str) -> Tolerance:
    """Return the tolerance of a tensor whose floor is known."""
    share = FLOORS * max(floor, _ONE_ROUNDING * torch.finfo(getattr(torch, dtype)).eps)
    return Tolerance(share, share, scaled=True, noise=share, least_scale=0.0)


#: What one ``tolerance=`` says: where it comes from, a pair for every tensor, or pairs by dtype and module.
ToleranceGiven: TypeAlias = "ToleranceBy | tuple[float, float] | Mapping[str, tuple[float, float]]"


@dataclass(frozen=True)
class Tolerances:
    """The tolerance of every tensor of a comparison.

    The strongest first: ``rtol`` and ``atol``; an override whose glob matches the module path (the last that matches);
    an override of the dtype; the floor of the tensor, where it is asked for and known; the default of the dtype.
    """

    rtol: float | None = None  # for every tensor of floating point
    atol: float | None = None  # for every tensor of floating point
    overrides: tuple[tuple[str, Tolerance], ...] = ()  # dtype name or module-path glob, with its tolerance
    weaker: Tolerances | None = None  # what holds where none of these says anything, in place of the defaults
    by: ToleranceBy = "dtype"  # where the defaults come from

    @property
    def globs(self) -> tuple[str, ...]:
        """The module-path globs of the overrides, those of weaker places left out."""
        return tuple(key for key, _ in self.overrides if key not in DEFAULTS)

    @property
    def are_given(self) -> bool:
        """Whether somebody has said how far a tensor may be off."""
        own = (self.rtol, self.atol, self.overrides or None)
        return own != (None, None, None) or (self.weaker is not None and self.weaker.are_given)

    @property
    def are_defaults(self) -> bool:
        """Whether every tensor has the tolerance of its dtype."""
        is_own = not self.are_given and self.by == "dtype"
        return is_own and (self.weaker is None or self.weaker.are_defaults)

    def times(self, share: float) -> Tolerances:
        """Return a share of what is allowed, of defaults by dtype."""
        overrides = tuple((dtype, allowed.times(share)) for dtype, allowed in self.overrides)
        return replace(self, overrides=overrides)

    def of(self, path: str, dtype: str, floor: float | None = None) -> Tolerance:
        """Return the tolerance of a tensor of ``dtype`` at a module path."""
        if dtype not in DEFAULTS:
            return _EXACT
        if self.weaker is not None:
            chosen = self.weaker.of(path, dtype, floor)
        else:
            chosen = DEFAULTS[dtype] if floor is None or self.by == "dtype" else by_floor(floor, dtype)
        by_dtype = [tolerance for key, tolerance in self.overrides if key == dtype]
        by_path = [tolerance for key, tolerance in self.overrides if key not in DEFAULTS and matches(path, key)]
        chosen = [chosen, *by_dtype, *by_path][-1]
        if self.rtol is not None:
            chosen = chosen._replace(rtol=self.rtol, noise=0.0)
        if self.atol is not None:
            chosen = chosen._replace(atol=self.atol, scaled=False, noise=0.0)
        return chosen


def tolerances(
    rtol: float | None = None,
    atol: float | None = None,
    overrides: Mapping[str, tuple[float, float]] | None = None,
) -> Tolerances:
    """Check what a user gave and build the tolerances."""
    for name, value in (("rtol", rtol), ("atol", atol)):
        _check(name, value)
    pairs = []
    for key, pair in (overrides or {}).items():
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:  # noqa: PLR2004
            raise TFDebugError(f"tolerance[{key!r}] = {pair!r} is not a pair (rtol, atol).")
        for name, value in zip(("rtol", "atol"), pair, strict=True):
            _check(f"{name} of tolerance[{key!r}]", value)
        pairs.append((checked(key), Tolerance(float(pair[0]), float(pair[1]))))
    return Tolerances(rtol, atol, tuple(pairs))


def read_tolerance(given: object) -> Tolerances:
    """Return what one ``tolerance=`` says."""
    if given is None:
        return Tolerances()
    if isinstance(given, str) and given in get_args(ToleranceBy):
        return Tolerances(by=given)  # type: ignore[arg-type] # one of them, as was just asked
    if isinstance(given, (tuple, list)) and len(given) == 2:  # noqa: PLR2004 - rtol and atol
        return tolerances(*given)
    if isinstance(given, Mapping):
        return tolerances(overrides=given)
    raise TFDebugError(
        f"tolerance={given!r} is not 'dtype', 'fp64', a pair (rtol, atol), or a dict of such pairs by dtype or module "
        'path: {"**.lm_head": (1e-3, 1e-3)}.'
    )


def layered(first: Tolerances, *fallbacks: Tolerances) -> Tolerances:
    """Combine tolerances from several places, the strongest first: argument, marker, ini.

    Whatever a stronger place says of a tensor, be it of all, of its module or of its dtype, holds before a weaker one.
    """
    return replace(first, weaker=layered(*fallbacks)) if fallbacks else first


def _check(name: str, value: object) -> None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if value is not None and not (is_number and value >= 0):  # type: ignore[operator] # a number, as was just asked
        raise TFDebugError(f"{name} = {value!r} is not a number >= 0.")


def check_rules(rename: Rename, globs: Iterable[str], port: Collection[str], reference: Collection[str]) -> None:
    """Refuse rules that match nothing."""
    for rule in rules_of(rename) if isinstance(rename, Mapping) else ():
        _check_rename(rule, port, reference)
    for glob in globs:
        if not any(matches(path, glob) for path in port):
            hint = nearest(glob, [*port, *DEFAULTS])
            raise TFDebugError(f"tolerance: no module of the port matches {glob!r} ({MEANING}).{hint}")


def paths_of(trace: Trace) -> set[str]:
    """Return the module paths of a traced model, those of shared modules and the root's name included."""
    others = (path for paths in trace.aliases.values() for path in paths)
    return {trace.model_class, *trace.modules, *others, *(call.path for call in trace.calls)}


def _check_rename(rule: Rule, port: Collection[str], reference: Collection[str]) -> None:
    named = [name for path in port if (name := rule.apply(path)) is not None]
    if not named:
        raise TFDebugError(
            f"rename: no module of the port matches {rule.source!r} ({MEANING}).{nearest(rule.source, port)}"
        )
    if not any(name in reference or not name for name in named):
        wanted = min(named, key=lambda name: (name.count("."), name))
        raise TFDebugError(
            f"rename: {rule.source!r} -> {rule.target!r} names no module of the reference: it has no {wanted!r}."
            f"{nearest(wanted, reference)}"
        )
