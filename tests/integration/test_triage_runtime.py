"""Real failures of the buckets ``runtime/...``, on the CPU; after the fix that triage names, the call succeeds."""

import re

import pytest
import torch
from transformers import BertForSequenceClassification, LlamaForCausalLM


@pytest.fixture(scope="module")
def model(llama):
    return LlamaForCausalLM.from_pretrained(llama)


@pytest.fixture(scope="module")
def classifier(bert):
    return BertForSequenceClassification.from_pretrained(bert)


def test_id_out_of_range_gives_the_range_under_the_tests_name(triage_of, model):
    prompt = torch.tensor([[1, 99, 2], [3, 4, 40]])

    finding = triage_of(lambda: model(prompt))

    assert finding.rule == "id-out-of-range"
    assert finding.bucket == "runtime/range"
    assert finding.what == "prompt holds 1 to 99, the embedding's 32 rows take 0 to 31: 2 of 6 outside."
    assert finding.fix.startswith("keep prompt between 0 and 31")
    assert model(prompt.clamp(max=31)) is not None


def test_id_out_of_range_in_a_variable_of_the_test(triage_of, model):
    def fail():
        prompt = torch.tensor([[1, -3]])
        model(prompt)

    finding = triage_of(fail)

    assert finding.what == "prompt holds -3 to 1, the embedding's 32 rows take 0 to 31: 1 of 2 outside."
    assert finding.then == "print(prompt.min(), prompt.max(), model.config.vocab_size, len(tokenizer))"


def test_id_of_an_added_token_fits_after_resizing(triage_of, llama):
    model = LlamaForCausalLM.from_pretrained(llama)
    ids = torch.tensor([[32]])

    finding = triage_of(lambda: model(ids))

    assert "model.resize_token_embeddings(len(tokenizer))" in finding.fix
    model.resize_token_embeddings(33)
    assert model(ids) is not None


def test_token_type_out_of_range_is_not_answered_with_more_tokens(triage_of, classifier):
    ids, kinds = torch.tensor([[1, 2]]), torch.tensor([[0, 2]])

    finding = triage_of(lambda: classifier(ids, token_type_ids=kinds))

    assert finding.what == "kinds holds 0 to 2, the embedding's 2 rows take 0 to 1: 1 of 2 outside."
    assert finding.fix == "keep kinds between 0 and 1"
    assert finding.then == "print(kinds.min(), kinds.max(), model.config)"
    assert classifier(ids, token_type_ids=kinds.clamp(max=1)) is not None


def test_label_of_a_language_model_keeps_the_name_of_the_argument(triage_of, model):
    finding = triage_of(lambda: model(torch.tensor([[1, 2, 3]]), labels=torch.tensor([[1, 2, 99]])))

    assert finding.rule == "label-out-of-range"
    assert finding.fix.startswith("keep labels below 32 (-100 is ignored)")


def test_label_out_of_range_gives_the_classes(triage_of, classifier, bert):
    ids, labels = torch.tensor([[1, 2]]), torch.tensor([7])

    finding = triage_of(lambda: classifier(ids, labels=labels))

    assert finding.rule == "label-out-of-range"
    assert finding.what == "labels holds 7 to 7, the 2 classes take 0 to 1: 1 of 1 outside."
    assert (
        finding.fix
        == "keep labels below 2 (-100 is ignored), or load with num_labels (vocab_size) of the largest label + 1"
    )
    wider = BertForSequenceClassification.from_pretrained(bert, num_labels=8, ignore_mismatched_sizes=True)
    assert wider(ids, labels=labels).loss is not None


def test_ignored_labels_are_not_counted_as_outside(triage_of, model):
    ids = torch.tensor([[1, 2, 3, 4]])

    finding = triage_of(lambda: model(ids, labels=torch.tensor([[-100, -100, 64, 1]])))

    assert "1 to 64" in finding.what
    assert "1 of 2 outside" in finding.what


def _raise_as_torch(error):
    exec("raise error", {"error": error})  # noqa: S102 - from no file of a user's, like the C++ of torch


def test_cuda_without_cuda(triage_of):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")

    finding = triage_of(lambda: torch.zeros(1).cuda())

    if torch.version.cuda:  # the build for GPUs, on a machine without a driver
        assert finding.rule == "cuda-no-gpu"
        assert finding.what == "CUDA was asked for, and no usable GPU of that number and driver is visible."
    else:
        assert finding.rule == "cuda-not-compiled"
        assert finding.what == "this torch was built without CUDA."
    assert torch.zeros(1).to("cuda" if torch.cuda.is_available() else "cpu") is not None


def test_checkpoint_of_a_gpu_on_a_machine_without(triage_of, tmp_path, monkeypatch):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    monkeypatch.setattr(torch.serialization, "location_tag", lambda _storage: "cuda:0")
    torch.save(torch.zeros(2), tmp_path / "gpu.pt")

    finding = triage_of(lambda: torch.load(tmp_path / "gpu.pt"))

    assert finding.rule == "cuda-checkpoint-on-cpu"
    assert torch.load(tmp_path / "gpu.pt", map_location="cpu").tolist() == [0, 0]


def test_input_of_another_dtype(triage_of):
    layer, inputs = torch.nn.Linear(2, 2).half(), torch.zeros(1, 2)

    finding = triage_of(lambda: layer(inputs))

    assert finding.rule == "dtype-mismatch"
    assert "layer(inputs)" in finding.fix
    assert layer(inputs.to(layer.weight.dtype)) is not None


