"""Rules of the bucket ``silent correctness`` over the transformers log: what goes on after saying what is wrong."""

from __future__ import annotations

from pytest_tfdebug.triage.rule import LogRule

_MARK_CLEAN_LOAD = 'mark the test with @pytest.mark.invariant("clean_load"): it fails by itself on such a load'
_MARK_PADDING_INVARIANT = "mark the test with @pytest.mark.padding_invariant: the same answer with and without padding"

LOG_RULES = (
    LogRule(
        "load-report",
        r"(?<!\w)(?P<cls>\w+) LOAD REPORT from: (?P<path>[^\n]+)",
        "{cls} was loaded from {path} and its weights are not those of the checkpoint: {counts}.",
        "load it with the class that saved it ({architecture}), or correct the checkpoint's keys",
        _MARK_CLEAN_LOAD,
        "transformers.utils.loading_report.log_state_dict_report",
    ),
    LogRule(
        "weights-of-other-shapes",
        r"Some weights of (?P<cls>\w+) were not initialized from the model checkpoint at (?P<path>\S+) and are newly initialized because the shapes did not match:\s*(?P<keys>[\s\S]{0,600})",
        "{cls} was loaded from {path} and weights of other shapes are random: {keys}",
        "load it with the checkpoint's own num_labels and vocab_size",
        _MARK_CLEAN_LOAD,
        "transformers 4: PreTrainedModel._load_pretrained_model",
    ),
    LogRule(
        "weights-not-initialised",
        r"Some weights of (?P<cls>\w+) were not initialized from the model checkpoint at (?P<path>\S+) and are newly initialized[^\[]*\[(?P<keys>[^\]]*)",
        "{cls} was loaded from {path} and weights are random: {keys}.",
        "load it with the class that saved it, or train the new weights before you compare anything",
        _MARK_CLEAN_LOAD,
        "transformers 4: PreTrainedModel._load_pretrained_model",
    ),
    LogRule(
        "weights-not-used",
        r"Some weights of the model checkpoint at (?P<path>\S+) were not used when initializing (?P<cls>\w+): \[(?P<keys>[^\]]*)",
        "{cls} was loaded from {path} and weights of the checkpoint were left out: {keys}.",
        "load it with the class that saved it",
        _MARK_CLEAN_LOAD,
        "transformers 4: PreTrainedModel._load_pretrained_model",
    ),
    LogRule(
        "other-model-type",
        r"You are using a model of type `?(?P<given>[\w-]+)`? to instantiate a model of type `?(?P<asked>[\w-]*\w)",
        "a config of model type {given} was read as one of type {asked}: values of the same name, another meaning.",
        "load it with AutoConfig or AutoModel, or the class of model type {given}",
        "print(config.model_type, type(config)) and compare with config.json",
        "transformers.configuration_utils.PreTrainedConfig.from_dict",
    ),
    LogRule(
        "attention-mask-not-set",
        r"[Tt]he attention mask (?:and the pad token id were|is) not set",
        "generate got a batch without an attention mask: padding is attended to.",
        "pass it: model.generate(**tokenizer(texts, padding=True, return_tensors='pt'))",
        _MARK_PADDING_INVARIANT,
        "transformers.generation.utils.GenerationMixin.generate",
    ),
    LogRule(
        "padding-without-mask",
        r"strongly recommend passing in an `attention_mask` since your input_ids may be padded",
        "the ids hold pad tokens and no attention mask was passed: padding is attended to.",
        "pass attention_mask=(input_ids != pad_token_id).long()",
        _MARK_PADDING_INVARIANT,
        "transformers.modeling_utils.PreTrainedModel.warn_if_padding_and_no_attention_mask",
    ),
    LogRule(
        "right-padding",
        r"right-padding was detected",
        "a decoder-only model generated from right-padded ids: it continues after padding.",
        "tokenizer.padding_side = 'left' before tokenizing",
        "print(input_ids[:, -1], tokenizer.pad_token_id, tokenizer.padding_side)",
        "transformers.generation.utils.GenerationMixin.generate",
    ),
    LogRule(
        "unknown-rope-keys",
        # keys of layer types hold the parameters of a config that nests them, and are read
        r"Unrecognized keys in `rope_(?:parameters|scaling)` for 'rope_type'='(?P<kind>\w+)': "
        r"(?P<keys>(?![^\n]*_attention')[^\n]+)",
        "rope_parameters of type {kind} has keys that are ignored: {keys}.",
        "correct the names of the keys or the rope_type",
        "print(config.rope_parameters)",
        "transformers.modeling_rope_utils",
    ),
    LogRule(
        "tied-weights-absent",
        r"This checkpoint seem corrupted\. The tied weights mapping",
        "tied weights are absent from the checkpoint on both sides: they are random.",
        "load it with the class that saved it",
        _MARK_CLEAN_LOAD,
        "transformers.modeling_utils.PreTrainedModel",
    ),
    LogRule(
        "sequence-too-long",
        r"Token indices sequence length is longer than the specified maximum sequence length for this model \((?P<sizes>[^)]+)\)",
        "a text was tokenized to more ids than the model has positions ({sizes}).",
        "tokenizer(text, truncation=True)",
        "print(tokenizer.model_max_length, model.config.max_position_embeddings)",
        "transformers.tokenization_utils_base.PreTrainedTokenizerBase",
    ),
)
