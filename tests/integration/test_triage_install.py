"""Real failures of the bucket ``install/version``; after the fix that triage names, the failing line runs."""

import json
import pickle
import sys

import pytest
import torch
import transformers
from transformers import AutoConfig, BertModel, LlamaForCausalLM, Trainer, TrainingArguments, ViTImageProcessor

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
            "MODEL_WITH_LM_HEAD_MAPPING",
            "MODEL_WITH_LM_HEAD_MAPPING is gone from transformers {version}: use MODEL_FOR_CAUSAL_LM_MAPPING.",
            "from transformers import MODEL_FOR_CAUSAL_LM_MAPPING",
        ),
        (
            "LlavaNextVideoImageProcessor",
            "LlavaNextVideoImageProcessor is gone from transformers {version}: use LlavaNextVideoVideoProcessor.",
            "from transformers import LlavaNextVideoVideoProcessor",
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
    assert runs(fix)


def test_removed_name_says_that_upgrading_will_not_help(triage_of, import_line):
    finding = triage_of(import_line("from transformers import AdamW"))

    assert "AdamW was removed and is not in transformers 5: upgrading will not help" in finding.facts


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("BertOnnxConfig", "use the optimum package"),
        ("NezhaForMaskedLM", "use transformers 4, the last with this model"),
        ("SquadDataset", "use the datasets package"),
        ("squad_convert_examples_to_features", "use the datasets and evaluate packages"),
        ("DataCollatorForWholeWordMask", "use DataCollatorForLanguageModeling(whole_word_mask=True)"),
        ("HybridChunkedCache", "use DynamicCache or StaticCache"),
        ("infer_device", "use torch.accelerator.current_accelerator()"),
        (
            "DisjunctiveConstraint",
            'use model.generate(custom_generate="transformers-community/constrained-beam-search")',
        ),
    ],
)
@ONLY_5
def test_removed_name_without_a_successor_of_one_name(triage_of, import_line, name, fix):
    finding = triage_of(import_line(f"from transformers import {name}"))

    assert finding.fix == fix
    assert f"{name} was removed and is not in transformers 5: upgrading will not help" in finding.facts


def test_attention_class_that_became_an_argument(triage_of, import_line):
    finding = triage_of(import_line("from transformers.models.llama.modeling_llama import LlamaFlashAttention2"))

    assert finding.fix == "use the model's one attention class (attn_implementation chooses the kernel)"


def test_object_whose_import_failed_is_imported_again_by_its_name(triage_of, import_line, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers.models.bark.modeling_bark", None)
    monkeypatch.delitem(vars(transformers), "BarkModel", raising=False)

    finding = triage_of(import_line("from transformers import BarkModel"))

    assert finding.rule == "lazy-import-failed"
    assert finding.what == (
        "importing BarkModel failed: ModuleNotFoundError: import of transformers.models.bark.modeling_bark halted; None in "
        "sys.modules"
    )
    assert finding.then == 'python -c "from transformers import BarkModel"'


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
    assert finding.facts[0] == "tokenizer was removed from Trainer: upgrading transformers does not bring it back"


@ONLY_5
def test_argument_that_went_into_a_config(triage_of, llama):
    finding = triage_of(lambda: LlamaForCausalLM.from_pretrained(llama, load_in_8bit=True))

    assert finding.what == f"LlamaForCausalLM has no argument load_in_8bit in transformers {transformers.__version__}."
    assert finding.fix == "write quantization_config=BitsAndBytesConfig(load_in_8bit=True) instead of load_in_8bit="


def test_misspelt_argument_names_the_nearest(triage_of, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    finding = triage_of(lambda: TrainingArguments(output_dir="x", learning_rte=1.0))

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


def test_code_of_a_repository_that_needs_a_package(triage_of, tmp_path, monkeypatch):
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.syspath_prepend(str(tmp_path / "modules"))
    repository = tmp_path / "repository"
    repository.mkdir()
    auto_map = {"AutoConfig": "configuration_x.XConfig"}
    (repository / "config.json").write_text(json.dumps({"model_type": "x9", "auto_map": auto_map}))
    code = "import no_such_package_x9\nfrom transformers import PretrainedConfig\n\nclass XConfig(PretrainedConfig):\n    pass\n"
    (repository / "configuration_x.py").write_text(code)

    def load():
        return AutoConfig.from_pretrained(repository, trust_remote_code=True)

    finding = triage_of(load)

    assert finding.rule == "missing-remote-code-packages"
    assert finding.fix == "pip install no_such_package_x9"
    (repository / "configuration_x.py").write_text(code.partition("\n")[2])
    assert load() is not None


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
