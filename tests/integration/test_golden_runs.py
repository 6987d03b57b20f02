"""Goldens in unusual runs: narrowed, restarted, killed, of other test classes and from other directories."""

import os
import signal
import sys
import textwrap
from pathlib import Path

import pytest
import safetensors.torch

import pytest_tfdebug.goldens.fixture  # noqa: F401 - kept between the runs in this process

MODEL = """
    import torch
    from torch import nn

    class Mlp(nn.Module):
        def __init__(self):
            super().__init__()
            self.up = nn.Linear(4, 8)
            self.down = nn.Linear(8, 4)

        def forward(self, x):
            hidden = self.up(x)
            hidden = hidden.relu()
            return self.down(hidden) + x

    def build():
        torch.manual_seed(0)
        return Mlp()

    X = torch.linspace(-1, 1, 8).view(2, 4)
"""
TEST = """
    import pytest
    from model import X, build

    def test_forward(tf_golden):
        tf_golden.check(build(), X)

    @pytest.mark.parametrize("scale", [1, 2.5])
    def test_scaled(tf_golden, scale):
        tf_golden.check(build(), X * scale)
        tf_golden.check(build(), -X * scale, name="negative")

    class TestMlp:
        def test_forward(self, tf_golden):
            tf_golden.check(build(), X)
"""
FILES = [
    "goldens/test_one/TestMlp.test_forward.safetensors",
    "goldens/test_one/test_forward.safetensors",
    "goldens/test_one/test_scaled[1].negative.safetensors",
    "goldens/test_one/test_scaled[1].safetensors",
    "goldens/test_one/test_scaled[2.5].negative.safetensors",
    "goldens/test_one/test_scaled[2.5].safetensors",
]
GOLDEN = "goldens/test_one/test_forward.safetensors"


@pytest.fixture
def project(pytester):
    pytester.makeini("[pytest]\naddopts = -p no:cacheprovider -p no:randomly")
    pytester.syspathinsert()
    pytester.makepyfile(model=textwrap.dedent(MODEL))
    return pytester


def write_test(project, text, name="test_one"):
    project.makepyfile(**{name: textwrap.dedent(text)})


def change_model(project, old="hidden.relu()", new="hidden.tanh()"):
    path = project.path / "model.py"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    sys.modules.pop("model", None)
    import linecache

    linecache.checkcache()


def contents(project):
    return {
        str(path.relative_to(project.path)): path.read_bytes()
        for path in sorted(project.path.rglob("goldens/**/*.*"))
        if path.is_file()
    }


def summary_of(result):
    lines = result.outlines
    start = next((number for number, line in enumerate(lines) if "tfdebug goldens" in line), len(lines))
    end = next((number for number, line in enumerate(lines[start + 1 :], start + 1) if line.startswith("=")), start)
    return [line for line in lines[start + 1 : end] if line]


@pytest.mark.parametrize("damage", [b"", b"not safetensors at all", None], ids=["empty", "foreign", "truncated"])
def test_damaged_golden_fails_and_says_what_to_type(project, damage):
    write_test(project, TEST)
    project.runpytest_inprocess("--tf-golden=update").assert_outcomes(passed=4)
    path = project.path / GOLDEN
    path.write_bytes(path.read_bytes()[:200] if damage is None else damage)

    result = project.runpytest_inprocess("-k", "test_forward and not Mlp")

    result.assert_outcomes(failed=1, deselected=3)
    size = path.stat().st_size
    result.stdout.fnmatch_lines(
        [
            f"E  *pytest_tfdebug.errors.GoldenError: *{GOLDEN} ({size} bytes) is empty, truncated or not a safetensors file*",
            "E  *To record it again, run: pytest test_one.py::test_forward --tf-golden=update",
        ]
    )
    again = project.runpytest_inprocess("--tf-golden=update")
    assert summary_of(again)[:2] == ["1 changed, 5 unchanged", f"  changed  {GOLDEN}"]
    project.runpytest_inprocess().assert_outcomes(passed=4)


@pytest.mark.parametrize(
    "arguments",
    [
        ("-k", "TestMlp"),
        ("--deselect", "test_one.py::test_scaled"),
        ("test_one.py",),
        ("test_one.py::test_forward",),
        ("--ignore", "test_two.py"),
        ("-x",),
        ("-m", "not slow"),
    ],
    ids=" ".join,
)
def test_goldens_of_tests_that_did_not_run_are_in_use(project, arguments):
    write_test(project, TEST)
    write_test(project, TEST, "test_two")
    project.runpytest_inprocess("--tf-golden=update")
    before = contents(project)

    result = project.runpytest_inprocess("--tf-golden=update", *arguments)

    assert "no longer exist" not in result.stdout.str()
    assert contents(project) == before


