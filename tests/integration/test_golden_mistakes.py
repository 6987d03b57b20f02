"""What users do wrong with goldens: each ends in an error that says what to do, and no golden is lost."""

import os
import sys

import pytest

import pytest_tfdebug.goldens.fixture  # noqa: F401 - loaded once for all runs

SUITE = """
import pytest
import torch

def build():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
"""


@pytest.fixture
def suite(pytester):
    """Write a test file from the body of a test and return a function that runs pytest on it."""

    def write(*tests):
        pytester.makepyfile(test_it="\n".join([SUITE, *tests]))
        return lambda *arguments: pytester.runpytest_inprocess("-p", "no:cacheprovider", *arguments)

    return write


CHECK = "def test_it(tf_golden):\n    tf_golden.check(build(), torch.ones(2, 4))\n"


def test_two_checks_of_one_test_need_names(suite):
    run = suite(CHECK + "    tf_golden.check(build(), torch.ones(1, 4))\n")

    result = run("--tf-golden=update")

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*Two checks of test_it.py::test_it have no name, so they would share one golden.",
            "*Give each check its own name=*",
        ]
    )


def test_golden_of_another_test_is_told_as_that(suite, pytester):
    run = suite(CHECK, CHECK.replace("test_it", "test_other").replace("torch.ones", "torch.zeros"))
    run("--tf-golden=update").assert_outcomes(passed=2)
    goldens = pytester.path / "goldens" / "test_it"
    (goldens / "test_other.safetensors").write_bytes((goldens / "test_it.safetensors").read_bytes())

    result = run()

    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["  Golden: *test_other.safetensors, recorded by test_it.py::test_it"])


def test_forward_that_forgets_to_return_fails(suite):
    suite(CHECK)("--tf-golden=update")
    forgetful = """
class Forgetful(torch.nn.Sequential):
    def forward(self, x):
        super().forward(x)

def test_it(tf_golden):
    tf_golden.check(Forgetful(*build()), torch.ones(2, 4))
"""

    result = suite(forgetful)()

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*test_it.py:* in Forgetful (Forgetful): *",
            "*The tensor is missing: expected shape (2, 4), float32",
        ]
    )


def test_modules_that_a_golden_left_out_are_not_calls_too_many(suite):
    scaled = """
class Scaled(torch.nn.Sequential):
    def forward(self, x):
        x = self[0](x)
        x = x * {scale}
        return self[1](x)

{selection}
def test_it(tf_golden):
    tf_golden.check(Scaled(*build()), torch.ones(2, 4))
"""
    suite(scaled.format(scale=1, selection="@pytest.mark.tf_golden(exclude='1')"))("--tf-golden=update")

    right = suite(scaled.format(scale=1, selection=""))()
    wrong = suite(scaled.format(scale=2, selection=""))()

    right.assert_outcomes(passed=1)
    wrong.assert_outcomes(failed=1)
    wrong.stdout.fnmatch_lines(["*test_it.py:* in Scaled (Scaled): *"])


def test_modules_that_a_check_leaves_out_are_not_said_to_be_missing(suite):
    suite(CHECK)("--tf-golden=update")
    wrong = CHECK.replace("build()", "torch.nn.Sequential(*build(), torch.nn.Tanh())")

    result = suite(f"@pytest.mark.tf_golden(exclude='0')\n{wrong}")()

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["* in 2 (Tanh): *"])


@pytest.mark.parametrize(
    "workers", [(), pytest.param(("-n", "2", "--dist=loadfile"), marks=pytest.mark.nightly)], ids=["alone", "xdist"]
)
def test_two_tests_that_write_one_golden_fail_the_run(pytester, workers):
    for folder in ("a", "b"):
        directory = pytester.mkpydir(folder)
        (directory / "test_it.py").write_text(SUITE + CHECK)

    result = pytester.runpytest("--tf-golden=update", "--tf-golden-dir=shared", "-p", "no:cacheprovider", *workers)

    assert result.ret == 1
    result.stdout.fnmatch_lines(
        ["*Two tests write one golden, *test_it.safetensors:", "*a/test_it.py::test_it", "*b/test_it.py::test_it"]
    )


