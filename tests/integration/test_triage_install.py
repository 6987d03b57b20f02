"""Real failures of the bucket ``install/version``; after the fix that triage names, the failing line runs."""

import pickle
import sys

import pytest
import torch
import transformers
from transformers import BertModel, LlamaForCausalLM, Trainer, TrainingArguments, ViTImageProcessor

#: transformers 4 fails otherwise, or not at all, where these do.
ONLY_5 = pytest.mark.skipif(transformers.__version__ < "5", reason="transformers 4 does this otherwise")


def runs(line):
    exec(line, {})  # noqa: S102 - the fix that triage names is a line of code
    return True


@pytest.mark.parametrize(
    ("name", "what", "fix"),
    [
        ("AdamW", "AdamW is gone from transformers {version}: use torch.optim.AdamW.", "from torch.optim import AdamW"),
        (
            "AutoModelForVision2Seq",
            "AutoModelForVision2Seq is gone from transformers {version}: use AutoModelForImageTextToText.",
            "from transformers import AutoModelForImageTextToText",
        ),
        (
            "AutoModelForMaskedLm",
            "AutoModelForMaskedLM exists in transformers {version}, AutoModelForMaskedLm does not.",
            "from transformers import AutoModelForMaskedLM",
        ),
        (
            "LlamaForCausalLMM",
            "LlamaForCausalLM exists in transformers {version}, LlamaForCausalLMM does not.",
            "from transformers import LlamaForCausalLM",
        ),
        (
            "TFBertModel",
            "TFBertModel is gone from transformers {version}: use BertModel, the PyTorch class (TensorFlow and Flax are gone in 5.x).",
            "from transformers import BertModel",
        ),
        (
            "ViTFeatureExtractor",
            "ViTFeatureExtractor is gone from transformers {version}: use ViTImageProcessor.",
            "from transformers import ViTImageProcessor",
        ),
    ],
)
@ONLY_5
def test_missing_name_is_answered_with_the_line_to_write(triage_of, import_line, name, what, fix):
    finding = triage_of(import_line(f"from transformers import {name}"))

    assert finding.rule == "missing-name"
    assert finding.bucket == "install/version"
    assert finding.what == what.format(version=transformers.__version__)
    assert finding.fix == fix
    assert finding.facts[0] == f"installed: transformers {transformers.__version__}"
    assert runs(fix)


def test_removed_name_says_that_upgrading_will_not_help(triage_of, import_line):
    finding = triage_of(import_line("from transformers import AdamW"))

    assert "AdamW was removed and is not in transformers 5: upgrading will not help" in finding.facts


def test_unknown_name_is_answered_with_an_upgrade(triage_of, import_line):
    finding = triage_of(import_line("from transformers import Zyzzyva9ForCausalLM"))

    assert finding.what == f"transformers {transformers.__version__} has no Zyzzyva9ForCausalLM."
    assert finding.fix.startswith("pip install --upgrade transformers")


@ONLY_5
def test_name_that_moved_is_found_where_it_is(triage_of, import_line):
    finding = triage_of(import_line("from transformers.modeling_utils import apply_chunking_to_forward"))

    assert finding.fix == "from transformers import apply_chunking_to_forward"
    assert runs(finding.fix)


def test_attribute_of_the_package_is_like_an_import(triage_of, import_line):
    finding = triage_of(import_line("import transformers; transformers.LlamaForCausalLMM"))

    assert finding.rule == "missing-attribute"
    assert finding.fix == "import transformers; transformers.LlamaForCausalLM"
    assert runs(finding.fix)


def test_module_that_moved(triage_of, import_line):
    finding = triage_of(import_line("from transformers.generation_utils import GenerationMixin"))

    assert finding.rule == "missing-module"
    assert finding.fix == "import from transformers.generation"
    assert runs("from transformers.generation import GenerationMixin")


@ONLY_5
def test_fast_tokenizer_module_is_merged_into_the_other(triage_of, import_line, monkeypatch):
    # loading a tokenizer of the model leaves an alias of that name for the rest of the process
    monkeypatch.delitem(sys.modules, "transformers.models.bert.tokenization_bert_fast", raising=False)

    finding = triage_of(import_line("from transformers.models.bert.tokenization_bert_fast import BertTokenizerFast"))

    assert finding.fix == "import from transformers.models.bert.tokenization_bert"
    assert runs("from transformers.models.bert.tokenization_bert import BertTokenizer")


def test_module_that_never_was_names_the_nearest(triage_of, import_line):
    finding = triage_of(import_line("import transformers.models.lama"))

    assert finding.fix == "import from transformers.models.llama"


def test_package_that_is_not_installed_is_named_as_pip_knows_it(triage_of, import_line):
    finding = triage_of(import_line("import flash_attn"))

    assert finding.rule == "missing-package"
    assert finding.fix == "pip install flash-attn"