def test_input_of_another_dtype_for_a_convolution(triage_of):
    layer, inputs = torch.nn.Conv1d(2, 2, 1), torch.zeros(1, 2, 4).half()

    finding = triage_of(lambda: layer(inputs))

    assert finding.rule == "dtype-mismatch"
    assert layer(inputs.to(layer.weight.dtype)) is not None


def test_float32_head_in_a_half_model_is_named_and_cast(triage_of, llama):
    model = LlamaForCausalLM.from_pretrained(llama, dtype=torch.float16)
    model.lm_head = torch.nn.Linear(16, 32, bias=False)
    ids = torch.tensor([[1, 2, 3]])

    finding = triage_of(lambda: model(ids))

    assert finding.bucket == "runtime/dtype"
    assert finding.what == "lm_head (Linear) has float32 weights, and the rest of LlamaForCausalLM is float16."
    assert finding.fix.startswith("model.lm_head.to(torch.float16)")
    model.lm_head.to(torch.float16)
    assert model(ids) is not None


def test_tensor_that_a_model_was_given_in_another_dtype_is_cast(triage_of):
    model, pixels = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(2, 2)).half(), torch.zeros(1, 2)

    finding = triage_of(lambda: model(pixels))

    assert finding.what == "1 (Linear) has float16 weights, as Sequential has, and was given float32."
    assert re.fullmatch(
        r"cast what it is given to torch\.float16, in test_triage_runtime\.py:\d+: finding = .*model\(pixels\)\)",
        finding.fix,
    )
    assert model(pixels.to(torch.float16)) is not None


class Widened(torch.nn.Module):
    """A model that widens its own values and forgets to narrow them."""

    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)

    def forward(self, x):
        wide = self.first(x).float()
        return self.second(wide)


def test_line_is_named_that_gives_a_module_another_dtype(triage_of):
    model, x = Widened().half(), torch.zeros(1, 2).half()

    finding = triage_of(lambda: model(x))

    assert re.fullmatch(
        r"cast what it is given to torch\.float16, in test_triage_runtime\.py:\d+: return self\.second\(wide\)",
        finding.fix,
    )


def test_linear_layer_that_is_given_another_width_is_named(triage_of, llama):
    model = LlamaForCausalLM.from_pretrained(llama)
    model.model.layers[1].mlp.down_proj = torch.nn.Linear(33, 16)

    finding = triage_of(lambda: model(torch.tensor([[1, 2]])))

    assert finding.bucket == "runtime/shape"
    assert finding.what == "model.layers.1.mlp.down_proj (Linear) takes 33 features (in_features) and was given 32."
    assert finding.fix.startswith("build model.layers.1.mlp.down_proj (Linear) with in_features=32")


def test_kernel_that_a_dtype_lacks(triage_of):
    small = torch.zeros(2).to(torch.float8_e4m3fn)

    finding = triage_of(lambda: small + 1)

    assert finding.rule == "not-implemented-for-dtype"
    assert "has no kernel for Float8_e4m3fn on this device." in finding.what
    assert (small.float() + 1).tolist() == [1, 1]


def test_attention_of_mixed_dtypes(triage_of):
    query, key = torch.zeros(1, 1, 2, 2).half(), torch.zeros(1, 1, 2, 2)

    finding = triage_of(lambda: torch.nn.functional.scaled_dot_product_attention(query, key, key))

    assert finding.rule == "dtype-mismatch"
    assert torch.nn.functional.scaled_dot_product_attention(query.to(key.dtype), key, key) is not None


def test_ids_that_are_floats(triage_of, model):
    ids = torch.zeros(1, 2)

    finding = triage_of(lambda: model(ids))

    assert finding.rule == "float-ids"
    assert finding.what == "the ids are torch.FloatTensor; an embedding takes integers."
    assert model(ids.long()) is not None


def test_mask_value_that_float16_cannot_hold(triage_of):
    scores = torch.zeros(2).half()
    mask = torch.ones(2, dtype=torch.bool)

    finding = triage_of(lambda: scores.masked_fill(mask, -1e9))

    assert finding.rule == "value-overflows-dtype"
    assert "torch.finfo(x.dtype).min" in finding.fix
    assert scores.masked_fill(mask, torch.finfo(scores.dtype).min) is not None


def test_sampling_from_nan(triage_of, model, llama):
    broken = LlamaForCausalLM.from_pretrained(llama)
    broken.lm_head.weight.data.fill_(float("nan"))
    ids = torch.tensor([[1, 2]])

    finding = triage_of(lambda: broken.generate(ids, do_sample=True, max_new_tokens=1))

    assert finding.rule == "non-finite-probabilities"
    assert "overflow_free" in finding.then
    assert model.generate(ids, do_sample=True, max_new_tokens=1) is not None


def test_parameters_on_the_meta_device(triage_of):
    layer = torch.nn.Linear(2, 2, device="meta")

    finding = triage_of(lambda: layer.to("cpu"))

    assert finding.rule == "meta-device"
    assert layer.to_empty(device="cpu")(torch.zeros(1, 2)) is not None


def test_bfloat16_in_numpy(triage_of):
    tensor = torch.zeros(2, dtype=torch.bfloat16)

    finding = triage_of(tensor.numpy)

    assert finding.rule == "float16-numpy"
    assert tensor.float().numpy().tolist() == [0, 0]


def test_out_of_memory_says_how_much_was_asked_for(triage_of):
    finding = triage_of(lambda: torch.empty(2**48, dtype=torch.float32))

    assert finding.rule == "cpu-out-of-memory"
    assert finding.what == "the machine has no 1125899906842624 bytes for one more tensor."