@pytest.mark.parametrize(
    "text",
    [
        "import pytest\npytest.skip('no time', allow_module_level=True)",
        "import nothing_of_the_kind",
        "def test_forward(",
    ],
    ids=["skipped", "error", "syntax"],
)
def test_goldens_of_a_file_that_could_not_be_collected_are_in_use(project, text):
    write_test(project, TEST)
    write_test(project, TEST, "test_two")
    project.runpytest_inprocess("--tf-golden=update")
    (project.path / "test_two.py").write_text(text)
    sys.modules.pop("test_two", None)

    result = project.runpytest_inprocess("--tf-golden=update", "--continue-on-collection-errors")

    assert "no longer exist" not in result.stdout.str()
    assert len(contents(project)) == 12


def test_goldens_are_in_use_from_whichever_root_directory_pytest_is_started(project):
    folder = project.mkdir("tests")
    (folder / "test_one.py").write_text(textwrap.dedent(TEST))
    (folder / "test_two.py").write_text(textwrap.dedent(TEST))
    project.runpytest_inprocess("--tf-golden=update").assert_outcomes(passed=8)
    os.chdir(folder)
    (folder / "pytest.ini").write_text("[pytest]")

    result = project.runpytest_inprocess("test_one.py", "-k", "TestMlp")

    result.assert_outcomes(passed=1, deselected=3)
    assert "no longer exist" not in result.stdout.str()


def test_same_test_name_in_two_directories_has_two_goldens(project):
    for name in ("left", "right"):
        folder = project.mkpydir(name)
        (folder / "test_one.py").write_text(textwrap.dedent(TEST))

    project.runpytest_inprocess("--tf-golden=update").assert_outcomes(passed=8)

    assert list(contents(project)) == [f"{name}/{path}" for name in ("left", "right") for path in FILES]


def test_test_that_is_run_again_starts_anew(project):
    write_test(project, TEST)
    project.makeconftest(
        """
        from _pytest.runner import runtestprotocol

        def pytest_runtest_protocol(item, nextitem):
            for _ in range(2):
                runtestprotocol(item, nextitem=nextitem)
            return True
        """
    )

    result = project.runpytest_inprocess("--tf-golden=update")

    result.assert_outcomes(passed=8)


def test_test_cases_of_unittest_reach_their_goldens(project):
    write_test(
        project,
        """
        import unittest
        import pytest
        import pytest_tfdebug
        from model import X, build

        class ModelTest(unittest.TestCase):
            def test_forward(self):
                pytest_tfdebug.golden().check(build(), X)

            def test_parts(self):
                for number in range(2):
                    with self.subTest(number=number):
                        pytest_tfdebug.golden().check(build(), X * number, name=f"part{number}")

            @pytest.fixture(autouse=True)
            def _golden(self, tf_golden):
                self.tf_golden = tf_golden

            def test_fixture(self):
                self.tf_golden.check(build(), X)

            @pytest.mark.usefixtures("tf_golden")
            def test_marked(self):
                pytest_tfdebug.golden().check(build(), X)
        """,
    )

    missing = project.runpytest_inprocess("-k", "test_forward")
    written = project.runpytest_inprocess("--tf-golden=update")
    checked = project.runpytest_inprocess()

    missing.stdout.fnmatch_lines(["E  *MissingGoldenError: test_one.py::ModelTest::test_forward has no golden yet: *"])
    assert written.ret == checked.ret == 0
    assert [path.rpartition("/")[2] for path in contents(project)] == [
        "ModelTest.test_fixture.safetensors",
        "ModelTest.test_forward.safetensors",
        "ModelTest.test_marked.safetensors",
        "ModelTest.test_parts.part0.safetensors",
        "ModelTest.test_parts.part1.safetensors",
    ]


def test_port_is_held_to_a_reference_that_only_runs_to_record(project):
    write_test(
        project,
        """
        from pathlib import Path
        import torch
        from model import X, build

        def reference():
            Path("built").write_text(Path("built").read_text() + "x" if Path("built").exists() else "x")
            return build()

        class Port(torch.nn.Module):
            def __init__(self):
                super().__init__()
                model = build()
                self.lift, self.lower = model.up, model.down

            def forward(self, x):
                return x + self.lower(self.lift(x).relu())

        def test_port(tf_golden):
            tf_golden.check(Port(), X, reference=reference, rename={"lift": "up", "lower": "down"})
        """,
    )

    project.runpytest_inprocess("--tf-golden=update").assert_outcomes(passed=1)
    project.runpytest_inprocess().assert_outcomes(passed=1)

    assert (project.path / "built").read_text() == "x"
    path = project.path / "test_one.py"
    path.write_text(path.read_text().replace("return x + self.lower", "return x - self.lower"))
    failed = project.runpytest_inprocess()
    failed.stdout.fnmatch_lines(["E  *test_one.py:* in Port (Port): *", "*fix the port*"])


