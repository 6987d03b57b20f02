import pickle
import re
import time
from types import SimpleNamespace

import huggingface_hub.errors as hub
import pytest
import torch

from pytest_tfdebug.triage.facts import READERS
from pytest_tfdebug.triage.plugin import classify
from pytest_tfdebug.triage.rules import LOG_RULES, RULES, Failure

CONNECT = (
    "We couldn't connect to 'https://huggingface.co' to load the files, and couldn't find them in the cached files.\n"
    "Check your internet connection or see how to run the library in offline mode at "
    "'https://huggingface.co/docs/transformers/installation#offline-mode'."
)
OUT_OF_MEMORY = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.11 GiB of which 1.20 GiB is free. "
    "Process 4711 has 77.00 GiB memory in use. Of the allocated memory 70.00 GiB is allocated by PyTorch, and 1.00 GiB is "
    "reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting "
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
)
ASSERT = (
    "CUDA error: device-side assert triggered\nCUDA kernel errors might be asynchronously reported at some other API call, "
    "so the stacktrace below might be incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1\nCompile with "
    "`TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"
)

#: What torch raises since 2.8.
ACCELERATOR_ERROR = getattr(torch, "AcceleratorError", RuntimeError)


def hub_error(status, reason):
    response = SimpleNamespace(headers={}, request=None, status_code=status)
    url = "https://huggingface.co/org/model/resolve/main/config.json"
    return hub.HfHubHTTPError(f"{status} {reason} for url: {url}", response=response)


def wrapped(error, cause):
    error.__cause__ = cause
    return error


#: What the tests cannot trigger without a network, a GPU or another installation: the text as its source raises it.
RECORDED = [
    # transformers 5.23 utils/hub.py cached_files; huggingface_hub 2.4 utils/_http.py hf_raise_for_status
    (
        "hub-rate-limit",
        wrapped(OSError(CONNECT), hub_error(429, "Too Many Requests")),
    ),
    (
        "hub-rate-limit",
        wrapped(OSError(CONNECT), hub_error(429, "Client Error: Too Many Requests")),  # huggingface_hub 0.34
    ),
    (
        "hub-server-error",
        wrapped(OSError(CONNECT), hub_error(503, "Server Error: Service Temporarily Unavailable")),
    ),
    (
        "hub-offline",
        hub.OfflineModeIsEnabled(
            "Cannot reach https://huggingface.co/api/models/org/model: offline mode is enabled. To disable it, please unset "
            "the `HF_HUB_OFFLINE` environment variable."
        ),
    ),
    (
        "cache-permission",
        OSError(
            "PermissionError at /cache/hub/models--org--model when downloading org/model. Check cache directory permissions. "
            "Common causes: 1) another user is downloading the same model (please wait); 2) a previous download was canceled "
            "and the lock file needs manual removal."
        ),
    ),
    # transformers 5.23 models/auto/tokenization_auto.py from_pretrained
    (
        "unmapped-tokenizer-config",
        ValueError(
            "Unrecognized configuration class <class 'transformers.models.vit.configuration_vit.ViTConfig'> to build an "
            "AutoTokenizer.\nModel type should be one of AlbertConfig, BertConfig."
        ),
    ),
    # transformers 5.23 dynamic_module_utils.check_imports
    (
        "missing-remote-code-packages",
        ImportError(
            "This modeling file requires the following packages that were not found in your environment: einops. Run `pip "
            "install einops`"
        ),
    ),
    # transformers 5.23 utils/versions.py require_version
    (
        "version-conflict",
        ImportError(
            "tokenizers>=0.22.0,<=0.23.0 is required for a normal functioning of this module, but found tokenizers==0.13.3.\n"
            "Try: `pip install transformers -U`"
        ),
    ),
    # https://github.com/Dao-AILab/flash-attention/issues/919
    (
        "binary-mismatch",
        ImportError(
            "/env/lib/python3.11/site-packages/flash_attn_2_cuda.cpython-311-x86_64-linux-gnu.so: undefined symbol: "
            "_ZN3c104cuda9SetDeviceEi"
        ),
    ),
    ("binary-mismatch", ImportError("libcudart.so.12: cannot open shared object file: No such file or directory")),
    # https://github.com/pytorch/vision/issues/8131
    ("torchvision-mismatch", RuntimeError("operator torchvision::nms does not exist")),
    # accelerate's message in transformers 4.52 modeling_utils.py
    (
        "missing-accelerate",
        ValueError(
            "Using a `device_map`, `tp_plan`, `torch.device` context manager or setting `torch.set_default_device(device)` "
            "requires `accelerate`. You can install it with `pip install accelerate`"
        ),
    ),
    ("missing-package", ModuleNotFoundError("No module named 'bitsandbytes'")),
    # torch 2.13 c10/cuda/CUDACachingAllocator.cpp, CUDAException.cpp, CUDAFunctions.cpp; aten/src/ATen/cuda/Exceptions.h
    ("cuda-out-of-memory", torch.OutOfMemoryError(OUT_OF_MEMORY)),
    ("device-out-of-memory", RuntimeError(OUT_OF_MEMORY)),
    (
        "device-out-of-memory",
        RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported"),
    ),
    ("device-side-assert", ACCELERATOR_ERROR(ASSERT)),
    ("device-side-assert", RuntimeError(ASSERT)),
    (
        "cuda-illegal-access",
        ACCELERATOR_ERROR("CUDA error: an illegal memory access was encountered\nCUDA kernel"),
    ),
    (
        "cuda-no-kernel",
        RuntimeError("CUDA error: no kernel image is available for execution on the device\nCUDA kernel"),
    ),
    ("cuda-handle", RuntimeError("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`")),
    ("cuda-no-gpu", RuntimeError("No CUDA GPUs are available")),
    (
        "cuda-no-gpu",
        RuntimeError(
            "Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU and installed a driver from "
            "http://www.nvidia.com/Download/index.aspx"
        ),
    ),
    (
        "cuda-fork",
        RuntimeError(
            "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the 'spawn' start "
            "method"
        ),
    ),
    (
        "device-mismatch",
        RuntimeError("Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"),
    ),
    # https://github.com/Dao-AILab/flash-attention csrc/flash_attn/flash_api.cpp
    ("flash-dtype", RuntimeError("FlashAttention only support fp16 and bf16 data type")),
    ("flash-dtype", RuntimeError("FlashAttention only supports Ampere GPUs or newer.")),
    # torch 2.2 on the CPU
    ("not-implemented-for-dtype", RuntimeError("\"addmm_impl_cpu_\" not implemented for 'Half'")),
]