def test_parameter_id_cannot_lead_out_of_the_golden_directory(pytester, suite):
    run = suite(
        '@pytest.mark.parametrize("where", ["../../../out", "a/b", "x" * 300, ".."])\n'
        "def test_it(tf_golden, where):\n    tf_golden.check(build(), torch.ones(2, 4))\n"
    )

    recorded = run("--tf-golden=update")
    checked = run()

    recorded.assert_outcomes(passed=4)
    checked.assert_outcomes(passed=4)
    files = list(pytester.path.rglob("*.safetensors"))
    assert len(files) == 4
    assert {file.parent for file in files} == {pytester.path / "goldens" / "test_it"}


def test_name_with_a_separator_is_refused(suite):
    run = suite(CHECK.replace("4))", "4), name='../x')"))

    result = run("--tf-golden=update")

    result.stdout.fnmatch_lines(["*TFDebugError: name='../x' of a golden is made of letters, digits and *"])


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="root writes everywhere")
def test_directory_that_cannot_be_written_is_said(pytester, suite):
    run = suite(CHECK)
    pytester.path.chmod(0o500)

    result = run("--tf-golden=update")

    pytester.path.chmod(0o700)
    result.stdout.fnmatch_lines(["*GoldenError: *test_it.safetensors cannot be written: Permission denied."])


def test_file_in_place_of_the_golden_directory_is_said(pytester, suite):
    run = suite(CHECK)
    (pytester.path / "goldens").write_text("not a directory")

    result = run("--tf-golden=update")

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*GoldenError: *test_it.safetensors cannot be written: *"])
    assert (pytester.path / "goldens").read_text() == "not a directory"


def test_forward_that_raises_while_recording_keeps_the_old_golden(pytester, suite):
    run = suite(CHECK)
    run("--tf-golden=update")
    golden = pytester.path / "goldens/test_it/test_it.safetensors"
    before = golden.read_bytes()
    pytester.makepyfile(test_it=SUITE + CHECK.replace("ones(2, 4)", "ones(2, 5)"))

    result = run("--tf-golden=update")

    result.assert_outcomes(failed=1)
    assert golden.read_bytes() == before


def test_other_inputs_than_the_recorded_ones_are_named_as_such(pytester, suite):
    run = suite(CHECK)
    run("--tf-golden=update")
    pytester.makepyfile(test_it=SUITE + CHECK.replace("ones(2, 4)", "ones(3, 4)"))

    result = run()

    result.stdout.fnmatch_lines(
        [
            "*Sequential (Sequential): was given other inputs",
            "*The model was given other inputs than the expected forward: [[]0] (shape*",
        ]
    )


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (b"", "*test_it.safetensors (0 bytes) is empty, truncated or not a safetensors file*"),
        (b"GIF89a, not a golden at all", "*is empty, truncated or not a safetensors file*"),
        ("foreign", "*test_it.safetensors is a safetensors file of another program: it has no 'tfdebug' metadata."),
        ("newer", "*has format version 99; this version of pytest-tfdebug reads up to 2.*"),
        ("trace", "*test_it.safetensors is a trace, not a golden: it does not say 'test'."),
    ],
)
def test_file_that_is_no_golden_is_said_to_be_what_it_is(pytester, suite, written, said):
    import torch
    from safetensors.torch import save_file

    import pytest_tfdebug

    run = suite(CHECK)
    file = pytester.path / "goldens/test_it/test_it.safetensors"
    file.parent.mkdir(parents=True)
    if isinstance(written, bytes):
        file.write_bytes(written)
    elif written == "trace":
        pytest_tfdebug.trace(torch.nn.ReLU(), torch.ones(2)).save(file)
    else:
        metadata = {"tfdebug": '{"format": 99}'} if written == "newer" else {}
        save_file({"x": torch.ones(1)}, file, metadata)
    before = file.read_bytes()

    result = run()

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"*GoldenError: {said}"])
    assert file.read_bytes() == before


def test_model_that_shows_no_tensor_is_not_recorded(pytester, suite):
    run = suite(
        "class Silent(torch.nn.Module):\n    def forward(self):\n        return 'nothing'\n\n"
        "def test_it(tf_golden):\n    tf_golden.check(Silent())\n"
    )

    result = run("--tf-golden=update")

    result.stdout.fnmatch_lines(["*The forward of Silent returns no tensors: there is nothing to record in *"])
    assert not list(pytester.path.rglob("*.safetensors"))


