"""Rules of the buckets ``runtime/...`` about devices, memory and what indexes a table; ``runtime/cuda`` is CUDA's alone."""

from __future__ import annotations

from pytest_tfdebug.triage.rule import CUDA, DEVICE, MEMORY, RANGE, Rule

_TORCH = ("torch",)
_CUDA_ERRORS = ("AcceleratorError", "RuntimeError")
_ON_CPU = "{rerun} --tf-device=cpu    # the same failure with a Python traceback"
_SYNC = "{rerun} --tf-sync-cuda    # the traceback then ends at the operation that failed"
_OUT_OF_MEMORY = ("the device ran out of memory: {asked} more were asked for.", "the device ran out of memory.")
_ASK_FOR_LESS = ("halve the batch: {half}", "ask for less: {batch} is {shape}", "halve the batch or its length")
_RANGE_FIX = (
    "keep {labels} below {limit} (-100 is ignored), or load with num_labels (vocab_size) of the largest label + 1",
    "keep {ids} between 0 and {last}; after adding tokens: model.resize_token_embeddings(len(tokenizer))",
    "keep {indices} between 0 and {last}",
)

RUNTIME_RULES = (
    Rule(
        CUDA,
        "cuda-out-of-memory",
        ("OutOfMemoryError",),
        r"",
        ("the GPU ran out of memory: {asked} more were asked for.", "the GPU ran out of memory."),
        (
            "halve the batch: {half} (in training per_device_train_batch_size, with gradient_accumulation_steps to make up)",
            "shorten the sequence: {batch} is {shape}; or load the model in a smaller dtype (dtype=torch.bfloat16)",
            "halve the batch (in training per_device_train_batch_size, with gradient_accumulation_steps to make up), or its length",
        ),
        (
            "nvidia-smi    # does another process hold the memory? else print(torch.cuda.memory_summary()) before the call",
        ),
        "c10/cuda/CUDACachingAllocator.cpp of torch",
        facts="memory",
    ),
    Rule(
        CUDA,
        "device-out-of-memory",
        ("RuntimeError",),
        r"^CUDA out of memory\. Tried to allocate|^CUDA error: out of memory|CUBLAS_STATUS_ALLOC_FAILED",
        _OUT_OF_MEMORY,
        _ASK_FOR_LESS,
        ("print(torch.cuda.memory_summary()) before the call",),
        "c10/cuda/CUDACachingAllocator.cpp of torch",
        facts="memory",
    ),
    Rule(
        MEMORY,
        "mps-out-of-memory",
        ("RuntimeError",),
        r"^MPS backend out of memory",
        _OUT_OF_MEMORY,
        _ASK_FOR_LESS,
        ("print(torch.mps.driver_allocated_memory()) before the call",),
        "aten/src/ATen/mps/MPSAllocator.mm of torch",
        facts="memory",
    ),
    Rule(
        MEMORY,
        "cpu-out-of-memory",
        ("RuntimeError",),
        r"DefaultCPUAllocator: (?:can't allocate memory|not enough memory)",
        ("the machine has no {asked} for one more tensor.", "the machine ran out of memory."),
        (
            "look at the shapes in: {code}    # then halve the batch: {half}",
            "look at the shapes in: {code}",
            "halve the batch or its length",
        ),
        ("free -g",),
        "c10/core/impl/alloc_cpu.cpp of torch",
        facts="memory",
    ),
    Rule(
        CUDA,
        "device-side-assert",
        _CUDA_ERRORS,
        r"^CUDA error: device-side assert triggered|Assertion `.{0,200}` failed.{0,40}device-side",
        (
            "a kernel's assertion failed, and every later CUDA call of this process fails too: {range}.",
            "a kernel's assertion failed, most often an id or label out of range; every later CUDA call of this process fails too.",
        ),
        (*_RANGE_FIX, "check that ids are below vocab_size and labels below num_labels"),
        (_ON_CPU,),
        "c10/cuda/CUDAException.cpp of torch",
        facts="ranges",
    ),
    Rule(
        RANGE,
        "id-out-of-range",
        ("IndexError",),
        r"^index out of range in self$",
        ("{range}.", "an id is outside the embedding (on a GPU: device-side assert triggered)."),
        (*_RANGE_FIX, "keep ids between 0 and the embedding's rows - 1"),
        (
            "print({ids}.min(), {ids}.max(), model.config.vocab_size, len(tokenizer))",
            "print({indices}.min(), {indices}.max(), model.config)",
            "print(input_ids.min(), input_ids.max(), model.config.vocab_size)",
        ),
        "torch.nn.functional.embedding on the CPU",
        libraries=_TORCH,
        facts="ranges",
    ),
    Rule(
        RANGE,
        "label-out-of-range",
        ("IndexError",),
        r"^Target -?\d+ is out of bounds\.",
        ("{range}.", "a label is outside the classes (on a GPU: device-side assert triggered)."),
        (*_RANGE_FIX, "set num_labels to the largest label + 1"),
        ("print({labels}.unique(), model.config.num_labels)", "print(labels.unique(), model.config.num_labels)"),
        "torch.nn.functional.cross_entropy on the CPU",
        libraries=_TORCH,
        facts="ranges",
    ),
    Rule(
        CUDA,
        "cuda-illegal-access",
        _CUDA_ERRORS,
        r"^CUDA error: an illegal memory access was encountered|^CUDA error: unspecified launch failure|"
        r"^CUDA error: misaligned address|^Triton Error \[CUDA\]: an illegal memory access",
        ("a kernel read or wrote outside its memory; the traceback shows a later call.",),
        ('attn_implementation="eager", to leave custom kernels out',),
        (_SYNC,),
        "c10/cuda/CUDAException.cpp of torch",
    ),
    Rule(
        CUDA,
        "cuda-no-kernel",
        _CUDA_ERRORS,
        r"^CUDA error: no kernel image is available for execution on the device",
        ("this build of torch, or of an extension, has no kernels for this GPU.",),
        ("install a torch build that lists the GPU's architecture: https://pytorch.org/get-started/locally/",),
        ('python -c "import torch; print(torch.cuda.get_arch_list(), torch.cuda.get_device_capability())"',),
        "c10/cuda/CUDAException.cpp of torch",
    ),
    Rule(
        CUDA,
        "cuda-handle",
        _CUDA_ERRORS,
        r"CUBLAS_STATUS_(?:NOT_INITIALIZED|EXECUTION_FAILED|INVALID_VALUE)|CUDNN_STATUS_(?:NOT_INITIALIZED|EXECUTION_FAILED|INTERNAL_ERROR)",
        ("a CUDA library failed; an earlier failed kernel, an id out of range or full memory shows like this.",),
        (*_RANGE_FIX, "check ids and labels against the vocabulary and the label count, then the free memory"),
        (_SYNC,),
        "aten/src/ATen/cuda/Exceptions.h of torch",
        facts="ranges",
    ),
    Rule(
        CUDA,
        "cuda-fork",
        ("RuntimeError",),
        r"^Cannot re-initialize CUDA in forked subprocess",
        ("CUDA had started before this process was forked.",),
        ('torch.multiprocessing.set_start_method("spawn"), or num_workers=0 in the DataLoader',),
        ("find what touches CUDA at import: CUDA_VISIBLE_DEVICES= {rerun}",),
        "torch.cuda._lazy_init",
    ),
    Rule(
        CUDA,
        "cuda-not-compiled",
        ("AssertionError",),
        r"^Torch not compiled with CUDA enabled$",
        ("this torch was built without CUDA.",),
        (
            'device = "cuda" if torch.cuda.is_available() else "cpu"    # for: {code}',
            'device = "cuda" if torch.cuda.is_available() else "cpu"',
        ),
        ("python -m pytest_tfdebug.env    # torch +cpu, or a CUDA build without a GPU?",),
        "torch.cuda._lazy_init",
        libraries=_TORCH,
    ),
    Rule(
        CUDA,
        "cuda-no-gpu",
        (*_CUDA_ERRORS, "AssertionError"),
        r"^Found no NVIDIA driver on your system|^No CUDA GPUs are available|^The NVIDIA driver on your system is too old|"
        r"^CUDA driver version is insufficient|^CUDA error: (?:no CUDA-capable device|invalid device ordinal|forward compatibility)|"
        r"^CUDA unknown error - this may be due to an incorrectly set up environment",
        ("CUDA was asked for, and no usable GPU of that number and driver is visible.",),
        ('device = "cuda" if torch.cuda.is_available() else "cpu"',),
        ("nvidia-smi; echo $CUDA_VISIBLE_DEVICES; python -m pytest_tfdebug.env",),
        "torch.cuda._lazy_init; c10/cuda/CUDAFunctions.cpp of torch",
    ),
    Rule(
        CUDA,
        "cuda-checkpoint-on-cpu",
        ("RuntimeError",),
        r"^Attempting to deserialize object on (?:a |CUDA )?[Cc]?(?:UDA )?device",
        ("the file was saved from a GPU, and there is none here.",),
        (
            'torch.load(PATH, map_location="cpu", weights_only=True)    # for: {code}',
            'torch.load(PATH, map_location="cpu")',
        ),
        ('python -c "import torch; print(torch.cuda.is_available(), torch.cuda.device_count())"',),
        "torch.serialization._validate_device",
        libraries=_TORCH,
    ),
    Rule(
        DEVICE,
        "device-mismatch",
        ("RuntimeError",),
        r"^Expected all tensors to be on the same device, but (?P<devices>[^!(]+)|"
        r"^Input type \((?P<given>torch\.[\w.]+)\) and (?:weight|bias) type \((?P<weight>torch\.[\w.]+)\) should be the same",
        ("the model and its inputs are on different devices: {devices}.", "inputs are {given}, weights {weight}."),
        (
            "move the inputs before: {code}    # inputs = inputs.to(model.device)",
            "inputs = inputs.to(model.device, model.dtype)",
        ),
        ("print({{name: p.device for name, p in model.named_parameters()}})",),
        "torch's structured kernels: TensorIterator and common_device_check_failure",
        libraries=_TORCH,
    ),
    Rule(
        DEVICE,
        "meta-device",
        ("NotImplementedError", "RuntimeError"),
        r"^Cannot copy out of meta tensor; no data!|^Tensor on device meta is not on the expected device|"
        r"^Tensor\.item\(\) cannot be called on meta tensors|^Tensor on device \S+ is not on the expected device meta",
        ("a parameter or input is on the meta device: it has a shape and no values.",),
        ("model.to_empty(device=...) and then load_state_dict, or from_pretrained without device_map",),
        ("print([name for name, p in model.named_parameters() if p.is_meta])",),
        "torch.nn.Module.to; aten/src/ATen/native/TensorConversions.cpp",
        libraries=_TORCH,
    ),
)
