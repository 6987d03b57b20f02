"""Rules of ``runtime/dtype`` and ``runtime/shape``: dtypes that do not meet, values and tensors that do not fit."""

from __future__ import annotations

from functools import partial

from pytest_tfdebug.triage.rule import DTYPE, SHAPE, Rule

_torch_rule = partial(Rule, libraries=("torch",))

NUMERIC_RULES = (
    _torch_rule(
        DTYPE,
        "dtype-mismatch",
        ("RuntimeError",),
        r"must have the same dtype|to have the same dtype, but got|mixed dtype|expected scalar type \w+ but found \w+|"
        r"^Input type \((?!torch\.)[\w:]+\) and (?:weight|bias) type \([\w:]+\) should be the same",
        (
            "{told}.",
            "two tensors of one operation have different dtypes: the model and its inputs, or two parts of the model.",
        ),
        (
            "{mend}",
            "cast the input before: {code}    # inputs = inputs.to(model.dtype)",
            "inputs = inputs.to(model.dtype)",
        ),
        ("print({{name: p.dtype for name, p in model.named_parameters()}})",),
        "aten/src/ATen/native of torch: linear, matmul, scaled_dot_product_attention, layer_norm",
        facts="dtypes",
    ),
    _torch_rule(
        SHAPE,
        "features-do-not-fit",
        ("RuntimeError",),
        r"^(?:\w+: )?mat1 and mat2 shapes cannot be multiplied \(\d+x(?P<given>\d+) and (?P<wanted>\d+)x\d+\)",
        ("{takes}.",),
        (
            "build {layer} with in_features={given}, or give it {wanted} features; called by: {code}",
            "build {layer} with in_features={given}, or give it {wanted} features",
        ),
        ("print({{name: tuple(p.shape) for name, p in model.named_parameters()}})",),
        "aten/src/ATen/native/LinearAlgebra.cpp of torch",
        facts="widths",
    ),
    _torch_rule(
        DTYPE,
        "float-ids",
        ("RuntimeError",),
        r"Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, Int; but got (?P<got>[\w.]+) instead",
        ("the ids are {got}; an embedding takes integers.",),
        (
            "input_ids = input_ids.long()    # for: {code}",
            "input_ids = input_ids.long(), or pass embeddings as inputs_embeds",
        ),
        ("print(input_ids.dtype, input_ids.shape)",),
        "torch.nn.functional.embedding",
    ),
    _torch_rule(
        DTYPE,
        "not-implemented-for-dtype",
        ("RuntimeError", "NotImplementedError"),
        r"^\"(?P<kernel>\w+)\" not implemented for '(?P<dtype>Half|BFloat16|Float8\w*)'",
        ("{kernel} has no kernel for {dtype} on this device.",),
        ("model = model.float()    # or run it on a GPU",),
        ("print(model.dtype, model.device)",),
        "AT_DISPATCH of torch",
    ),
    _torch_rule(
        DTYPE,
        "value-overflows-dtype",
        ("RuntimeError",),
        r"value cannot be converted to type (?P<dtype>\S+) without overflow",
        ("a constant does not fit {dtype}; a mask filled with -1e9 is the usual one.",),
        ("fill with torch.finfo(x.dtype).min instead, in: {code}", "torch.finfo(x.dtype).min instead of the constant"),
        ("print(x.dtype, torch.finfo(x.dtype))",),
        "c10/util/TypeCast.h of torch",
    ),
    _torch_rule(
        DTYPE,
        "non-finite-probabilities",
        ("RuntimeError",),
        r"probability tensor contains either `inf`, `nan` or element < 0",
        ("the logits are inf or nan before sampling.",),
        ("load in a dtype with more range: dtype=torch.bfloat16 or torch.float32 instead of float16",),
        ("mark the test with @pytest.mark.overflow_free: it names the first module whose output is not finite",),
        "torch.multinomial",
    ),
    Rule(
        DTYPE,
        "flash-dtype",
        ("RuntimeError", "ValueError"),
        r"FlashAttention only supports? (?P<what>Ampere GPUs or newer|fp16(?:,)? and bf16 data type|fp16, bf16)",
        ("FlashAttention takes only {what}.",),
        ('dtype=torch.bfloat16, or attn_implementation="sdpa"',),
        ("print(model.dtype, torch.cuda.get_device_capability())",),
        "https://github.com/Dao-AILab/flash-attention/blob/main/csrc/flash_attn/flash_api.cpp",
    ),
    _torch_rule(
        DTYPE,
        "float16-numpy",
        ("TypeError",),
        r"^Got unsupported ScalarType BFloat16$",
        ("numpy has no bfloat16.",),
        ("tensor.float().numpy()    # for: {code}", "tensor.float().numpy()"),
        ("print(tensor.dtype)",),
        "torch.Tensor.numpy",
    ),
)
