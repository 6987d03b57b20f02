"""What a run leaves for other tools: ``--tf-json``, ``--tf-html``, properties, annotations and the place of a failure."""

import hashlib
import json
import re
import xml.etree.ElementTree as ET

import pytest
import torch

from pytest_tfdebug.publish import hooks  # loaded once for all runs

PORT = """
    import pytest
    import torch

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.inner = torch.nn.Linear(4, 4)

        def forward(self, hidden):
            return self.inner(hidden) * {factor}

    def check(tf_golden, model, factor=1):
        tf_golden.check(model, torch.ones(2, 4))

    def test_port(tf_golden):
        check(tf_golden, Model())

    @pytest.mark.overflow_free
    def test_finite():
        Model()(torch.ones(2, 4))
"""


def write(pytester, factor=1):
    return pytester.makepyfile(test_it=PORT.format(factor=factor))


@pytest.fixture
def failing(pytester):
    """A golden, and a model that no longer gives it."""
    write(pytester)
    pytester.runpytest("--tf-golden=update").assert_outcomes(passed=2)
    return write(pytester, factor=3)


def checks_of(file):
    document = json.loads(file.read_text())
    return document, {check["test"].partition("::")[2]: check for check in document["checks"]}


def test_file_says_what_exactly_was_compared(pytester, failing):
    pytester.runpytest("--tf-json=checks.json").assert_outcomes(failed=1, passed=1)

    _, checks = checks_of(pytester.path / "checks.json")
    port, reference, own, recorded = checks["test_port"]["revisions"]
    digest = hashlib.sha256((pytester.path / "test_it.py").read_bytes()).hexdigest()[:12]
    assert port == {"of": "port", "name": "test_it.Model", "revision": digest, "version": ""}
    assert (reference["name"], reference["revision"]) == ("Model", "")
    assert [own["of"], own["name"], recorded["of"]] == ["port's weights", "2 tensors", "golden's weights"]
    assert own["revision"] == recorded["revision"]
    assert re.fullmatch(r"the output: [\d.e-]+ apart where [\d.e-]+ is allowed", checks["test_port"]["distances"][0])


def test_file_holds_every_check_with_its_schema(pytester, failing):
    pytester.runpytest("--tf-json=out/checks.json", "--tf-json-forward").assert_outcomes(failed=1, passed=1)

    document, checks = checks_of(pytester.path / "out" / "checks.json")
    port, finite = checks["test_port"], checks["test_finite"]
    assert document["schema"] == 1
    assert document["run"]["exit_status"] == 1
    assert document["run"]["environment"]["torch"]
    assert (port["check"], port["status"]) == ("parity", "failed")
    assert (finite["check"], finite["status"], finite["culprit"]) == ("overflow_free", "passed", None)
    assert port["culprit"]["path"] == "Model"
    assert port["culprit"]["source"] == {"file": str(failing), "first": 11, "last": 11}
    assert port["coverage"] == {"compared": 2, "expected": 2, "root": True}
    assert port["at"] == {"file": str(failing), "first": 14, "last": 14}
    assert [call["state"] for call in port["forward"]["own"]] == ["differs", "agrees"]
    assert port["forward"]["elements"]["shape"] == [2, 4]


def test_elements_that_differ_are_those_of_the_method_that_was_checked(pytester):
    def write_encoder(factor):
        named = PORT.format(factor=factor).replace("def forward", "def encode")
        pytester.makepyfile(test_it=named.replace("check(model, torch", "check(model.encode, torch"))

    write_encoder(1)
    pytester.runpytest("--tf-golden=update", "-k", "port").assert_outcomes(passed=1)
    write_encoder(3)
    pytester.runpytest("--tf-json=checks.json", "--tf-json-forward", "-k", "port").assert_outcomes(failed=1)

    _, checks = checks_of(pytester.path / "checks.json")
    assert checks["test_port"]["forward"]["elements"]["shape"] == [2, 4]


def test_overflow_has_its_source_in_the_file_and_on_the_page(pytester):
    file = write(pytester, factor="1e39")

    pytester.runpytest("--tf-json=checks.json", "--tf-json-forward", "--tf-html=page", "-k", "finite").assert_outcomes(
        failed=1
    )

    _, checks = checks_of(pytester.path / "checks.json")
    finite = checks["test_finite"]
    [own, none] = finite["forward"]["sources"]
    assert (own["file"], none) == (str(file), None)
    assert own["marked"] == finite["culprit"]["source"]
    page = (pytester.path / "page" / "checks" / f"{finite['id']}.html").read_text()
    assert 'id="source"' in page


