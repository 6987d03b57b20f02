"""Which hooks watch the models that a marked test calls."""

import gc
import weakref

import torch
from torch import nn

from pytest_tfdebug.overflow.settings import OverflowSettings
from pytest_tfdebug.overflow.watch import Roots, Watch

ONES = torch.ones(2, 4)


class Spoils(nn.Module):
    def forward(self, x):
        return x / 0


class Divides(nn.Module):
    def forward(self, x):
        return 1 / (x - 1)


def watch_of(body):
    watch = Watch(OverflowSettings(), raises=False)
    with Roots(watch).watching():
        body()
    return watch


def test_part_of_a_known_model_keeps_its_path():
    model = nn.Sequential(nn.Identity(), nn.Sequential(nn.Identity(), Divides()))

    def body():
        with torch.no_grad():
            model(torch.zeros(2, 4))
            model[1][1](ONES)

    assert "< [0] 1.1: Divides: output has infs" in str(watch_of(body).verdict())


def test_modules_that_a_model_adds_between_its_forwards_are_watched():
    model = nn.Sequential(nn.Linear(4, 4))

    def body():
        model(ONES)
        model.append(Spoils())
        model(ONES)

    assert "< [1] 1: Spoils: output has infs" in str(watch_of(body).verdict())


def test_call_is_seen_once_whatever_else_is_hooked():
    inner = nn.Sequential(nn.Linear(4, 4))
    outer = nn.Sequential(inner, nn.ReLU())

    def body():
        inner(ONES)
        outer(ONES)
        inner(ONES)

    assert watch_of(body).forwards == 3


def test_models_that_a_test_drops_are_freed():
    dropped = []

    def body():
        for _ in range(3):
            model = nn.Sequential(nn.Linear(4, 4))
            model(ONES)
            dropped.append(weakref.ref(model))
            del model
            gc.collect()
        assert all(ref() is None for ref in dropped)

    watch_of(body)


def test_inference_mode_is_watched():
    def body():
        with torch.inference_mode():
            nn.Sequential(nn.Linear(4, 4), Spoils())(ONES)

    assert "< [0] 1: Spoils: output has infs" in str(watch_of(body).verdict())
