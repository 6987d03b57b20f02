"""The layouts of the repositories that have model tests, each in miniature: they are found without an option."""

import pytest

from pytest_tfdebug.scan import scan
from pytest_tfdebug.scan.cli import main

MIXIN = """
    class {0}:
        def test_forward(self):
            assert 1

        def test_save(self):
            assert 1
"""
TESTS = """
    import unittest
    from {0} import {1}

    class {2}Test({1}, unittest.TestCase):
        {3}
"""
SKIP = '@unittest.skip("why")\n        def test_forward(self): pass'


def made(module, mixin, name, body="pass"):
    return TESTS.format(module, mixin, name, body)


COMMON = MIXIN.format("ModelTesterMixin")
#: What a layout is of -> its files, and the models that skip and run ``test_forward``.
LAYOUTS = {
    "transformers": (
        {
            "tests/test_modeling_common.py": COMMON,
            "tests/models/bert/test_modeling_bert.py": made(
                "...test_modeling_common", "ModelTesterMixin", "Bert", SKIP
            ),
            "tests/models/gpt2/test_modeling_gpt2.py": made("...test_modeling_common", "ModelTesterMixin", "Gpt"),
        },
        (["bert"], ["gpt2"]),
    ),
    "a fork of transformers before tests/models": (
        {
            "tests/test_modeling_common.py": COMMON,
            "tests/test_modeling_bert.py": made(".test_modeling_common", "ModelTesterMixin", "Bert", SKIP),
            "tests/test_modeling_tf_bert.py": made(".test_modeling_common", "ModelTesterMixin", "TFBert"),
            "tests/test_tokenization_bert.py": "class BertTokenizationTest: pass",
        },
        (["bert"], ["tf_bert"]),
    ),
    "a fork whose commons are inside tests/models": (
        {
            "tests/models/test_modeling_common.py": COMMON,
            "tests/models/bert/test_modeling_bert.py": made("..test_modeling_common", "ModelTesterMixin", "Bert", SKIP),
            "tests/models/test_modeling_gpt2.py": made(".test_modeling_common", "ModelTesterMixin", "Gpt"),
        },
        (["bert"], ["gpt2"]),
    ),
    "optimum-habana": (
        {
            "tests/transformers/tests/test_modeling_common.py": COMMON,
            "tests/transformers/tests/models/bert/test_modeling_bert.py": made(
                "...test_modeling_common", "ModelTesterMixin", "Bert", SKIP
            ),
            "tests/transformers/tests/models/gpt2/test_modeling_gpt2.py": made(
                "...test_modeling_common", "ModelTesterMixin", "Gpt"
            ),
            "tests/test_examples.py": "",
        },
        (["bert"], ["gpt2"]),
    ),
    "adapters": (
        {
            "tests/test_methods/base.py": MIXIN.format("AdapterTestBase"),
            "tests/test_methods/test_on_bert.py": made(".base", "AdapterTestBase", "BertAdapter", SKIP),
            "tests/test_methods/test_on_gpt2.py": made(".base", "AdapterTestBase", "GptAdapter"),
            "tests/test_models/test_bart_model.py": made("..test_methods.base", "AdapterTestBase", "BartAdapter"),
        },
        (["bert"], ["bart", "gpt2"]),
    ),
    "peft": (
        {
            "tests/testing_common.py": "class PeftCommonTester:\n    def _test_forward(self): assert 1\n",
            "tests/test_decoder_models.py": made(".testing_common", "PeftCommonTester", "Decoder", SKIP),
            "tests/test_encoder_decoder_models.py": made(
                ".testing_common", "PeftCommonTester", "EncoderDecoder", "def test_forward(self): self._test_forward()"
            ),
            "tests/test_vision_models.py": made(
                ".testing_common", "PeftCommonTester", "Vision", "def test_past(self): self._test_forward()"
            ),
            "tests/test_config.py": "class ConfigTest: pass",
        },
        (["decoder"], ["encoder_decoder"]),
    ),
    "diffusers": (
        {
            "tests/models/test_modeling_common.py": COMMON,
            "tests/models/unets/test_models_unet_2d.py": made(
                "..test_modeling_common", "ModelTesterMixin", "Unet", SKIP
            ),
            "tests/models/transformers/test_models_dit.py": made("..test_modeling_common", "ModelTesterMixin", "Dit"),
        },
        (["unet_2d"], ["dit"]),
    ),
    "tapex, a folder without a model": (
        {
            "tests/test_modeling_common.py": COMMON,
            "tests/models/bert/test_modeling_bert.py": made(
                "...test_modeling_common", "ModelTesterMixin", "Bert", SKIP
            ),
            "tests/models/tapex/test_tokenization_tapex.py": "class TapexTokenizationTest: pass",
        },
        (["bert"], []),
    ),
}