def test_reference_that_is_no_model_is_refused(project):
    write_test(
        project,
        """
        from model import X, build

        def test_port(tf_golden):
            tf_golden.check(build(), X, reference=lambda: "model")
        """,
    )

    result = project.runpytest_inprocess("--tf-golden=update")

    result.stdout.fnmatch_lines(
        ["E  *TFDebugError: reference= is a torch.nn.Module or a function that returns one; it gave str."]
    )


def test_vv_shows_every_tensor_outside_tolerance(project):
    write_test(project, TEST)
    project.runpytest_inprocess("--tf-golden=update")
    change_model(project)

    short = project.runpytest_inprocess("-k", "TestMlp").stdout.str()
    long = project.runpytest_inprocess("-k", "TestMlp", "-vv").stdout.str()

    heading = "Every tensor outside tolerance, in the order of computation:"
    assert heading not in short
    assert heading in long
    assert "Mlp output : Mismatched" in long or "Mlp output: Mismatched" in long


@pytest.mark.parametrize("mode", ["update", "check"])
def test_check_that_saw_no_tensor_fails(project, mode):
    write_test(
        project,
        """
        import os, torch
        class Silent(torch.nn.Module):
            def forward(self, x):
                return x if os.environ.get("SEE") else None

        def test_silent(tf_golden):
            tf_golden.check(Silent(), torch.ones(2))
        """,
    )
    if mode == "check":
        project._monkeypatch.setenv("SEE", "1")
        project.runpytest_inprocess("--tf-golden=update").assert_outcomes(passed=1)
        project._monkeypatch.delenv("SEE")

    result = project.runpytest_inprocess(f"--tf-golden={mode}")

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["E  *GoldenError: The forward of Silent returns no tensors: there is nothing to record in *"]
        if mode == "update"
        else ["E  *Silent (Silent): *"]
    )


def test_directory_is_that_of_the_command_line_or_of_the_ini_file(project):
    folder = project.mkdir("tests")
    (folder / "test_one.py").write_text(textwrap.dedent(TEST))
    project.makeini("[pytest]\ntf_golden_dir = stored")
    os.chdir(folder)

    project.runpytest_inprocess("--tf-golden=update", "-k", "TestMlp").assert_outcomes(passed=1, deselected=3)
    project.runpytest_inprocess("--tf-golden=update", "--tf-golden-dir=here", "-k", "TestMlp")

    assert (project.path / "stored/test_one/TestMlp.test_forward.safetensors").exists()
    assert (folder / "here/test_one/TestMlp.test_forward.safetensors").exists()
    assert not (folder / "stored").exists()


KILLED = """
import os, signal
import safetensors.torch

def killed(tensors, filename, metadata=None):
    with open(filename, "wb") as file:
        file.write(b"half of it")
    os.kill(os.getpid(), signal.SIGKILL)

safetensors.torch.save_file = killed
"""


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_interrupted_update_leaves_the_old_golden_and_no_rubbish(project, monkeypatch, error):
    def interrupted(_tensors, filename, metadata=None):
        Path(filename).write_bytes(b"half of it")
        raise error

    write_test(project, TEST)
    project.runpytest_inprocess("--tf-golden=update").assert_outcomes(passed=4)
    before = contents(project)
    change_model(project)
    monkeypatch.setattr(safetensors.torch, "save_file", interrupted)

    result = project.runpytest_inprocess("--tf-golden=update", "-k", "TestMlp", no_reraise_ctrlc=True)

    assert result.ret != 0
    assert contents(project) == before


def test_update_that_is_killed_leaves_the_old_golden(project):
    write_test(project, TEST)
    project.runpytest_inprocess("--tf-golden=update").assert_outcomes(passed=4)
    before = contents(project)
    change_model(project)
    project.makeconftest(KILLED)

    result = project.runpytest_subprocess("--tf-golden=update", "-k", "TestMlp")

    assert result.ret == -signal.SIGKILL
    after = contents(project)
    assert {path: data for path, data in after.items() if path in before} == before
    assert [data for path, data in after.items() if path not in before] == [b"half of it"]
    (project.path / "conftest.py").unlink()
    project.runpytest_inprocess("--tf-golden=update", "-k", "TestMlp").assert_outcomes(passed=1, deselected=3)
    assert set(FILES) <= contents(project).keys()


def test_option_that_is_a_parameter_of_the_model_is_not_guessed_at(project):
    write_test(
        project,
        """
        import torch

        class Named(torch.nn.Module):
            def forward(self, x, name=None):
                return x

        def test_named(tf_golden):
            tf_golden.check(Named(), torch.ones(2), name="me")
        """,
    )

    result = project.runpytest_inprocess("--tf-golden=update")

    result.stdout.fnmatch_lines(
        ["E  *TFDebugError: name= is an option of check, and a parameter of Named's forward as well, *"]
    )