@pytest.mark.parametrize(
    ("marker", "said"),
    [
        (
            "tolerence=1e-3",
            "*tf_golden has no argument tolerence=0.001; it takes tolerance, *. Did you mean tolerance?",
        ),
        ("1e-3", "*tf_golden takes keyword arguments only (tolerance, *) and got 0.001."),
        ("tolerance=(-1, 0)", "*tf_golden: rtol = -1 is not a number >= 0."),
    ],
)
def test_bad_marker_argument_is_a_usage_error(suite, marker, said):
    run = suite(f"@pytest.mark.tf_golden({marker})\n{CHECK}")

    result = run("--tf-golden=update")

    result.stdout.fnmatch_lines([f"*UsageError: {said}"])


def test_bad_ini_value_is_a_usage_error(pytester, suite):
    run = suite(CHECK)
    pytester.makeini("[pytest]\ntf_golden = sometimes\n")

    result = run()

    assert result.ret == 4
    result.stderr.fnmatch_lines(
        ["*tf_golden = 'sometimes' is not one of check, update, missing, off (see --tf-golden)."]
    )


@pytest.mark.parametrize(
    ("places", "passes"),
    [
        (("", "", ""), False),
        (("**: 0 10", "", ""), True),
        (("**: 0 10", "tolerance=(0, 0)", ""), False),
        (("", "tolerance=(0, 10)", ""), True),
        (("", "tolerance=(0, 0)", ", tolerance=(0, 10)"), True),
    ],
)
def test_argument_beats_the_marker_and_the_marker_the_ini_file(pytester, suite, places, passes):
    ini, marker, argument = places
    run = suite(CHECK)
    run("--tf-golden=update")
    pytester.makeini(f"[pytest]\ntf_golden_tolerances = {ini}\n")
    marked = f"@pytest.mark.tf_golden({marker})\n" if marker else ""
    changed = SUITE.replace("torch.manual_seed(0)", "torch.manual_seed(1)")
    pytester.makepyfile(test_it=changed + marked + CHECK.replace("4))", f"4){argument})"))

    result = run()

    result.assert_outcomes(**{"passed" if passes else "failed": 1})


def test_golden_outside_a_test_says_where_it_belongs():
    import subprocess

    code = "import pytest_tfdebug; pytest_tfdebug.golden()"

    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert "pytest_tfdebug.golden() belongs to a running test: run the file with pytest" in run.stderr


@pytest.mark.parametrize("built", ["model", "lambda: model"])
def test_model_that_is_its_own_reference_is_refused(suite, built):
    run = suite(
        f"def test_it(tf_golden):\n    model = build()\n    tf_golden.check(model, torch.rand(2, 4), reference={built})\n"
    )

    result = run("--tf-golden=update")

    result.stdout.fnmatch_lines(["*TFDebugError: reference= is the model itself, so nothing could differ: *"])


def test_misspelt_output_of_the_reference_leaves_no_golden(pytester, suite):
    run = suite(CHECK.replace("2, 4))", "2, 4), reference=build(), outputs={'': 'logits'})"))

    result = run("--tf-golden=update")

    result.stdout.fnmatch_lines(["*TFDebugError: outputs=: the reference returns no 'logits'; it returns ''."])
    assert not list(pytester.path.rglob("*.safetensors"))


@pytest.mark.parametrize("form", ["x.to_sparse()", "torch.nested.nested_tensor([x[0], x[1, :2]], layout=torch.jagged)"])
def test_output_of_another_layout_is_recorded_and_compared(suite, form):
    test = f"""
class Formed(torch.nn.Sequential):
    def forward(self, x):
        x = super().forward(x) * FACTOR
        return {form}

def test_it(tf_golden):
    tf_golden.check(Formed(torch.nn.Linear(4, 4)), torch.arange(8.0).view(2, 4))
"""
    seeded = "torch.manual_seed(0)\n"

    recorded = suite(seeded + test.replace("FACTOR", "1"))("--tf-golden=update")
    right = suite(seeded + test.replace("FACTOR", "1"))()
    wrong = suite(seeded + test.replace("FACTOR", "2"))()

    recorded.assert_outcomes(passed=1)
    right.assert_outcomes(passed=1)
    wrong.assert_outcomes(failed=1)
