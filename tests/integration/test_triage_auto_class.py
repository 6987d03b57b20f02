"""Real failures of the bucket ``auto-class``; after the fix that triage names, the failing call succeeds."""

import json

import pytest
import torch
import transformers
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoProcessor,
    AutoTokenizer,
    BertModel,
    GenerationMixin,
    LlamaConfig,
    LlamaForCausalLM,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    pipeline,
)

#: transformers 4 fails otherwise, or not at all, where these do.
ONLY_5 = pytest.mark.skipif(transformers.__version__ < "5", reason="transformers 4 does this otherwise")


def test_config_that_the_auto_class_does_not_map(triage_of, llama):
    def load():
        return AutoModelForSeq2SeqLM.from_pretrained(llama)

    finding = triage_of(load)

    assert finding.rule == "unmapped-config"
    assert finding.bucket == "auto-class"
    assert finding.what == "AutoModelForSeq2SeqLM has no class for LlamaConfig."
    assert finding.fix == "return AutoModelForCausalLM.from_pretrained(llama)"
    assert finding.facts[0].startswith("Auto classes that map LlamaConfig: AutoModelForCausalLM, ")
    assert f"AutoConfig.from_pretrained('{llama}')" in finding.then
    assert AutoModelForCausalLM.from_pretrained(llama) is not None


def test_config_without_a_checkpoint(triage_of):
    config = LlamaConfig(
        vocab_size=8,
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
    )

    finding = triage_of(lambda: AutoModelForSeq2SeqLM.from_config(config))

    assert "AutoModelForCausalLM.from_config(config)" in finding.fix
    assert finding.then == "print(config.architectures)"
    assert AutoModelForCausalLM.from_config(config) is not None


def test_class_of_the_checkpoints_own_architecture_is_preferred(triage_of):
    config = LlamaConfig(architectures=["LlamaForTokenClassification"])

    finding = triage_of(lambda: AutoModelForSeq2SeqLM.from_config(config))

    assert "AutoModelForTokenClassification.from_config(config)" in finding.fix


def test_call_over_several_lines_is_shown_whole(triage_of, llama):
    def load():
        return AutoModelForSeq2SeqLM.from_pretrained(
            llama,
            dtype="auto",
        )

    finding = triage_of(load)

    assert finding.fix.startswith("return AutoModelForCausalLM.from_pretrained(")


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"model.safetensors": ""},
        {"config.json": "{}"},
        {"adapter_config.json": json.dumps({"base_model_name_or_path": "org/base", "peft_type": "LORA"})},
    ],
    ids=["empty", "no config", "no model type", "adapter"],
)
def test_directory_that_is_no_model_says_what_it_holds(triage_of, tmp_path, files):
    for name, content in files.items():
        (tmp_path / name).write_text(content)

    finding = triage_of(lambda: AutoConfig.from_pretrained(tmp_path))

    assert finding.rule == "unrecognized-model"
    assert finding.what == f"{tmp_path} has no config.json with a model_type."
    assert finding.facts == (f"the directory holds: {', '.join(files) or 'nothing'}",)
    assert finding.fix.startswith(f'config.save_pretrained("{tmp_path}")')


def test_directory_loads_once_its_model_type_is_added(triage_of, llama, tmp_path):
    config = json.loads((llama / "config.json").read_text())
    del config["model_type"]
    (tmp_path / "config.json").write_text(json.dumps(config))

    finding = triage_of(lambda: AutoConfig.from_pretrained(tmp_path))

    assert finding.rule == "unrecognized-model"
    (tmp_path / "config.json").write_text(json.dumps(config | {"model_type": "llama"}))
    assert AutoConfig.from_pretrained(tmp_path).model_type == "llama"


def test_unknown_model_type_names_the_nearest(triage_of, tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "lama"}')

    finding = triage_of(lambda: AutoConfig.from_pretrained(tmp_path))

    assert finding.rule == "unknown-model-type"
    assert finding.fix.startswith('if it is misspelt, write "model_type": "llama"')
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    assert AutoConfig.from_pretrained(tmp_path).model_type == "llama"


def test_unknown_model_identifier_names_the_nearest(triage_of):
    finding = triage_of(lambda: AutoConfig.for_model("lama"))

    assert finding.rule == "unknown-model-identifier"
    assert finding.fix == 'use AutoConfig.for_model("llama")'
    assert AutoConfig.for_model("llama").model_type == "llama"


