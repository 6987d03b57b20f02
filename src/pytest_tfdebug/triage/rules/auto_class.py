"""Rules of the bucket ``auto-class``: a class, task or config that does not fit the checkpoint."""

from __future__ import annotations

from functools import partial

from pytest_tfdebug.triage.rule import AUTO_CLASS, Rule

_rule = partial(Rule, AUTO_CLASS)

AUTO_CLASS_RULES = (
    _rule(
        "unmapped-config",
        ("ValueError",),
        r"Unrecognized configuration class <class '[\w.]*?(?P<config>\w+)'> for this kind of AutoModel: (?P<auto>\w+)",
        ("{auto} has no class for {config}.",),
        (
            "{rewritten}",
            "use {right} instead of {auto}",
            "{auto}.register({own}, CLASS)    # CLASS: the model class of yours that has this config",
            "use a checkpoint whose model type {auto} maps",
        ),
        (
            "python -c \"from transformers import AutoConfig; print(AutoConfig.from_pretrained('{checkpoint}').architectures)\"",
            "print(config.architectures)",
        ),
        "transformers.models.auto.auto_factory._BaseAutoModelClass",
        facts="auto classes",
    ),
    _rule(
        "unmapped-tokenizer-config",
        ("ValueError",),
        r"Unrecognized configuration class <class '[\w.]*?(?P<config>\w+)'> to build an AutoTokenizer",
        ("AutoTokenizer has no tokenizer for {config}.",),
        ("load the tokenizer by its own class, or AutoProcessor where the model takes more than text",),
        ("look for tokenizer_class in tokenizer_config.json",),
        "transformers.models.auto.tokenization_auto.AutoTokenizer.from_pretrained",
    ),
    _rule(
        "unrecognized-model",
        ("ValueError",),
        r"Unrecognized model in (?P<path>.+?)\. Should have a `model_type` key",
        (
            "{path} is an adapter of {adapter}, not a model.",
            "{path} is an {empty} directory.",
            "{path} has no {no_config}.",
            "the config.json of {path} has no {no_type}.",
            "{path} has no config.json with a model_type.",
        ),
        (
            'model = PeftModel.from_pretrained(AutoModel.from_pretrained("{adapter}"), "{path}")',
            "save the model there ({empty} now): model.save_pretrained(DIR)",
            'write {no_config}: config.save_pretrained("{path}"), the config of the class that made the weights',
            'add "{no_type}" to {path}/config.json',
            "load with the model's own class instead of an Auto class",
        ),
        ("ls {path}; cat {path}/config.json",),
        "transformers.models.auto.configuration_auto.AutoConfig.from_pretrained",
        facts="model directory",
    ),
    _rule(
        "unknown-model-type",
        ("ValueError",),
        r"has model type `(?P<given>[^`]+)` but Transformers does not recognize this architecture",
        ("transformers {version} does not know the model type {given}.",),
        (
            'if it is misspelt, write "model_type": "{near}"; else pip install --upgrade transformers',
            "pip install --upgrade transformers    # {given} is newer than {version}, or needs its own package or trust_remote_code",
        ),
        ("look for transformers_version and auto_map in the checkpoint's config.json",),
        "transformers.models.auto.configuration_auto.AutoConfig.from_pretrained",
        facts="model type",
    ),
    _rule(
        "unknown-model-identifier",
        ("ValueError",),
        r"Unrecognized model identifier: (?P<given>\S+?)\. Should contain one of",
        ("{given} is not a model type that transformers {version} knows.",),
        ('use AutoConfig.for_model("{near}")', "pip install --upgrade transformers, or correct {given}"),
        ('python -c "from transformers import CONFIG_MAPPING; print(sorted(CONFIG_MAPPING))"',),
        "transformers.models.auto.configuration_auto.AutoConfig.for_model",
        facts="model type",
    ),
    _rule(
        "unrecognized-processor",
        ("ValueError",),
        r"Unrecognized (?P<kind>processing class|image processor|video processor|feature extractor) in (?P<path>.+?)\. (?:Can't|Should)",
        ("{path} holds no files of a {kind}.",),
        (
            "save the processor or tokenizer there too with save_pretrained, or load it from the base model's repository",
        ),
        ("ls {path}",),
        "transformers.models.auto.processing_auto.AutoProcessor.from_pretrained",
    ),
    _rule(
        "auto-class-called",
        ("OSError",),
        r"(?P<auto>Auto\w+) is designed to be instantiated using the `(?P<call>[^`]+)` (?:or|method)",
        ("{auto} was called; it only chooses a class.",),
        ("{auto}.from_pretrained(PATH), or {auto}.from_config(config) for random weights", "{call}"),
        ("correct: {code}", "use the class of the model itself to build one from a config"),
        "transformers.models.auto.auto_factory._BaseAutoModelClass.__init__",
    ),
    _rule(
        "unknown-task",
        ("KeyError",),
        r"Unknown task (?P<task>\S+), available tasks are",
        ("pipeline has no task {task}.",),
        ("{rewritten}", 'pipeline("{near}", ...)', "use one of the tasks that the message lists"),
        ('python -c "from transformers.pipelines import get_supported_tasks; print(get_supported_tasks())"',),
        "transformers.pipelines.base.PipelineRegistry.check_task",
        facts="task",
    ),
    _rule(
        "no-generate",
        ("AttributeError",),
        r"'(?P<cls>\w+)' object has no attribute 'generate'",
        (
            "{own} does not inherit from GenerationMixin, so it cannot generate.",
            "{cls} has no language model head, so it cannot generate.",
        ),
        (
            "{rewritten}",
            "load it as {head} ({right})",
            "class {own}({bases}, GenerationMixin):    # from transformers import GenerationMixin",
            "load a checkpoint of a generative model: {model_type} has none",
        ),
        ("print(type(model), model.config.architectures)",),
        "torch.nn.Module.__getattr__",
        facts="no generate",
    ),
    _rule(
        "tokenizer-not-guessed",
        ("Exception",),
        r"Impossible to guess which (?P<kind>tokenizer|image processor|feature extractor|processor) to use",
        ("pipeline was given a model object and no {kind}.",),
        ("pipeline(task, model=model, tokenizer=tokenizer)",),
        ("print(model.name_or_path)    # a model built in the test has no repository to take the {kind} from",),
        "transformers.pipelines.pipeline",
        libraries=("transformers",),
    ),
    _rule(
        "custom-code",
        ("ValueError",),
        r"(?<!\S)(?P<path>\S+) contains custom code which must be executed",
        ("the model's class is code in {path}, not in transformers.",),
        ("after reading that code: from_pretrained(..., trust_remote_code=True, revision=COMMIT)",),
        ("read the files that auto_map in its config.json names",),
        "transformers.dynamic_module_utils.resolve_trust_remote_code",
    ),
)
