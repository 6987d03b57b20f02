"""Ctrl-C after the last test: while goldens are looked for, pages are written, and the summary is printed."""

import pytest

from pytest_tfdebug.tracing.record.replacing import PARTIAL

PRESSED = """
import os, signal, sys

def press(frame, event, _):
    if event == "call" and {place!r} in f"{{frame.f_code.co_filename}}:{{frame.f_code.co_name}}":
        sys.setprofile(None)
        os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.setprofile(press)
"""
TEST = """
    import pytest

    def test_that_passes():
        pass

    @pytest.mark.skip(reason="later")
    def test_that_is_skipped():
        pass
"""


@pytest.mark.parametrize(
    "place",
    [
        "/goldens/session.py:find_stale",
        "/goldens/session.py:summary",
        "/publish/hooks.py:finish",
        "/publish/hooks.py:pytest_terminal_summary",
        "/run_skipped/hooks.py:listing",
    ],
)
def test_interrupt_after_the_last_test_is_told_as_one_in_a_test(pytester, place):
    pytester.makepyfile(TEST)
    pytester.makeconftest(PRESSED.format(place=place))

    asked = "--tf-run-skipped" if "run_skipped" in place else "--tf-golden=update"
    result = pytester.runpytest_subprocess(asked, "--tf-html=pages")

    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(["*! KeyboardInterrupt !*", "*conftest.py:*: KeyboardInterrupt"])
    assert "Traceback" not in str(result.stdout) + str(result.stderr)
    assert not [*pytester.path.rglob(f"*{PARTIAL}")]
