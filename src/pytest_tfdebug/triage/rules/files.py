"""Rules of the bucket ``download/cache`` about files that are there and wrong, or should be there."""

from __future__ import annotations

from functools import partial

from pytest_tfdebug.triage.rule import DOWNLOAD, Rule

_rule = partial(Rule, DOWNLOAD)

_LOOK = ("{look}", "look at the first bytes of the file: head -c 200 FILE")
_RESTORE = ("{restore}", "download the file again: hf download REPO FILE --force-download")
_BROKEN = ("{broken} is {verdict}.", "a weights file cannot be read: {detail}.")

FILE_RULES = (
    _rule(
        "bad-safetensors",
        ("SafetensorError",),
        r"(?i)(?P<detail>header ?too ?(?:large|small)|(?:metadata ?)?incomplete (?:metadata|buffer)|metadataincompletebuffer|invalid ?header|invalid json in header)",
        _BROKEN,
        _RESTORE,
        _LOOK,
        "safetensors, SafeTensorError of its Rust library",
        facts="weights file",
    ),
    _rule(
        "bad-pickle",
        ("UnpicklingError",),
        r"(?P<detail>Weights only load failed|invalid load key|pickle data was truncated)",
        _BROKEN,
        _RESTORE,
        _LOOK,
        "torch.serialization.load",
        facts="weights only",
    ),
    _rule(
        "bad-archive",
        ("RuntimeError",),
        r"(?P<detail>PytorchStreamReader failed [^.]+)",
        _BROKEN,
        _RESTORE,
        _LOOK,
        "caffe2/serialize/inline_container.cc of torch",
        facts="weights file",
    ),
    _rule(
        "missing-shard",
        ("FileNotFoundError",),
        r"(?:No such file or directory: ['\"]?)(?P<shard>[^'\"]*-\d+-of-\d+\.(?:safetensors|bin))",
        ("the checkpoint's index names {shard}, and it is not there.",),
        _RESTORE,
        ("ls {directory}",),
        "safetensors.safe_open in transformers.modeling_utils",
        facts="shard",
    ),
    _rule(
        "missing-weights",
        ("OSError",),
        r"no file named (?P<file>\S+?),? .*found in directory (?P<directory>.+?)\.?(?: but there is a file for|$)",
        (
            "{directory} holds {foreign}, TensorFlow or Flax weights, which transformers 5 does not read.",
            "{directory} holds {adapter} and no model weights.",
            "{directory} has no weights file.",
        ),
        (
            'with transformers 4, for {foreign}: AutoModel.from_pretrained("{directory}", from_tf=True).save_pretrained("{directory}")',
            "load the base model that {adapter} names, then its adapter with PeftModel.from_pretrained",
            'model.save_pretrained("{directory}")    # or download the weights there',
        ),
        ("ls -l {directory}",),
        "transformers.modeling_utils._get_resolved_checkpoint_files",
        facts="directory",
    ),
    _rule(
        "bad-config-json",
        ("OSError",),
        r"config file at '(?P<path>.+?)' is not a valid JSON file",
        ("{path} is not JSON.",),
        ("restore {path}: download it again, or config.save_pretrained",),
        ("python -m json.tool {path}",),
        "transformers.configuration_utils.PreTrainedConfig._get_config_dict",
    ),
    _rule(
        "missing-tokenizer-files",
        ("ValueError", "OSError"),
        r"Couldn't instantiate the backend tokenizer from one of|Can't load tokenizer for '(?P<path>[^']+)'",
        ("no tokenizer files were found beside the model.",),
        ("save the tokenizer there too: tokenizer.save_pretrained(DIR), or load it from the repository that has it",),
        ("list the files: tokenizer.json and tokenizer_config.json are missing",),
        "transformers.tokenization_utils_tokenizers.PreTrainedTokenizerFast.__init__",
    ),
    _rule(
        "missing-preprocessor-files",
        ("OSError",),
        r"Can't load (?P<thing>feature extractor|image processor|video processor|processor|configuration)s? (?:for|of) '(?P<path>[^']+)'",
        ("{path} has no file of the {thing}.",),
        ("save it there too with save_pretrained, or load it from the repository that has it",),
        ("ls {path}",),
        "transformers.feature_extraction_utils.FeatureExtractionMixin.get_feature_extractor_dict",
    ),
)
