"""What holds for all pages: size, speed, strangers' names, links from other reports."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from controls import click_everything

from pytest_tfdebug.check_record import CallPair, CallRecord, CheckRecord, ForwardRecord, SourceText, read_checks
from pytest_tfdebug.publish.hooks import Pages
from pytest_tfdebug.records import CulpritRecord

RUN = {"command": ["pytest"], "environment": {}}
REPOSITORY = Path(__file__).resolve().parents[2]
CALLS = 5000


def many_calls(stem):
    """Return the calls of a deep model: layers of 13 modules, of which the last 100 differ."""
    calls = [CallRecord(0, "Deep", "Deep", 0, None, CALLS - 1, "differs", 40.0)]
    for index in range(1, CALLS):
        layer, part = divmod(index - 1, 14)
        top, state = 1 + 14 * layer, "differs" if layer >= CALLS // 14 - 100 else "agrees"
        path = f"{stem}.{layer}.part_{part}.projection" if part else f"{stem}.{layer}"
        share = 0.001 * (part + 1) * (1e4 if state == "differs" else 1)
        parent, name = (top, "Linear") if part else (0, "Layer")
        calls.append(
            CallRecord(index, path, name, 0, parent, index, state, share, 1e-5, 1e-5, 1e-6, (2, 99), "float32")
        )
    return tuple(calls)


def write(folder, record):
    site = Pages(folder)
    [check] = read_checks([json.loads(json.dumps(record.to_dict()))])
    site.add(check)
    site.finish(RUN)
    return folder / "checks" / f"{check.slug}.html"


def test_5000_calls_stay_under_5_mb_and_a_second_of_drawing(tmp_path, sight):
    pairs = tuple(CallPair(index, index, "name") for index in range(CALLS))
    own, there = many_calls("blocks"), many_calls("model.layers")
    culprit = next(call for call in own[1:] if call.state == "differs")
    forward = ForwardRecord(own, there, pairs, culprit=culprit.index)
    blamed = CulpritRecord(culprit.path, "module", None, "", culprit.class_name)
    file = write(
        tmp_path, CheckRecord("t.py::test", "parity", "failed", "It differs.", culprit=blamed, forward=forward)
    )
    page = sight().open(file)

    times = []
    for _ in range(5):
        page.reload()
        times.append(page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd"))

    assert file.stat().st_size < 5_000_000
    assert min(times) < 1000, times
    assert page.locator("#own .is-culprit").is_visible()
    assert page.locator("#own [role=treeitem]").count() < 1000  # what is folded has not been made


def test_equal_layers_side_by_side_are_folded(tmp_path, sight):
    pairs = tuple(CallPair(index, index, "name") for index in range(CALLS))
    forward = ForwardRecord(many_calls("blocks"), many_calls("model.layers"), pairs)
    page = sight().open(write(tmp_path, CheckRecord("t.py::test", "parity", "failed", "It differs.", forward=forward)))

    fold = page.locator("#own [role=treeitem]", has_text="257 × Layer, alike").last
    before = page.locator("#own [role=treeitem]").count()
    fold.locator("> .row").click()

    assert page.locator("#own [role=treeitem]").count() == before + 257


def test_what_strangers_write_is_text_and_nothing_else(tmp_path, sight):
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'"
    calls = (CallRecord(0, evil, evil, 0, None, 0, "differs", 2.0),)
    source = SourceText(evil, 1, (evil, "```"), None)
    record = CheckRecord(
        f"t.py::test[{evil}]",
        "parity",
        "failed",
        evil,
        model=evil,
        culprit=CulpritRecord(evil, evil, None, evil, evil),
        rename={evil: evil},
        notes=(evil,),
        text=evil,
        forward=ForwardRecord(calls, calls, (CallPair(0, 0, "suggested"),), sources=(source, source), culprit=0),
    )
    looking = sight()
    page = looking.open(write(tmp_path, record))
    click_everything(page)

    assert evil in page.locator("#own .row").first.inner_text()
    page.goto((tmp_path / "index.html").as_uri())
    assert evil in page.locator(".card").inner_text()


def test_run_without_a_check_says_what_a_check_is(tmp_path, sight):
    Pages(tmp_path).finish(RUN)

    assert "tf_golden.check" in sight().open(tmp_path / "index.html").inner_text("main")


def test_pytest_html_links_each_check(tmp_path):
    test = tmp_path / "test_it.py"
    test.write_text("""
import pytest, torch

@pytest.mark.overflow_free
def test_it():
    torch.nn.Linear(2, 2)(torch.zeros(1, 2))
""")
    report = tmp_path / "reports" / "report.html"
    command = [
        sys.executable,
        "-m",
        "pytest",
        str(test),
        f"--html={report}",
        f"--tf-html={tmp_path / 'page'}",
        "-p",
        "no:cacheprovider",
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr

    [page] = (tmp_path / "page" / "checks").iterdir()

    assert f"../page/checks/{page.name}" in report.read_text()


def luminance(colour):
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read(site, sight, scheme):
    page = sight(color_scheme=scheme).open(site / "index.html")

    def colour(name):
        return page.evaluate(
            "name => getComputedStyle(document.documentElement).getPropertyValue(name).trim()", f"--{name}"
        )

    for text, paper in (
        *((text, paper) for text in ("ink", "soft", "accent") for paper in ("paper", "sheet", "tint")),
        *((text, f"{text}-tint") for text in ("bad", "good")),
        ("ink", "mark"), ("bad", "sheet"), ("good", "sheet"), ("warn", "sheet"),
    ):  # fmt: skip
        lighter, darker = sorted((luminance(colour(text)), luminance(colour(paper))), reverse=True)
        assert (lighter + 0.05) / (darker + 0.05) >= 4.5, (text, paper)