@pytest.mark.nightly
def test_workers_of_xdist_send_the_same_and_the_controller_writes_the_pages(pytester, failing, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", str(torch.get_num_threads()))  # the number is part of the environment
    pytester.makeini("[pytest]\ntf_explain_seconds = 0")  # one finds a proof on a busy machine, and the other does not
    pytester.runpytest_subprocess("--tf-json=one.json")  # not in here, where other tests have loaded more
    result = pytester.runpytest_inprocess("-n", "2", "--tf-json=two.json", "--tf-html=page")

    result.assert_outcomes(failed=1, passed=1)
    _, one = checks_of(pytester.path / "one.json")
    _, two = checks_of(pytester.path / "two.json")
    assert two == one
    assert len(list((pytester.path / "page" / "checks").iterdir())) == 2
    result.stdout.fnmatch_lines(["tfdebug page: file://*/page/index.html"])


def test_end_of_a_run_says_where_page_and_file_are(pytester, failing):
    result = pytester.runpytest("--tf-html=page", "--tf-json=checks.json")

    result.stdout.fnmatch_lines(
        [f"tfdebug page: {(pytester.path / 'page' / 'index.html').as_uri()}", "tfdebug checks: *"]
    )
    index = (pytester.path / "page" / "index.html").read_text()
    assert "1 of 2 checks failed" in index
    assert 'src="http' not in index
    assert 'href="http' not in index


def test_place_that_cannot_be_written_is_said_before_anything_runs(pytester):
    (pytester.path / "taken").write_text("")

    (pytester.path / "pages-taken").mkdir()

    for flag in ("--tf-json=taken/checks.json", "--tf-html=taken", "--tf-patch=pages-taken"):
        result = pytester.runpytest_inprocess(flag)

        assert "Traceback" not in result.stderr.str() + result.stdout.str()
        result.stderr.fnmatch_lines(["*Cannot write into *taken: *. Name another place.*"])


def test_properties_reach_junit(pytester, failing):
    pytester.runpytest("--junitxml=junit.xml")

    cases = {case.get("name"): case for case in ET.parse(pytester.path / "junit.xml").iter("testcase")}  # noqa: S314 - own file
    told = {each.get("name"): each.get("value") for each in cases["test_port"].iter("property")}
    assert told == {"culprit": "Model", "file": str(failing), "lines": "11", "kind": "glue", "coverage": "2/2"}
    assert not list(cases["test_finite"].iter("property"))


def test_github_shows_every_failed_check_at_its_lines(pytester, failing, monkeypatch):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(pytester.path))

    result = pytester.runpytest()

    errors = [line for line in result.outlines if line.startswith("::error ")]
    assert len(errors) == 1
    assert errors[0].startswith(
        "::error file=test_it.py,line=11,endLine=11,title=parity%3A test_it.py%3A%3Atest_port::test_it.py:11 in Model (Model): "
    )


def test_without_github_nothing_is_annotated(pytester, failing):
    assert "::error" not in pytester.runpytest().stdout.str()


def test_culprit_outside_of_the_repository_is_shown_at_the_test(pytester, monkeypatch):
    pytester.makepyfile(
        """
        import pytest
        import torch

        @pytest.mark.overflow_free
        def test_overflow():
            torch.nn.Linear(2, 2)(torch.full((1, 2), float("inf")))
        """
    )
    monkeypatch.setenv("GITHUB_ACTIONS", "true")

    result = pytester.runpytest()

    result.stdout.fnmatch_lines(["::error file=*.py,line=6,endLine=6,title=overflow_free*"])


@pytest.mark.parametrize("flag", ["--tf-json=checks.json", "--tf-html=page"])
def test_full_disk_hides_no_failure(pytester, monkeypatch, flag):
    def full(path, _pieces):
        raise pytest.UsageError(f"Cannot write {path.name}: No space left on device. Name another place.")

    monkeypatch.setattr(hooks, "write_text", full)
    pytester.makepyfile(
        """
        import pytest, torch

        @pytest.mark.overflow_free
        def test_it():
            torch.nn.Linear(2, 2)(torch.full((1, 2), float("inf")))
        """
    )

    result = pytester.runpytest_inprocess(flag)

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*Linear*has infs*", "tfdebug: Cannot write *: No space left on device. *"])


@pytest.mark.parametrize(
    ("marker", "body"),
    [
        ("overflow_free", 'torch.nn.Linear(2, 2)(torch.full((1, 2), float("inf")))'),
        ("invariant('batch')", "Batchy()(torch.arange(6.0).view(3, 2))"),
    ],
)
def test_place_of_a_failure_is_the_line_that_called_the_model(pytester, marker, body):
    pytester.makepyfile(
        f"""
        import pytest
        import torch

        class Batchy(torch.nn.Module):
            def forward(self, hidden):
                return hidden - hidden.mean(0)

        def call():
            {body}

        @pytest.mark.{marker}
        def test_it():
            call()
        """
    )

    [report] = pytester.inline_run().getreports("pytest_runtest_logreport")[1:2]

    assert report.failed
    assert (report.longrepr.reprcrash.path, report.longrepr.reprcrash.lineno) == (
        str(next(pytester.path.glob("test_*.py"))),
        9,
    )


