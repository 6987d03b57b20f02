"""What the documents show happens as they print it: every Python block that begins with a file name, and their reports."""

import re
from pathlib import Path

import pytest
import transformers
from transformers import (  # noqa: F401 - loaded once for all examples
    BertForSequenceClassification,
    BertModel,
    LlamaForCausalLM,
    Qwen3ForCausalLM,
)

import pytest_tfdebug.goldens.fixture
import pytest_tfdebug.parity.compare  # noqa: F401
from padding_leaks import LEAKS

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"```python\n# (\w+\.py)\n(.*?)```", re.DOTALL)
OUTPUT = re.compile(r"```text\n(.*?)```", re.DOTALL)
NUMBER = re.compile(r"-?\d[\d.e+-]*")
#: What pytest adds to the seconds of a run of over a minute.
MINUTES = re.compile(r" \(\d+:\d\d:\d\d\)")
TUTORIAL = ROOT / "docs/tutorials/port-a-model.md"
EXAMPLES = [
    pytest.param(name, source, id=f"{page.stem}-{name}")
    for page in PAGES
    if page != TUTORIAL
    for name, source in BLOCK.findall(page.read_text(encoding="utf-8"))
]


def masked(lines):
    """Return lines without what differs from run to run: numbers, minutes, and how pytest sets a line off."""
    in_seconds = (MINUTES.sub("", line) for line in lines if line.strip())
    return [" ".join(NUMBER.sub("#", line).strip("= ").split()) for line in in_seconds]


def places(lines, files):
    """Return the lines of the page's own files that it shows: saved as printed, these are the same for everyone."""
    return re.findall(rf"\b(?:{'|'.join(map(re.escape, files))}):\d+", "\n".join(lines))


@pytest.mark.parametrize(("name", "source"), EXAMPLES)
def test_example_runs(pytester, name, source):
    pytester.makepyfile(**{name.removesuffix(".py"): source})

    recorded = pytester.runpytest_inprocess("--tf-golden=update")
    checked = pytester.runpytest_inprocess()

    assert recorded.ret == 0
    assert checked.ret == 0


def test_each_exit_code_stands_once_in_its_table():
    table = (ROOT / "docs/options.md").read_text(encoding="utf-8").partition("## Exit codes")[2]
    rows = re.findall(r"(?m)^\| (\d+) \|(.*)$", table)

    assert [code for code, _ in rows] == ["0", "1", "2", "4"]
    assert all(f"`{command}`:" in rows[1][1] for command in ("scan", "audit", "bisect"))


def test_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8")) <= 6000


@pytest.mark.skipif(transformers.__version__.startswith("4."), reason="it shows lines of transformers 5")
def test_failure_of_the_readme_is_that_of_the_demonstration(pytester, monkeypatch):
    shown = OUTPUT.search((ROOT / "README.md").read_text(encoding="utf-8"))[1].splitlines()
    pytester.makeini("[pytest]\ntf_explain_seconds = 60")
    pytester.makepyfile(test_llama_port=(ROOT / "fixtures/demo/test_llama_port.py").read_text(encoding="utf-8"))
    pytester.runpytest_inprocess("--tf-golden=update").assert_outcomes(passed=1)
    monkeypatch.setenv("TFDEMO_BUG", "1")

    result = pytester.runpytest_inprocess()

    printed = masked(result.outlines)
    first = printed.index(masked(shown)[0])
    assert printed[first : first + len(shown)] == masked(shown)
    assert any(line.startswith("  Proved: ") for line in shown)


@pytest.mark.skipif(transformers.__version__.startswith("4."), reason="it edits lines of transformers 5")
def test_padding_report_is_that_of_its_example(pytester, monkeypatch):
    page = (ROOT / "docs/padding.md").read_text(encoding="utf-8")
    leak = next(leak for leak in LEAKS if leak.name == "bert-mask-ignored-in-one-layer")
    source = dict(BLOCK.findall(page))["test_padding.py"]
    built = "return BertForSequenceClassification(config).eval()"
    pytester.makepyfile(test_padding=f"# test_padding.py\n{source.replace(built, 'return leaky(config)')}")

    def leaky(config):
        model = BertForSequenceClassification(config).eval()
        leak.inject(model.bert)
        return model

    monkeypatch.setattr("builtins.leaky", leaky, raising=False)
    result = pytester.runpytest_inprocess("test_padding.py")

    shown = next(text for text in OUTPUT.findall(page) if "not invariant" in text).splitlines()
    assert shown[0] in result.outlines  # its numbers are whole: the line and the pads
    assert [line for line in masked(shown) if line not in masked(result.outlines)] == []