@pytest.fixture
def layout(written):
    """Return a function that writes a layout, with packages all the way down."""

    def make(name):
        files, found = LAYOUTS[name]
        root = written(files)
        for directory in [root / "tests", *(root / "tests").rglob("*")]:
            if directory.is_dir():
                (directory / "__init__.py").touch()
        return root, found

    return make


@pytest.mark.parametrize("name", LAYOUTS)
def test_layout_is_found_by_itself(layout, name):
    root, (skip, run) = layout(name)

    found = scan(root)["test_forward"]

    assert (found.models_skipped, found.models_ran) == (skip, run)


def test_tests_that_one_kind_of_models_has_alone_are_not_common(layout):
    root, _ = layout("peft")

    assert list(scan(root)) == ["test_forward"]


@pytest.mark.parametrize("name", ["peft", "adapters"])
def test_edit_is_seen_in_any_layout(layout, name, tmp_path, monkeypatch, capsys):
    root, (skip, run) = layout(name)
    monkeypatch.chdir(tmp_path)
    arguments = ["--repo", str(root), "--test-method-name", "test_forward"]
    assert main(arguments) == 0
    file = next(path for path in root.rglob(f"test_*{run[-1]}*.py"))
    file.write_text(f"{file.read_text()}\n    test_forward = None\n")
    capsys.readouterr()

    assert main(arguments) == 0

    assert f"Skipped : {len(skip) + 1}/{len(skip) + len(run)}" in capsys.readouterr().out


def test_models_whose_classes_cannot_be_read_are_named(layout, tmp_path, monkeypatch, capsys):
    root, _ = layout("adapters")
    (root / "tests/test_methods/test_on_t5.py").write_text("globals().update(make_classes())\n")
    monkeypatch.chdir(tmp_path)

    assert main(["--repo", str(root)]) == 0

    assert "Models of which no class has one of these tests : t5\n" in capsys.readouterr().out


def test_models_whose_file_was_left_out_are_not_said_to_have_no_such_class(layout, tmp_path, monkeypatch, capsys):
    root, _ = layout("adapters")
    (root / "tests/test_methods/test_on_t5.py").write_text("class T5Test(:\n")
    monkeypatch.chdir(tmp_path)

    assert main(["--repo", str(root)]) == 0

    assert "no class has one" not in capsys.readouterr().out


@pytest.mark.parametrize("option", ["--models-dir", "--models_dir"])
def test_options_are_taken_with_hyphens_and_underscores(layout, tmp_path, monkeypatch, option):
    root, _ = layout("diffusers")
    monkeypatch.chdir(tmp_path)

    assert main(["--repo", str(root), option, "tests/models", "--no-cache", "--output-dir=out"]) == 0
    assert main(["--repo", str(root), f"{option}=tests/models", "--no_cache", "--output_dir", "other"]) == 0

    assert (tmp_path / "out/all_tests_scan_result.json").read_bytes()
    assert (tmp_path / "other/all_tests_scan_result.json").read_bytes()


def test_scan_of_files_that_cannot_be_read_says_which(written, capsys):
    root = written({"tests/test_modeling_common.py": MIXIN.format("ModelTesterMixin"), "tests/models/__init__.py": ""})
    (root / "tests/models/test_bert_model.py").write_bytes(b"# caf\xe9\n")

    assert main(["--repo", str(root), "--no-cache"]) == 2
    told = capsys.readouterr().err.splitlines()[-1]
    assert told.startswith("  left out: tests/models/test_bert_model.py: not UTF-8: ")


def test_scan_without_a_known_base_class_says_which_is_not_found(written, capsys):
    root = written(
        {
            "tests/__init__.py": "",
            "tests/models/__init__.py": "",
            "tests/impl/__init__.py": "",
            "tests/impl/common.py": MIXIN.format("CommonMixin"),
            "tests/models/test_bert_model.py": """
                from ..impl.common import CommonMixin
                from elsewhere import base_of

                class BertTest(base_of("bert")):
                    pass
            """,
        }
    )

    assert main(["--repo", str(root)]) == 2
    told = capsys.readouterr().err
    assert "No common tests: no class of the 1 models is known to have one of the 2 tests that their mixins" in told