def test_auto_class_that_was_called(triage_of, llama):
    finding = triage_of(lambda: AutoModelForCausalLM())  # noqa: PLW0108 - the frame of the call is the test's

    assert finding.rule == "auto-class-called"
    assert finding.what == "AutoModelForCausalLM was called; it only chooses a class."
    assert finding.fix.startswith("AutoModelForCausalLM.from_pretrained(PATH)")
    assert AutoModelForCausalLM.from_pretrained(llama) is not None


def test_auto_tokenizer_that_was_called(triage_of):
    assert triage_of(lambda: AutoTokenizer()).rule == "auto-class-called"  # noqa: PLW0108 - as above


def test_unknown_task(triage_of, llama):
    finding = triage_of(lambda: pipeline("text-genration", model=str(llama)))

    assert finding.rule == "unknown-task"
    assert finding.what == "pipeline has no task text-genration."


def test_model_without_a_head_cannot_generate(triage_of, bert):
    model = BertModel.from_pretrained(bert)
    ids = torch.tensor([[1, 2]])

    finding = triage_of(lambda: model.generate(ids))

    assert finding.rule == "no-generate"
    assert finding.what == "BertModel has no language model head, so it cannot generate."
    assert finding.fix == "load it as BertLMHeadModel (AutoModelForCausalLM)"


class OwnConfig(PretrainedConfig):
    model_type = "own-model-of-a-test"


class OwnModel(PreTrainedModel):
    """A model of the user's, with a head and without generate: transformers 5 no longer inherits it for one."""

    config_class = OwnConfig

    def __init__(self, config):
        super().__init__(config)
        self.lm_head = torch.nn.Linear(2, 2)


@ONLY_5
def test_model_of_the_users_is_told_to_inherit_generate(triage_of):
    model = OwnModel(OwnConfig())

    finding = triage_of(lambda: model.generate(torch.zeros(1, 2)))

    assert finding.rule == "no-generate"
    assert finding.what == "OwnModel does not inherit from GenerationMixin, so it cannot generate."
    assert (
        finding.fix == "class OwnModel(PreTrainedModel, GenerationMixin):    # from transformers import GenerationMixin"
    )
    assert hasattr(type("OwnModel", (PreTrainedModel, GenerationMixin), {}), "generate")


def test_config_of_the_users_is_to_be_registered(triage_of):
    finding = triage_of(lambda: AutoModel.from_config(OwnConfig()))

    assert finding.rule == "unmapped-config"
    assert finding.fix == (
        "AutoModel.register(OwnConfig, CLASS)    # CLASS: the model class of yours that has this config"
    )
    AutoModel.register(OwnConfig, OwnModel)
    assert isinstance(AutoModel.from_config(OwnConfig()), OwnModel)


def test_base_model_generates_with_its_head(triage_of, llama):
    ids = torch.tensor([[1, 2]])

    finding = triage_of(lambda: AutoModel.from_pretrained(llama).generate(ids))

    assert finding.fix == "load it as LlamaForCausalLM (AutoModelForCausalLM)"
    assert LlamaForCausalLM.from_pretrained(llama).generate(ids, max_new_tokens=1) is not None


def test_pipeline_of_a_model_without_its_tokenizer(triage_of, llama):
    model = LlamaForCausalLM.from_pretrained(llama)

    finding = triage_of(lambda: pipeline("text-generation", model=model))

    assert finding.rule == "tokenizer-not-guessed"
    assert finding.fix == "pipeline(task, model=model, tokenizer=tokenizer)"
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel({"a": 0}, unk_token="a")))  # noqa: S106 - a word, no password
    assert pipeline("text-generation", model=model, tokenizer=tokenizer) is not None


def test_directory_without_a_processor(triage_of, llama):
    finding = triage_of(lambda: AutoProcessor.from_pretrained(llama))

    assert finding.rule == "unrecognized-processor"
    assert finding.what == f"{llama} holds no files of a processing class."


def test_custom_code_is_not_trusted_for_the_user(triage_of, tmp_path, monkeypatch):
    auto_map = {"AutoConfig": "configuration_x.XConfig", "AutoModel": "modeling_x.XModel"}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "x9", "auto_map": auto_map}))
    monkeypatch.setattr("builtins.input", lambda _prompt: "n")

    finding = triage_of(lambda: AutoModel.from_pretrained(tmp_path))

    assert finding.rule == "custom-code"
    assert finding.fix.startswith("after reading that code: ")