def test_call_that_transformers_makes_is_placed_where_the_test_asked_for_it(pytester):
    pytester.makepyfile(
        """
        import pytest
        import torch
        from transformers import LlamaConfig, LlamaForCausalLM

        sizes = {"vocab_size": 8, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}

        @pytest.mark.overflow_free
        def test_it():
            model = LlamaForCausalLM(LlamaConfig(**sizes, num_attention_heads=1))
            model.lm_head.weight.data.fill_(float("inf"))
            model.generate(torch.ones(1, 2, dtype=torch.long), max_new_tokens=1, do_sample=False)
        """
    )

    [report] = pytester.inline_run().getreports("pytest_runtest_logreport")[1:2]

    assert report.failed
    assert report.longrepr.reprcrash.lineno == 11


def test_two_checks_of_one_test_have_a_record_each(pytester):
    pytester.makepyfile(
        """
        import torch

        def test_two(tf_golden):
            model = torch.nn.Linear(2, 2)
            torch.manual_seed(0)
            torch.nn.init.normal_(model.weight)
            torch.nn.init.normal_(model.bias)
            for name in ("one", "other"):
                tf_golden.check(model, torch.ones(1, 2), name=name)
        """
    )
    pytester.runpytest("--tf-golden=update").assert_outcomes(passed=1)

    pytester.runpytest("--tf-json=checks.json").assert_outcomes(passed=1)

    document = json.loads((pytester.path / "checks.json").read_text())
    assert [check["name"] for check in document["checks"]] == ["one", "other"]
    assert len({check["id"] for check in document["checks"]}) == 2


def test_secrets_of_the_command_line_stay_out_of_the_file(pytester, monkeypatch, failing):
    monkeypatch.setenv("HF_TOKEN", "hf_abcdefghijklmnopqrstuv")

    pytester.runpytest("--tf-json=checks.json", "-o", "junit_suite_name=hf_abcdefghijklmnopqrstuv")

    assert "hf_abc" not in (pytester.path / "checks.json").read_text()


def test_golden_that_is_missing_is_a_failed_check(pytester):
    write(pytester)

    pytester.runpytest("--tf-json=checks.json").assert_outcomes(failed=1, passed=1)

    _, checks = checks_of(pytester.path / "checks.json")
    assert checks["test_port"]["status"] == "failed"
    assert checks["test_port"]["headline"].endswith("test_port.safetensors does not exist.")


def test_second_run_leaves_its_own_pages_alone(pytester, failing):
    pytester.runpytest("--tf-html=page")
    pytester.runpytest("--tf-html=page", "-k", "finite")

    [page] = (pytester.path / "page" / "checks").iterdir()
    assert page.name.startswith("test-finite-overflow-free-")


_ENDINGS = """
import pytest
import torch
import pytest_tfdebug

def filled(scale=1.0):
    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    pytest_tfdebug.fill(model, seed=0)
    with torch.no_grad():
        model[0].weight.mul_(scale)
    return model

def test_wrong(tf_golden, pytestconfig):
    tf_golden.check(filled(1.0 if pytestconfig.getoption("tf_golden") else 2.0), torch.ones(1, 2))

def test_missing(tf_golden):
    tf_golden.check(filled(), torch.ones(1, 2))

def test_raises():
    filled()(torch.ones(1, 3))

@pytest.mark.invariant("bach")
def test_marker():
    pass

@pytest.mark.overflow_free
@pytest.mark.padding_invariant
def test_nothing():
    pass

def test_plain():
    pass

def test_skipped():
    pytest.skip("why")
"""


@pytest.mark.parametrize(
    ("chosen", "verdict"),
    [
        ("", "wrong answer"),
        ("not wrong", "raised"),
        ("missing or marker", "missing golden"),
        ("marker or plain", "misuse"),
        ("nothing", "misuse"),
        ("plain or skipped", "passed"),
        ("skipped", "nothing ran"),
    ],
)
def test_json_has_the_outcome_of_each_test_and_one_verdict(pytester, chosen, verdict):
    pytester.makepyfile(test_it=_ENDINGS)
    pytester.runpytest_inprocess("--tf-golden=update", "-k", "test_wrong")

    pytester.runpytest_inprocess("--tf-json=checks.json", "-k", chosen)

    run = json.loads((pytester.path / "checks.json").read_text())["run"]
    assert run["verdict"] == verdict
    if not chosen:
        kinds = {
            test["test"].partition("::")[2]: (test["outcome"], (test["error"] or {}).get("kind"))
            for test in run["tests"]
        }
        assert kinds == {
            "test_wrong": ("failed", "wrong answer"),
            "test_missing": ("failed", "missing golden"),
            "test_raises": ("failed", "raised"),
            "test_marker": ("failed", "misuse"),
            "test_nothing": ("failed", "misuse"),
            "test_plain": ("passed", None),
            "test_skipped": ("skipped", None),
        }
