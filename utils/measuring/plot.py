"""The figures as a chart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from measuring.figures import OF_BARE
from measuring.growth import DEPTHS
from measuring.ours import OURS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

    from measuring.figures import Figure

_OURS, _OTHERS = "#2a6f97", "#bcb8b1"
_SECTIONS, _WORK = ("core", "goldens", "overflow"), "Llama, 8 layers"


def draw(figures: Sequence[Figure], path: Path) -> None:
    """Write a chart: what each costs on the larger Llama, and how that grows with depth.

    Args:
        figures: Of a run.
        path: Its ending is the format: ``.svg``, ``.png``, ``.pdf``.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(13, 5), width_ratios=(3, 2), layout="constrained")
    _bars(left, [each for each in figures if each.section in _SECTIONS and each.work == _WORK])
    _lines(right, [each for each in figures if each.unit == OF_BARE and each.work in [f"{n} layers" for n in DEPTHS]])
    figure.savefig(path)
    plt.close(figure)


def _bars(axes: Axes, figures: Sequence[Figure]) -> None:
    """Draw a bar for each candidate, the dearest on top; the axis is logarithmic."""
    values = {each.name: each.value for each in figures if each.value is not None}
    ours = {kind.name for kind in OURS}
    names = sorted(values, key=lambda name: values[name])
    bars = axes.barh(names, [values[name] for name in names], color=[_OURS if n in ours else _OTHERS for n in names])
    axes.bar_label(bars, fmt="%.2f", padding=3)
    axes.set(xscale="log", xlabel=f"{_WORK}: times the bare forward (blue: pytest-tfdebug)")
    axes.margins(x=0.1)
    axes.axvline(1, color="black", linewidth=0.8)


def _lines(axes: Axes, figures: Sequence[Figure]) -> None:
    """Draw each candidate's ratio over the number of layers: a level line is linear growth."""
    for name in dict.fromkeys(each.name for each in figures):
        points = [(int(each.work.split()[0]), each.value) for each in figures if each.name == name]
        axes.plot(*zip(*points, strict=True), marker="o", label=name)
    axes.set(xscale="log", xlabel="layers", ylabel="times the bare forward", ylim=(0, None))
    axes.minorticks_off()
    axes.set_xticks(DEPTHS, map(str, DEPTHS))
    axes.legend()
