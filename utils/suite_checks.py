"""What the invariance checks say of real testers' inputs: every class of a model's suite in a transformers checkout.

    python utils/suite_checks.py CHECKOUT [MODEL ...] [--seeds N] [--verbose]

The testers draw ids and masks from ``global_rng``, which nothing seeds; it is seeded here, so that a failure can be had
again. The installed transformers is checked, and the checkout gives the testers: both should be of one version.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import sys
import time
import unittest
from collections import Counter
from typing import TYPE_CHECKING, Any

import torch
from transformers.utils.logging import disable_progress_bar

import pytest_tfdebug
from pytest_tfdebug.invariance.checks.registry import CHECKS

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Decoders, encoders, both, a state space model, mixtures of experts, vision, audio and several at once.
MODELS = (
    *("llama", "gpt2", "mixtral", "deepseek_v3", "bert", "t5", "bart", "mamba"),
    *("vit", "clip", "whisper", "qwen2_vl", "llava_next", "gemma3"),
)


def calls(model_name: str, seed: int) -> Iterator[tuple[torch.nn.Module, dict[str, Any]]]:
    """Yield every class of a model's suite, built, with the inputs that its tester prepares."""
    try:
        tests = importlib.import_module(f"tests.models.{model_name}.test_modeling_{model_name}")
    except ImportError as error:
        print(f"{model_name}: its tests cannot be imported ({error})")
        return
    common = importlib.import_module("tests.test_modeling_common")
    for _, suite in inspect.getmembers(tests, inspect.isclass):
        if not issubclass(suite, common.ModelTesterMixin) or not issubclass(suite, unittest.TestCase):
            continue
        test: Any = suite("setUp")
        test.setUp()
        for model_class in test.all_model_classes:
            common.global_rng.seed(seed)
            torch.manual_seed(seed)
            config, inputs = test.model_tester.prepare_config_and_inputs_for_common()
            yield model_class(config).eval(), test._prepare_for_class(inputs, model_class)  # noqa: SLF001


def outcome(check: str, model: torch.nn.Module, inputs: dict[str, Any]) -> tuple[str, str]:
    """Return what a check says of a call, in a word or two, and its report."""
    try:
        getattr(pytest_tfdebug, f"assert_{check}")(model, dict(inputs))
    except pytest_tfdebug.InvarianceError as error:
        if error.outcome is None:
            return "cannot be asked" if "cannot be asked that way" in str(error) else "does not apply", str(error)
        return "fails" if error.culprit is not None else "fails, not placed", str(error)
    except Exception as error:  # noqa: BLE001 - a fault of the checkout or of the check: the table shows it
        return "raises", f"{type(error).__name__}: {error}"
    return "passes", ""


def main() -> None:
    """Print a table of the outcomes, and of every failure where it arises."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", help="a checkout of transformers")
    parser.add_argument("models", nargs="*", default=MODELS, help="folders under tests/models")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds of the testers' inputs to try")
    parser.add_argument("--verbose", action="store_true", help="print whole reports, and why a check does not apply")
    asked = parser.parse_intermixed_args()
    sys.path.insert(0, asked.checkout)
    disable_progress_bar()
    found = {check: Counter[str]() for check in CHECKS}
    started = time.process_time()
    for name in asked.models:
        for seed in range(asked.seeds):
            for model, inputs in calls(name, seed):
                for check, counted in found.items():
                    word, report = outcome(check, model, inputs)
                    counted[word] += 1
                    if report and (asked.verbose or word.startswith(("fails", "raises"))):
                        shown = report if asked.verbose else "\n".join(report.splitlines()[:2])
                        print(f"{name} {type(model).__name__} {check} seed {seed}: {word}\n{shown}")
    words = sorted({word for counted in found.values() for word in counted})
    print(f"\n| check | {' | '.join(words)} |\n|---|{'---:|' * len(words)}")
    for check, counted in found.items():
        print(f"| {check} | {' | '.join(str(counted[word]) for word in words)} |")
    print(f"\n{sum(sum(counted.values()) for counted in found.values())} cases, {time.process_time() - started:.0f} s")


if __name__ == "__main__":
    main()