def classified(error):
    return classify(Failure.of(error, "tests/test_it.py::test_it", "call"))


@pytest.mark.parametrize(("rule", "error"), RECORDED, ids=lambda value: value if isinstance(value, str) else "")
def test_recorded_text_is_classified(rule, error):
    finding = classified(error)

    assert finding is not None
    assert finding.rule == rule
    assert all((finding.what, finding.fix, finding.then))


def test_rules_have_names_of_their_own_and_known_buckets():
    names = [rule.name for rule in (*RULES, *LOG_RULES)]

    assert sorted(set(names)) == sorted(names)
    runtime = {
        f"runtime/{kind}"
        for kind in ("cuda", "range", "dtype", "shape", "device", "memory", "autograd", "module", "ranks")
    }
    expected = runtime | {"download/cache", "install/version", "silent correctness", "auto-class"}

    assert {rule.bucket for rule in (*RULES, *LOG_RULES)} == expected


def test_bucket_of_cuda_holds_what_cuda_says_alone():
    cuda = {rule.name for rule in RULES if rule.bucket == "runtime/cuda"}
    said = [str(error) for name, error in RECORDED if name in cuda]

    assert len(said) >= 9
    assert all(re.search("CUDA|CUBLAS|CUDNN|NVIDIA", message) for message in said)


@pytest.mark.parametrize("operator", ["", "addmm: "], ids=["torch 2.13", "torch 2.15"])
def test_widths_that_do_not_fit_are_read_from_each_torchs_words(operator):
    rule = next(rule for rule in RULES if rule.name == "features-do-not-fit")

    read = re.search(rule.text, f"{operator}mat1 and mat2 shapes cannot be multiplied (2x64 and 65x3)")

    assert (read["given"], read["wanted"]) == ("64", "65")


def test_rules_say_all_that_a_report_says():
    for rule in RULES:
        assert rule.raised, rule.name
        assert all((rule.what, rule.fix, rule.then, rule.source)), rule.name
        assert not rule.facts or rule.facts in READERS, rule.name
        assert re.compile(rule.text), rule.name


def test_every_template_before_the_last_waits_for_a_name():
    for rule in RULES:
        for template in (*rule.what[:-1], *rule.fix[:-1], *rule.then[:-1]):
            assert set(re.findall(r"{(\w+)}", template)) - {"rerun", "nodeid"}, (rule.name, template)


@pytest.mark.parametrize(
    "piece", ["a", "torch", "'", "No such file or directory: ", "requires ", "`", "-1-of-1", "\n", "FlashAttention "]
)
def test_texts_are_searched_in_time_whatever_the_message(piece):
    message = piece * (8000 // len(piece))
    start = time.process_time()

    for rule in (*RULES, *LOG_RULES):
        re.search(rule.text, message)

    assert time.process_time() - start < 2


def test_no_rule_suggests_to_load_an_untrusted_pickle():
    everything = " ".join(str(rule) for rule in RULES)

    assert "weights_only=False" not in everything


def test_rule_matches_only_the_exception_types_that_it_names():
    assert classified(torch.OutOfMemoryError(OUT_OF_MEMORY)).rule == "cuda-out-of-memory"
    assert classified(ValueError(OUT_OF_MEMORY)) is None


def test_out_of_memory_says_what_was_asked_for():
    finding = classified(torch.OutOfMemoryError(OUT_OF_MEMORY))

    assert finding.what == "the GPU ran out of memory: 2.00 GiB more were asked for."


def test_pickle_that_torch_does_not_trust_is_not_called_corrupt():
    error = pickle.UnpicklingError(
        "Weights only load failed. In PyTorch 2.6, we changed the default value of the `weights_only` argument\n"
        "WeightsUnpickler error: Unsupported global: GLOBAL mypackage.Config was not an allowed global by default."
    )

    finding = classified(error)

    assert finding.bucket == "install/version"
    assert "this file holds mypackage.Config" in finding.what
