"""A Llama in plain NumPy, and dumps of it, held to a golden of transformers' without a map of names."""

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import numpy_llama
from models import DECODER, rope
from pytest_tfdebug import TFDebugError, Trace, compare, trace
from pytest_tfdebug.parity.arrays.pairing import BY_DTYPE
from pytest_tfdebug.tracing.file.stored_tensors import sampled

IDS = torch.arange(1, 9)[None] * 7 % 99


@pytest.fixture(autouse=True)
def _with_a_search(monkeypatch):
    monkeypatch.setattr("pytest_tfdebug.parity.proof.prove.SECONDS", 8.0)


@pytest.fixture(scope="module")
def reference():
    torch.manual_seed(0)
    config = LlamaConfig(**DECODER, tie_word_embeddings=False, rms_norm_eps=1e-5, **rope(10_000.0))
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
    return model


@pytest.fixture(scope="module")
def golden(reference, tmp_path_factory):
    path = tmp_path_factory.mktemp("goldens") / "llama.safetensors"
    sampled(trace(reference, input_ids=IDS, use_cache=False)).save(path)
    return Trace.load(path)


@pytest.fixture(scope="module")
def eager(reference):
    """Return a trace of the reference that adds a mask of float32."""
    model = LlamaForCausalLM(LlamaConfig(**{**reference.config.to_dict(), "attn_implementation": "eager"})).eval()
    model.load_state_dict(reference.state_dict())
    return trace(model, input_ids=IDS, use_cache=False)


@pytest.fixture(scope="module")
def computed(reference):
    weights = {name: held.numpy() for name, held in reference.state_dict().items()}

    def compute(arrays=numpy_llama.arrays, **options):
        return arrays(weights, IDS[0].numpy(), 8, 2, 1e-5, 10_000.0, **options)

    return compute


def texts(report, *strengths):
    return [it.lines.code for step in report.steps if step.strength in strengths for it in step.statements]


def test_port_in_numpy_is_quiet_without_any_names(golden, computed):
    report = compare(golden, computed())

    assert report.ok
    assert str(report) == (
        "Parity: 25 of 25 arrays are values of the reference, and nothing that its outputs need is missing.\n"
        "  25 of 25 arrays are values of the reference."
    )
    assert {array.how for array in report.arrays} == {"value", "joined"}


@pytest.mark.parametrize("bug", numpy_llama.BUGS)
def test_interval_of_a_bug_holds_the_reference_line(golden, computed, bug):
    report = compare(golden, computed(numpy_llama.with_bug(bug)))

    assert not report.ok
    assert any(numpy_llama.BUGS[bug][2] in text for text in texts(report, "statement", "before"))


def test_report_begins_with_the_lines_of_the_reference_and_the_label(golden, computed):
    report = compare(golden, computed(numpy_llama.with_bug("residual")))

    where = report.culprit.reference
    assert str(report).splitlines()[:4] == [
        f"{where} in model.layers.0 (LlamaDecoderLayer): 'layer0.after_attention' is the first array that differs",
        "  reference, does what no array shows:",
        f"    {where}",
        "      hidden_states = residual + hidden_states",
    ]
    assert (
        "'layer0.attended' is the last array before it that was found: mm of model.layers.0.self_attn.o_proj,"
        in str(report)
    )
    assert "Without partner: layer0.after_attention, layer0.mlp_in," in str(report)


@pytest.mark.parametrize(
    ("bug", "change", "line"),
    [
        ("epsilon", "with eps 0.001 instead of 1e-05 at modeling_llama.py:", "rsqrt(variance"),
        ("skipped", "left out at modeling_llama.py:", "residual + hidden_states"),
        (
            "norm",
            "model.layers.0.input_layernorm.weight instead of model.layers.0.post_",
            "self.weight * hidden_states",
        ),
        ("activation", "quick_gelu instead of model.layers.0.mlp.act_fn at", "silu"),
    ],
)
def test_live_reference_proves_the_change_that_gives_the_arrays(reference, computed, bug, change, line):
    report = compare(trace(reference, input_ids=IDS, use_cache=False), computed(numpy_llama.with_bug(bug)))

    assert report.culprit.proved.startswith("Proved: the reference gives every output of this with ")
    assert change in report.culprit.proved
    assert line in texts(report, "proved")[0]


def test_order_of_another_kind_is_in_the_interval_of_its_consumers(golden, computed):
    report = compare(golden, computed(numpy_llama.with_bug("heads")))

    assert report.first.label == "layer0.attended"
    assert "attn_output.reshape(*input_shape, -1)" in texts(report, "statement")[0]
    assert any("attn_output.transpose(1, 2)" in text for text in texts(report, "before"))


def test_logits_of_the_last_token_are_held_to_the_same_crop(golden, computed):
    report = compare(golden, computed(last_only=True))

    assert report.ok
    assert "Of output .logits only the last 1 of 8 along axis 1 was compared." in str(report)


@pytest.mark.nightly
def test_factor_is_looked_for_only_where_it_can_come_from(eager, computed):
    arrays = flat(computed(numpy_llama.with_bug("mask")))
    arrays["layer0.mixed"] = np.float32(1.1) * flat(computed())["layer0.mixed"]
    del arrays["layer0.probs"]

    report = compare(eager, arrays)

    shown = texts(report, "statement")
    assert report.factor == pytest.approx(1.1)
    assert any("self.v_proj(hidden_states)" in text for text in shown)
    assert any("softmax" in text for text in shown)
    assert not any("mask" in text for text in shown)


