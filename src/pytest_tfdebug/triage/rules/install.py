"""Rules of the bucket ``install/version``: names, modules and packages that this installation does not have."""

from __future__ import annotations

from functools import partial

from pytest_tfdebug.triage.rule import INSTALL, Rule

_rule = partial(Rule, INSTALL)

_PACKAGES = (
    "transformers|torch|torchvision|torchaudio|tokenizers|safetensors|huggingface_hub|accelerate|peft|bitsandbytes|datasets"
    "|evaluate|diffusers|optimum|sentencepiece|tiktoken|google\\.protobuf|timm|flash_attn|sentence_transformers|deepspeed"
    "|einops|PIL|trl|xformers|triton"
)
_NAME_FIX = (
    "{rewritten}",
    "use {removed}",
    "from {elsewhere} import {name}",
    "pip install --upgrade transformers    # the name is newer than {version}, or misspelt",
)
_NAME_THEN = ('python -c "import transformers; print(transformers.__version__, transformers.__file__)"',)

INSTALL_RULES = (
    _rule(
        "missing-name",
        ("ImportError",),
        r"cannot import name '(?P<name>\w+)' from '(?P<module>transformers(?:\.[\w.]+)?)' \((?!.*circular)",
        (
            "{name} is gone from transformers {version}: use {removed}.",
            "{name} moved to {elsewhere}.",
            "{near} exists in transformers {version}, {name} does not.",
            "transformers {version} has no {name}.",
        ),
        _NAME_FIX,
        _NAME_THEN,
        "Python's import of a name from a module",
        facts="missing name",
    ),
    _rule(
        "missing-attribute",
        ("AttributeError",),
        r"module '?(?P<module>transformers(?:\.[\w.]+)?)'? has no attribute '?(?P<name>\w+)'?",
        (
            "{name} is gone from transformers {version}: use {removed}.",
            "{near} exists in transformers {version}, {name} does not.",
            "transformers {version} has no {name}.",
        ),
        _NAME_FIX,
        _NAME_THEN,
        "transformers.utils.import_utils._LazyModule.__getattr__",
        libraries=("transformers",),
        facts="missing name",
    ),
    _rule(
        "missing-module",
        ("ModuleNotFoundError",),
        r"No module named '(?P<module>transformers\.[\w.]+)'",
        ("the contents of {module} are in {moved} now.", "transformers {version} has no module {module}."),
        (
            "import from {moved}",
            "import from {near}",
            "pip install --upgrade transformers    # if the module is newer than {version}",
        ),
        _NAME_THEN,
        "Python's import of a module",
        facts="missing module",
    ),
    _rule(
        "missing-package",
        ("ModuleNotFoundError",),
        rf"No module named '(?P<package>{_PACKAGES})'",
        ("the package {distribution} is not installed.",),
        ("pip install {distribution}",),
        ("python -m pip show {distribution}; python -m pytest_tfdebug.env",),
        "Python's import of a module",
        facts="missing package",
    ),
    _rule(
        "missing-backend",
        ("ImportError",),
        r"requires the (\S+) library but it was not found in your environment",
        ("not installed, and needed: {libraries}.",),
        ("pip install {distributions}",),
        ("python -m pip check",),
        "transformers.utils.import_utils.requires_backends",
        facts="backends",
    ),
    _rule(
        "missing-remote-code-packages",
        ("ImportError",),
        r"requires the following packages that were not found in your environment: (?P<packages>[^.]+)\. Run `(?P<command>pip install [^`]+)`",
        ("the repository's own code needs {packages}, not installed.",),
        ("{command}",),
        ("python -m pip check",),
        "transformers.dynamic_module_utils.check_imports",
    ),
    _rule(
        "missing-quantizer",
        ("ImportError", "RuntimeError"),
        r"(?:[Rr]equires|not installed|needs).{0,80}`(?P<command>pip install [^`]+)`",
        ("a package that this call needs is not installed or too old.",),
        ("{command}",),
        ("python -m pip check",),
        "transformers.quantizers, transformers.integrations",
        libraries=("transformers", "accelerate", "peft"),
    ),
    _rule(
        "missing-accelerate",
        ("ImportError", "ValueError"),
        r"device_map.{0,200}requires .?accelerate|requires `?accelerate[>=`]",
        ("accelerate is needed and not installed, or too old.",),
        ("pip install --upgrade accelerate",),
        ("python -m pip show accelerate",),
        "transformers.integrations.accelerate",
    ),
    _rule(
        "flash-attention-unavailable",
        ("ImportError", "ValueError"),
        r"Flash ?Attention ?(?P<generation>\d).{0,40} has been toggled on, but it cannot be used due to the following error: (?P<why>[^\n]+)",
        ("attn_implementation asks for FlashAttention {generation}: {why}",),
        ('attn_implementation="sdpa"    # or: pip install flash-attn, on a machine with a GPU',),
        ("python -m pytest_tfdebug.env",),
        "transformers.modeling_utils.PreTrainedModel._flash_attn_can_dispatch",
    ),
    _rule(
        "version-conflict",
        ("ImportError",),
        r"(?<![\w-])(?P<requirement>[\w-]+[<>=!~][^ ]*) is required for a normal functioning of this module, but found (?P<found>[\w.+=-]+\w)",
        ("{requirement} is required, {found} is installed.",),
        ('pip install "{requirement}"',),
        ("python -m pip check",),
        "transformers.utils.versions.require_version",
    ),
    _rule(
        "binary-mismatch",
        ("ImportError", "OSError"),
        r"(?P<library>[\w.+-]{0,80}(?:torch|flash_attn|bitsandbytes|xformers|deepspeed|cuda)[\w.+-]{0,80}\.so[\w.]{0,20}): "
        r"undefined symbol|(?P<missing>lib(?:c10|torch|cud|cublas|cufft|curand|cusparse|cusolver|nccl|nvrtc|nvJitLink)[\w.+-]{0,80}\.so[\w.]{0,20}): "
        r"cannot open shared object file",
        (
            "{library} does not fit the installed torch or CUDA.",
            "{missing} is not found: what was imported was built for another torch or CUDA.",
        ),
        (
            "reinstall the package that owns {library} against this torch: pip install --force-reinstall --no-deps PACKAGE",
            "reinstall the package that was imported, built for this torch: pip install --force-reinstall --no-deps PACKAGE",
        ),
        ("python -m pytest_tfdebug.env    # torch, its CUDA, the driver",),
        "the dynamic linker",
    ),
    _rule(
        "torchvision-mismatch",
        ("RuntimeError",),
        r"operator torchvision::nms does not exist",
        ("torchvision was built for another torch.",),
        ("pip install --upgrade torch torchvision    # both from one index, in one command",),
        ("python -m pip check",),
        "https://github.com/pytorch/vision/issues/8131",
    ),
    _rule(
        "unsafe-pickle",
        ("UnpicklingError",),
        r"Weights only load failed[\s\S]*Unsupported (?:global|class|operand)[^\w]*(?:GLOBAL )?(?P<global>[\w.]*)",
        (
            "since torch 2.6 torch.load takes tensors only, and this file holds {global}.",
            "since torch 2.6 torch.load takes tensors only, and this file holds more.",
        ),
        (
            "save the state dict instead: torch.save(model.state_dict(), PATH); for a class you trust: torch.serialization.add_safe_globals([{global}])",
            "save the state dict instead: torch.save(model.state_dict(), PATH), or safetensors",
        ),
        (
            "python -m pickletools FILE/data.pkl    # lists what the file would import; do not load what you do not trust",
        ),
        "torch.serialization.load",
    ),
    _rule(
        "removed-argument",
        ("TypeError",),
        r"^(?P<cls>\w+)\.(?:__init__|from_pretrained|generate|forward)\(\) got an unexpected keyword argument '(?P<argument>\w+)'",
        ("{cls} has no argument {argument} in transformers {version}.",),
        (
            "{rewritten}",
            "write {replacement} instead of {argument}=",
            "drop {drop}=: what it did is the default, or gone",
            "drop {argument}=, or install the version that has it: pip install --upgrade transformers",
        ),
        ('python -c "import inspect, transformers; print(inspect.signature(transformers.{cls}))"',),
        "Python's call of a function",
        facts="argument",
    ),
    _rule(
        "lazy-import-failed",
        ("RuntimeError", "ModuleNotFoundError"),
        r"(?:Failed to import|Could not import module) '?(?P<module>[\w.]+)'?(?: because of the following error|\. Are this object's requirements)",
        ("importing {module} failed: {reason}", "importing {module} failed."),
        ("pip install --upgrade transformers and the package that the reason names",),
        ('python -c "from transformers import {exported}"', 'python -c "import {module}"'),
        "transformers.utils.import_utils._LazyModule._get_module",
        libraries=("transformers",),
        facts="lazy import",
    ),
)
