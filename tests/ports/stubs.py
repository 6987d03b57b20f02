"""Inert stand-ins for what a port imports and its forward never uses: image transforms, trainers, cloud clients.

The registries' wheels of some of these pull CUDA or gigabytes. They stand in ``sys.modules`` only while a port is
imported, so that nothing else takes them for the real ones.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, module_from_spec
from types import ModuleType

STUBBED = (
    "ahocorasick",
    "ai4ts",
    "anyascii",
    "argbind",
    "av",
    "base58",
    "benchpots",
    "bettermap",
    "Bio",
    "blobfile",
    "boto3",
    "botocore",
    "braceexpand",
    "cached_path",
    "causal_conv1d",
    "configargparse",
    "coreforecast",
    "cv2",
    "data_provider",
    "datasets",
    "demucs",
    "dill",
    "dora",
    "ema_pytorch",
    "en_transformer",
    "encodec",
    "entmax",
    "fairscale",
    "fairseq.dataclass",
    "fairseq.models.transformer.transformer_config",
    "fairseq2n",
    "fasttext",
    "ffmpeg",
    "ffmpy",
    "flashy",
    "flatten_dict",
    "ftfy",
    "fvcore",
    "google",
    "gym",
    "gymnasium",
    "h5py",
    "hydra",
    "hyperpyyaml",
    "invariant_point_attention",
    "IPython",
    "jsonargparse",
    "julius",
    "kagglehub",
    "kornia.version",
    "kornia_rs",
    "labml",
    "langdetect",
    "librosa",
    "lightning",
    "lightning_utilities",
    "litert_torch.backend",
    "litert_torch.generative.custom_ops",
    "litert_torch.generative.layers.lora",
    "litert_torch.generative.utilities.loader",
    "litert_torch.hlfb",
    "lmdb",
    "loguru",
    "loralib",
    "mamba_ssm",
    "matplotlib",
    "mmcv.ops",
    "modelindex",
    "more_itertools",
    "mp_nerf",
    "num2words",
    "numba",
    "omegaconf",
    "PIL",
    "progressbar",
    "pyclipper",
    "pycocotools",
    "pygrinder",
    "pyonmttok",
    "pypdfium2",
    "pytorch3d",
    "pytorch_fid",
    "pytorch_lightning",
    "randomname",
    "rapidfuzz",
    "ray",
    "requests",
    "rich",
    "ruamel",
    "sacremoses",
    "se3_transformer_pytorch",
    "sentencepiece",
    "shapely",
    "sidechainnet",
    "simple_parsing",
    "soundfile",
    "spacy",
    "structlog",
    "subword_nmt",
    "tensorboard",
    "termcolor",
    "terminaltables",
    "tiktoken",
    "torchao",
    "torchaudio",
    "torchcodec",
    "torchdata",
    "torchlibrosa",
    "torchmetrics",
    "torchsummary",
    "torchtitan.distributed.minimal_async_ep",
    "torch_scatter",
    "torchvision",
    "trainer",
    "tsdb",
    "tyro",
    "utilsforecast",
    "validators",
    "vector_quantize_pytorch",
    "wandb",
    "webdataset",
    "wget",
    "yapf",
    "zarr",
)
_INSIDE = tuple(f"{name}." for name in STUBBED)


def _is_stubbed(name):
    return f"{name}.".startswith(_INSIDE)


class _Inert(type):
    """The class of every attribute: may be subclassed, called, used as a decorator or in an annotation."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return _inert(name)

    def __getitem__(cls, parameters):
        return cls

    def __add__(cls, other):
        return other

    __radd__ = __add__

    def __len__(cls):
        return 0

    def __bool__(cls):
        return True


def _inert(name):
    if name.endswith("Warning"):  # what a filter of warnings takes
        return type(name, (Warning,), {})

    def called(self, *args, **kwargs):
        return args[0] if args else self

    def constructed(cls, *args, **kwargs):
        return object.__new__(cls)

    return _Inert(
        name,
        (),
        {"__new__": constructed, "__call__": called, "__bool__": lambda self: False, "__iter__": lambda self: iter(())},
    )


class _StubModule(ModuleType):
    __path__: tuple[str, ...] = ()
    __version__ = VERSION = "99.0"

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return _inert(name)


class _Stubs(MetaPathFinder, Loader):
    def find_spec(self, fullname, path=None, target=None):
        if _is_stubbed(fullname):
            return ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec):
        return _StubModule(spec.name)

    def exec_module(self, module):
        pass


@contextmanager
def stubbed():
    """Let ports import what is named in ``STUBBED``; what was really imported before is back afterwards."""
    real = {name: sys.modules.pop(name) for name in list(sys.modules) if _is_stubbed(name)}
    finder = _Stubs()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if _is_stubbed(name)]:
            del sys.modules[name]
        sys.modules.update(real)


def bare(*names):
    """Let parts of packages be imported without what the ``__init__`` of these packages imports."""
    for name in names:
        if name not in sys.modules:
            sys.modules[name] = module_from_spec(find_spec(name))