def test_what_only_moves_what_is_there_comes_before_the_interval(golden, computed):
    arrays = {}
    for label, array in flat(computed(numpy_llama.with_bug("turned"))).items():
        arrays[label] = array
        if label == "layer0.qkv":
            arrays["layer0.first_half"] = array[:, :64].reshape(8, 8, 8)[..., :4] * np.float32(1.05) + np.float32(0.1)

    report = compare(golden, arrays)

    assert report.first.label == "layer0.first_half"
    assert any("x1 = x[" in text for text in texts(report, "before"))
    assert not any("x1 = x[" in text for text in texts(report, "statement", "module"))


def test_crop_that_differs_is_named(golden, computed):
    arrays = computed(last_only=True)
    arrays["logits"] = arrays["logits"] * np.float32(1.001)

    report = compare(golden, arrays)

    assert not report.ok
    assert report.culprit.path == "lm_head"


def test_arrays_without_the_outputs_are_no_pass(golden, computed):
    arrays = computed()
    del arrays["logits"]

    report = compare(golden, arrays)

    assert not report.ok
    assert "no array shows what these lines compute" in str(report)
    assert "Outputs that were not compared by elements: .logits." in str(report)


def test_same_numbers_in_another_order_are_no_pass(golden, computed):
    arrays = computed()
    arrays["logits"] = arrays["logits"][::-1]

    assert not compare(golden, arrays).ok


def flat(arrays):
    return {
        f"{key}.{inner}" if inner else key: array
        for key, held in arrays.items()
        for inner, array in (held.items() if isinstance(held, dict) else [("", held)])
    }


def as_pairs(arrays, _folder):
    return iter(flat(arrays).items())


def as_npz(arrays, folder):
    np.savez(folder / "all.npz", **flat(arrays))
    return folder / "all.npz"


def as_safetensors(arrays, folder):
    from safetensors.numpy import save_file

    save_file({name: np.ascontiguousarray(array) for name, array in flat(arrays).items()}, folder / "all.safetensors")
    return str(folder / "all.safetensors")


def as_numbered_files(arrays, folder):
    for place, (name, array) in enumerate(flat(arrays).items()):
        np.save(folder / f"{place}-{name}.npy", array)
    return folder


@pytest.mark.parametrize("form", [as_pairs, as_npz, as_safetensors, as_numbered_files])
def test_arrays_come_in_every_form(golden, computed, tmp_path, form):
    assert compare(golden, form(computed(), tmp_path)).ok

    wrong = compare(golden, form(computed(numpy_llama.with_bug("residual")), tmp_path))
    assert wrong.culprit.path == "model.layers.0"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (3, "int holds no labelled arrays: give (label, array) pairs, a dict of arrays,"),
        ([np.ones(8)], "ndarray is no pair (label, array): give (label, array) pairs,"),
        ({"x": np.array(["a"])}, "'x' is a ndarray that neither numpy.asarray nor DLPack can read as numbers: "),
        ({}, "There is no array to compare: the runtime gave none."),
        ("nowhere.npz", "nowhere.npz holds no arrays: give one of .npz, .npy, .safetensors, .pt, or a directory of"),
    ],
)
def test_what_holds_no_arrays_is_refused(golden, given, told):
    with pytest.raises(TFDebugError) as caught:
        compare(golden, given)

    assert str(caught.value).startswith(told)


@pytest.mark.parametrize(("bug", "first"), [("residual", "layer0.after_attention"), ("theta", "layer0.q")])
@pytest.mark.parametrize("written", ["golden", pytest.param("eager", marks=pytest.mark.nightly)])
def test_mask_of_another_kind_is_not_taken_for_what_differs(request, computed, written, bug, first):
    arrays = computed(numpy_llama.with_bug(bug))
    mask = np.triu(np.full((8, 8), -1e9, dtype=np.float32), 1)

    report = compare(request.getfixturevalue(written), {"embed": arrays["embed"], "mask": mask, **arrays})

    assert report.first.label == first
    assert any(numpy_llama.BUGS[bug][2] in text for text in texts(report, "statement"))


def test_wrong_mask_is_in_the_interval_of_what_it_goes_into(eager, computed):
    report = compare(eager, computed(numpy_llama.with_bug("mask")))

    assert report.first.label == "layer0.probs"
    assert any("causal_mask = " in text for text in texts(report, "statement", "module"))


@pytest.mark.parametrize("number", [0.0, np.nan])
def test_output_of_one_number_is_no_pass_after_the_right_one(reference, computed, number):
    arrays = {**computed(), "returned": computed()["logits"] * np.float32(number)}

    report = compare(trace(reference, input_ids=IDS, use_cache=False), arrays)

    assert not report.ok
    assert "Output .logits: shape (1, 8, 99), float32" in str(report)
    assert "Proved" not in str(report)


@pytest.mark.parametrize(("shift", "first"), [(1.5, "layer0.after_attention"), (12.0, "layer0.attended")])
def test_rounded_array_is_not_the_first_where_a_later_one_differs(golden, computed, shift, first):
    buggy = flat(computed(numpy_llama.with_bug("residual")))
    arrays = {label: array.astype(np.float16) for label, array in buggy.items()}
    arrays["layer0.attended"] += np.float16(
        shift * BY_DTYPE["float16"] * np.sqrt(np.mean(buggy["layer0.attended"] ** 2))
    )

    report = compare(golden, arrays)

    assert report.first.label == first
