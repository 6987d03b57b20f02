"""Pages as text: what a browser is not needed for."""

import html
import json
import re

from pytest_tfdebug.check_record import CheckRecord, ForwardRecord, SourceText, ValueRecord, read_checks
from pytest_tfdebug.publish.annotation import annotation
from pytest_tfdebug.records import CulpritRecord, SourceRange
from pytest_tfdebug.report.page import card, issue, render_check, render_index

RUN = {"command": ["pytest", "tests/a b.py"], "environment": {"torch": "2.13", "cuda": None}}


def record(**changes):
    given = {"test": "tests/test_it.py::test_port", "check": "parity", "status": "failed", "headline": "It differs."}
    return CheckRecord(**{**given, **changes})


def as_read(check):
    return read_checks([json.loads(json.dumps(check.to_dict()))])[0]


def test_page_asks_for_nothing_from_a_network():
    check = as_read(record(culprit=CulpritRecord("inner", "module", SourceRange("/a/model.py", 3, 4), "", "Linear")))

    for page in (render_check(check), render_index([card(check)], RUN)):
        assert "http" not in page


def test_what_could_end_a_script_is_escaped():
    evil = "</script><script>alert(1)</script>"
    check = as_read(
        record(headline=evil, text=evil, forward=ForwardRecord(sources=(SourceText(evil, 1, (evil,)), None)))
    )

    assert evil not in render_check(check)
    assert evil not in render_index([card(check)], RUN)


def test_promises_are_one_matrix():
    kept = {"check": "conformance", "model": "Bert", "status": "passed"}
    cards = [card(record(**kept, name="Bert padding")), card(record(**{**kept, "status": "failed"}, name="Bert cache"))]

    page = render_index(cards, RUN)

    assert re.findall(r'<th scope="col">(\w+)</th>', page) == ["model", "padding", "cache"]
    assert re.findall(r'aria-label="(\w+: \w+)"', page) == ["padding: passed", "cache: failed"]


def test_values_that_are_the_same_stand_in_one_row():
    values = [
        ValueRecord(i, "add", "", "m", None, "", (2,), "float32", (), "same", p) for i, p in ((1, 5), (2, None), (3, 7))
    ]
    theirs = [
        ValueRecord(i, "add", "", "m", None, "", (2,), "float32", (), "same", p) for i, p in ((5, 1), (6, None), (7, 3))
    ]
    forward = ForwardRecord(values=tuple(values), reference_values=tuple(theirs))

    rows = re.findall(r"<tr.*?</tr>", render_check(record(forward=forward)), re.DOTALL)

    assert [re.findall(r'id="(\w+)"', row) for row in rows[1:]] == [["v1", "r5"], ["v2"], ["r6"], ["v3", "r7"]]


def test_index_shows_the_command_as_it_is_typed():
    assert "pytest &#39;tests/a b.py&#39;" in render_index([], RUN)


def test_issue_holds_answer_lines_and_command():
    source = SourceText(
        "/home/me/model.py", 2, ("def forward(self, x):", "    return x + 1"), SourceRange("model.py", 3, 3)
    )
    check = as_read(record(diagnosis="One too many.", forward=ForwardRecord(sources=(source, None))))

    text = issue(check, "pytest tests/test_it.py::test_port")

    assert text.startswith("**It differs.**\n")
    assert "One too many." in text
    assert "Here, `model.py:3`\n\n```python\n    return x + 1\n```" in text
    assert text.endswith("```\npytest tests/test_it.py::test_port\n```\n")


def test_code_with_fences_stays_in_its_own():
    source = SourceText("model.py", 1, ('text = "```"',), SourceRange("model.py", 1, 1))

    assert "~~~~python" in issue(as_read(record(forward=ForwardRecord(sources=(source, None)))), "pytest")


def test_rules_that_were_tried_can_be_copied_as_an_argument():
    page = render_check(as_read(record(rename={"blocks.*": "model.layers.*", "head": "lm_head"})))

    argument = html.unescape(page.partition("Copy rename=")[0].rpartition('data-copy="')[2].partition('"')[0])
    assert argument == 'rename={"blocks.*": "model.layers.*", "head": "lm_head"}'


def test_annotation_escapes_what_github_reads(tmp_path):
    file = tmp_path / "a,b:c.py"
    file.write_text("")
    check = record(
        headline="50% off\nor more", culprit=CulpritRecord("x", "glue", SourceRange(str(file), 2, 3), "", "X")
    )

    line = annotation(check, str(tmp_path))

    assert line.startswith(
        "::error file=a%2Cb%3Ac.py,line=2,endLine=3,title=parity%3A tests/test_it.py%3A%3Atest_port::"
    )
    assert line.endswith("::50%25 off%0Aor more")


def test_annotation_has_no_place_where_none_is_in_the_repository(tmp_path):
    check = record(culprit=CulpritRecord("x", "glue", SourceRange("/elsewhere/model.py", 2, 3), "", "X"))

    assert annotation(check, str(tmp_path)).startswith("::error title=")
