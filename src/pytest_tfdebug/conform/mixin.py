"""One test for each promise, in a class of its own or beside transformers' own tests."""

from __future__ import annotations

import sys
import unittest
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from pytest_tfdebug.conform.judge import declared, judge, tell
from pytest_tfdebug.conform.promises import PROMISES
from pytest_tfdebug.conform.subject import Subject
from pytest_tfdebug.conform.tester_inputs import prepared
from pytest_tfdebug.errors import ConformanceError, TFDebugError
from pytest_tfdebug.running import RUNNING
from pytest_tfdebug.sweeping.inputs import default_inputs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pytest_tfdebug.conform.promises import Promise

_NAMES = [promise.name for promise in PROMISES]


class ConformanceMixin:
    """Adds a test for each promise to a test class of transformers, over its ``all_model_classes``.

    The inputs are those of the model tester, made anew with seeded random numbers, with the real tokens of each row
    side by side and no special token among them that does not stand in every row. Each model class is a sub-test.
    """

    conformance_varies: ClassVar[Mapping[str, object]] = {}  # promise -> class of the model -> why it varies by design

    def conformance_subjects(self) -> Iterator[Subject]:
        """Yield the models that the promises are asked of."""
        yield from prepared(self)

    def _keep(self, promise: Promise) -> None:
        __tracebackhide__ = True
        subjects = list(self.conformance_subjects())
        if not subjects:
            raise TFDebugError(
                f"{type(self).__name__} has no model class to hold to its promises: set all_model_classes."
            )
        varies = declared(self.conformance_varies, (subject.name for subject in subjects), _NAMES).get(promise.name, {})
        absent, count = [], len(subjects)
        while subjects:
            subject = subjects.pop(0)  # its model is let go with it
            with self.subTest(model=subject.name):  # type: ignore[attr-defined] # of a TestCase
                try:
                    verdict = judge(subject, promise, varies.get(subject.name, ""))
                except ConformanceError as error:
                    tell(error.verdict, error)
                    raise
                tell(verdict)
                absent += [verdict.text] if verdict.state == "does not apply" else []
        if len(absent) == count:
            # After subtests a SkipTest is lost on Python 3.10: pytest then counts the test as passed.
            skip = unittest.SkipTest if RUNNING.item is None else pytest.skip.Exception
            raise skip(f"{promise.name} does not apply: {'; '.join(dict.fromkeys(absent))}")


def _test(promise: Promise) -> Callable[[ConformanceMixin], None]:
    def test(self: ConformanceMixin) -> None:
        __tracebackhide__ = True
        self._keep(promise)

    test.__name__ = f"test_conformance_{promise.name}"
    test.__qualname__ = f"{ConformanceMixin.__name__}.{test.__name__}"
    test.__doc__ = f"The model {promise.text}."
    return test


for _promise in PROMISES:
    setattr(ConformanceMixin, f"test_conformance_{_promise.name}", _test(_promise))


def conformance(
    model_class: type,
    config: object,
    *,
    inputs: Mapping[str, Any] | None = None,
    varies: Mapping[str, object] | None = None,
) -> type[unittest.TestCase]:
    """Return a test class with one test for each promise of a model class.

    The model is built from the configuration with seeded random numbers, so the configuration should be small.

    Args:
        model_class: The class, called with the configuration alone.
        config: The configuration.
        inputs: Keyword inputs of its forward; by default made from the configuration and the forward's parameters.
        varies: Promise -> why the model does not keep it by design. Its test then fails once it does keep it.

    Returns:
        A ``unittest.TestCase``: give it a name in a test file.

    Raises:
        TFDebugError: If ``varies`` names a promise that does not exist, or gives no reason.

    Example:
        >>> TestMyModel = pytest_tfdebug.conformance(MyForCausalLM, MyConfig(hidden_size=32, num_hidden_layers=2))
    """
    if not isinstance(model_class, type):
        raise TFDebugError(f"conformance takes a model class and its configuration, not {model_class!r:.80}.")
    given = declared(varies, [model_class.__name__], _NAMES)

    def subjects(_: object) -> Iterator[Subject]:
        yield Subject.of(model_class, config, default_inputs if inputs is None else inputs)

    caller = sys._getframe(1).f_globals.get("__name__", __name__)  # noqa: SLF001 - the module that gets the class
    namespace = {"conformance_subjects": subjects, "conformance_varies": given, "__module__": caller}
    return type(f"Test{model_class.__name__}", (ConformanceMixin, unittest.TestCase), namespace)