@pytest.mark.skipif(transformers.__version__.startswith("4."), reason="it shows lines of transformers 5")
def test_tutorial_goes_as_it_says(pytester):
    page = TUTORIAL.read_text(encoding="utf-8")
    files = dict(BLOCK.findall(page))
    first, second, last = (text.splitlines() for text in OUTPUT.findall(page))
    edits = re.findall(r"```diff\n-(.*)\n\+(.*)\n```", page)
    assert len(edits) == 2

    def run(*arguments):
        pytester.makepyfile(**{name.removesuffix(".py"): f"# {name}\n{text}" for name, text in files.items()})
        return pytester.runpytest_inprocess(*arguments, "-p", "no:cacheprovider")

    recorded = run("--tf-golden=update")
    for old, new in edits[:1]:
        assert files["my_qwen3.py"].count(old) == 1
        files["my_qwen3.py"] = files["my_qwen3.py"].replace(old, new)
    again = run()
    for old, new in edits[1:]:
        assert files["my_qwen3.py"].count(old) == 1
        files["my_qwen3.py"] = files["my_qwen3.py"].replace(old, new)
    green = run()

    for shown, result in ((first, recorded), (second, again), (last, green)):
        assert [line for line in masked(shown) if line not in masked(result.outlines)] == []
        assert [place for place in places(shown, files) if place not in result.stdout.str()] == []
    green.assert_outcomes(passed=1)


@pytest.mark.skipif(transformers.__version__.startswith("4."), reason="it shows lines of transformers 5")
@pytest.mark.parametrize("name", ["guard-a-model", "padding", "float16", "train-a-port"])
def test_tutorial_fails_as_it_shows(pytester, name):
    page = (ROOT / f"docs/tutorials/{name}.md").read_text(encoding="utf-8")
    ((file, source),) = BLOCK.findall(page)
    edit = re.search(r"```diff\n(.*?)```", page, re.DOTALL)[1].splitlines()
    old, new = ("\n".join(line[1:] for line in edit if line.startswith(sign)) for sign in "-+")
    assert source.count(old) == 1
    pytester.makepyfile(**{file.removesuffix(".py"): f"# {file}\n{source}"})
    pytester.runpytest_inprocess("--tf-golden=update").assert_outcomes(passed=1)
    pytester.makepyfile(**{file.removesuffix(".py"): f"# {file}\n{source.replace(old, new)}"})

    result = pytester.runpytest_inprocess()

    shown, printed = OUTPUT.search(page)[1].splitlines(), " ".join(masked(result.outlines))
    assert [line for line in masked(shown) if line not in printed] == []  # it shows parts of lines, which may be broken
    assert [place for place in places(shown, [file]) if place not in result.stdout.str()] == []


def test_every_flag_key_and_marker_is_in_the_reference(pytester):
    page = (ROOT / "docs/options.md").read_text(encoding="utf-8")
    shown = "\n".join(pytester.runpytest_inprocess("--help").outlines)
    listed = "\n".join(pytester.runpytest_inprocess("--markers").outlines)
    markers = dict(re.findall(r"^@pytest.mark.(\w+)\(\*, (.*?)\): ", listed, re.MULTILINE))

    flags = set(re.findall(r"--tf-[a-z-]+", shown))
    keys = set(re.findall(r"^  (tf_\w+) \(", shown, re.MULTILINE))
    own = {key for key in keys if f"--{key.replace('_', '-')}" not in flags}

    assert [flag for flag in sorted(flags) if f"`{flag}`" not in page] == []
    assert [key for key in sorted(own) if f"`{key}`" not in page] == []
    assert "padding_invariant" in markers
    for marker, arguments in markers.items():
        row = next(line for line in page.splitlines() if line.startswith(f"| `{marker}` |"))
        assert [name for name in re.findall(r"\w+", arguments) if f"`{name}`" not in row] == []