@ONLY_5
def test_every_missing_backend_is_named_at_once(triage_of):
    finding = triage_of(lambda: ViTImageProcessor())  # noqa: PLW0108 - the frame of the call is the test's

    assert finding.rule == "missing-backend"
    assert finding.what == "not installed, and needed: PIL and Torchvision."
    assert finding.fix == "pip install pillow torchvision"


def test_flash_attention_that_is_not_installed(triage_of, llama):
    finding = triage_of(lambda: LlamaForCausalLM.from_pretrained(llama, attn_implementation="flash_attention_2"))

    assert finding.rule == "flash-attention-unavailable"
    assert finding.fix.startswith('attn_implementation="sdpa"')
    assert LlamaForCausalLM.from_pretrained(llama, attn_implementation="sdpa") is not None


def test_quantization_without_its_package(triage_of, llama):
    settings = transformers.BitsAndBytesConfig(load_in_8bit=True)

    finding = triage_of(lambda: LlamaForCausalLM.from_pretrained(llama, quantization_config=settings))

    assert finding.rule == "missing-quantizer"
    assert finding.fix.startswith("pip install -U bitsandbytes")


@pytest.mark.parametrize(
    ("fail", "fix"),
    [
        (
            lambda: TrainingArguments(output_dir="x", evaluation_strategy="no"),
            'TrainingArguments(output_dir="x", eval_strategy="no")',
        ),
        (lambda: TrainingArguments(output_dir="x", no_cuda=True), 'TrainingArguments(output_dir="x", use_cpu=True)'),
    ],
    ids=["evaluation_strategy", "no_cuda"],
)
@ONLY_5
def test_renamed_argument_is_renamed_in_the_line(triage_of, fail, fix, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    finding = triage_of(fail)

    assert finding.rule == "removed-argument"
    assert fix in finding.fix
    assert runs(f"from transformers import TrainingArguments; {fix}")


@ONLY_5
def test_argument_of_the_trainer_is_renamed(triage_of):
    finding = triage_of(lambda: Trainer(model=None, tokenizer=None))

    assert "Trainer(model=None, processing_class=None)" in finding.fix
    assert finding.facts[1] == "tokenizer was removed from Trainer: upgrading transformers does not bring it back"


@ONLY_5
def test_argument_that_went_into_a_config(triage_of, llama):
    finding = triage_of(lambda: LlamaForCausalLM.from_pretrained(llama, load_in_8bit=True))

    assert finding.what == f"LlamaForCausalLM has no argument load_in_8bit in transformers {transformers.__version__}."
    assert finding.fix == "write quantization_config=BitsAndBytesConfig(load_in_8bit=True) instead of load_in_8bit="


def test_misspelt_argument_names_the_nearest(triage_of, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    finding = triage_of(lambda: TrainingArguments(output_dir="x", learning_rte=1.0))

    assert finding.facts[-1] == "nearest argument of TrainingArguments: learning_rate"
    assert 'TrainingArguments(output_dir="x", learning_rate=1.0)' in finding.fix


class Config:
    """What a checkpoint of 2023 held besides tensors."""


def test_sound_pickle_that_torch_does_not_trust(triage_of, tmp_path):
    torch.save({"config": Config(), "weight": torch.zeros(2)}, tmp_path / "old.pt")

    finding = triage_of(lambda: torch.load(tmp_path / "old.pt"))

    assert finding.rule == "unsafe-pickle"
    assert "this file holds test_triage_install.Config" in finding.what
    with torch.serialization.safe_globals([Config]):
        assert set(torch.load(tmp_path / "old.pt")) == {"config", "weight"}


def test_version_conflict_of_a_dependency(triage_of):
    from transformers.utils.versions import require_version

    finding = triage_of(lambda: require_version("tokenizers<0.10"))

    assert finding.rule == "version-conflict"
    assert finding.fix == 'pip install "tokenizers<0.10"'


def test_pickle_protocol_error_of_the_users_is_not_ours(triage_of):
    assert triage_of(lambda: pickle.loads(b"nonsense")) is None  # noqa: S301 - it fails to load


def test_model_class_is_not_its_own_argument(triage_of, bert):
    assert triage_of(lambda: BertModel.from_pretrained(bert, no_such_argument_at_all=1)).fix.startswith(
        "drop no_such_argument_at_all="
    )


@pytest.fixture
def import_line(tmp_path):
    """Return a function that makes a line of a file into a call, so that triage sees the line as a user's."""

    def make(line):
        path = tmp_path / "test_line.py"
        path.write_text(line + "\n")
        code = compile(line, str(path), "exec")
        return lambda: exec(code, {"__name__": "test_line"})  # noqa: S102 - the line under test

    return make
