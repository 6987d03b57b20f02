"""The watch outside pytest: what it raises, when, what it leaves behind, and what it cannot see."""

import threading
from dataclasses import fields
from inspect import signature

import pytest
import torch
from torch import nn

from pytest_tfdebug import (
    ActivationOverflowError,
    DebugActivationOverflow,
    TFDebugError,
    overflow_guard,
)
from pytest_tfdebug.overflow.guard import detect_overflow
from pytest_tfdebug.overflow.settings import OverflowSettings
from pytest_tfdebug.report.overflow import place


class Quotient(nn.Module):
    def forward(self, x):
        return x / x


def network():
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))


def dividing():
    return nn.Sequential(nn.Identity(), Quotient())


def hooks_of(model):
    return sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules())


def feed(model, batches, done):
    """Run a model over batches and note those that came through."""
    for number, batch in enumerate(batches):
        model(batch)
        done.append(number)


ONES, ZEROS = torch.ones(2, 4), torch.zeros(2, 4)


def test_guard_raises_at_the_end_of_the_forward_in_which_it_happened():
    model, reached = dividing(), []

    with pytest.raises(AssertionError, match="1: Quotient: output has nans"), overflow_guard(model):
        feed(model, (ONES, ZEROS, ONES), reached)

    assert reached == [0]


def test_fault_that_the_block_handles_is_not_raised_again():
    model = dividing()

    with overflow_guard(model) as guard:
        with pytest.raises(ActivationOverflowError, match=r"\[0\] 1: Quotient"):
            model(ZEROS)
        model(ONES)
        with pytest.raises(ActivationOverflowError, match=r"\[2\] 1: Quotient"):
            model(ZEROS)

    assert guard.forwards == 3
    assert guard.fault.frame.forward == 2


def test_guard_in_which_nothing_ran_fails():
    with pytest.raises(ActivationOverflowError) as caught, overflow_guard(network()):
        pass

    assert str(caught.value) == (
        "overflow_guard checked nothing: no module ran.\nRun a forward of the guarded model inside the block."
    )


def test_guard_that_ignores_every_module_checked_nothing():
    told = "overflow_guard checked nothing: no floating-point tensor with values was seen outside ignore=."
    model = dividing()

    with pytest.raises(ActivationOverflowError, match=told), overflow_guard(model, ignore=("**",)):
        model(ZEROS)


def test_guard_is_for_one_block():
    model = network()
    guard = overflow_guard(model)
    with guard:
        model(ONES)

    with pytest.raises(TFDebugError) as caught, guard:
        pass

    assert str(caught.value) == "A guard watches one block.\nCall overflow_guard(model, ...) again for another."
    assert hooks_of(model) == 0


@pytest.mark.parametrize("x", [ONES, ZEROS])
def test_hooks_are_gone_whatever_happened(x):
    model = dividing()

    try:
        with overflow_guard(model, gradients=True):
            assert hooks_of(model) == 6
            model(x)
    except ActivationOverflowError:
        pass

    assert hooks_of(model) == 0


def test_output_is_the_models_own():
    model = network()
    expected = model(ONES)

    with overflow_guard(model, dtype="float16"):
        actual = model(ONES)

    assert torch.equal(actual, expected)


def test_signature_names_every_argument():
    names = list(signature(overflow_guard).parameters)

    assert names == ["model", *(item.name for item in fields(OverflowSettings))]
    with pytest.raises(TFDebugError, match=r"^DebugActivationOverflow has no argument headrom=2.0; it takes frames, "):
        DebugActivationOverflow(network(), headrom=2.0)


@pytest.mark.parametrize(
    ("argument", "value", "wanted"),
    [
        ("frames", 0, "a number of lines, 1 or more"),
        ("dtype", "int8", "None or one of float16, bfloat16, float32, float64, float8_e4m3fn, float8_e5m2"),
        ("headroom", -2.0, "None or a factor above 0, such as 2.0"),
        ("headroom", True, "None or a factor above 0, such as 2.0"),
        ("gradients", 1, "True or False"),
        ("ignore", [3], 'a glob of module paths or several, such as "lm_head" or ("**.router", "lm_head")'),
    ],
)
def test_value_that_an_argument_cannot_have_is_refused(argument, value, wanted):
    with pytest.raises(TFDebugError) as caught:
        overflow_guard(network(), **{argument: value})

    assert str(caught.value) == f"overflow_guard: {argument}={value!r} is not {wanted}."


def test_error_carries_the_fault_and_the_guard_keeps_it():
    with pytest.raises(ActivationOverflowError) as caught, overflow_guard(model := dividing()) as guard:
        model(ZEROS)

    assert guard.fault is caught.value.fault
    assert (guard.fault.owner, guard.fault.kind) == ("1", "module")


def test_error_of_too_little_headroom_carries_the_tightest_modules():
    with pytest.raises(ActivationOverflowError) as caught, overflow_guard(model := network(), dtype="float16") as guard:
        model(ONES * 1e6)

    assert caught.value.fault is None
    assert [tight.ratio for tight in caught.value.tightest] == [tight.ratio for tight in guard.tightest]
    assert caught.value.tightest[0].ratio < 1


def test_dtype_may_be_given_as_torch_names_it():
    model = network()
    with overflow_guard(model, dtype=torch.float16) as guard:
        model(ONES)

    assert guard.tightest[0].dtype == "float16"


def test_debug_activation_overflow_watches_until_it_is_removed():
    model = dividing()

    debug_overflow = DebugActivationOverflow(model, frames=2)
    with pytest.raises(AssertionError, match="< \\[0\\] 1: Quotient: output has nans\n\n\nlast 2 frames:"):
        model(ZEROS)
    debug_overflow.remove()
    debug_overflow.remove()

    assert model(ZEROS).isnan().all()
    assert hooks_of(model) == 0


@pytest.mark.parametrize("setting", [{"dtype": "float16"}, {"headroom": 2.0}])
def test_debug_activation_overflow_refuses_what_it_would_never_judge(setting):
    model = network()

    with pytest.raises(TFDebugError) as caught:
        DebugActivationOverflow(model, **setting)

    assert str(caught.value) == (
        "DebugActivationOverflow cannot check dtype and headroom: these need the end of a block.\n"
        "Use `with overflow_guard(model, ...):`."
    )
    assert hooks_of(model) == 0


def test_what_is_no_module_cannot_be_watched():
    with pytest.raises(TFDebugError, match=r"DebugActivationOverflow needs a torch.nn.Module and got str\."):
        DebugActivationOverflow("model")


def test_every_thread_is_watched_on_its_own():
    model, caught = dividing(), {}

    def work(name, x):
        try:
            for _ in range(20):
                model(x)
        except ActivationOverflowError as error:
            caught[name] = str(error)

    with overflow_guard(model):
        threads = [threading.Thread(target=work, args=item) for item in (("fine", ONES), ("bad", ZEROS))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert list(caught) == ["bad"]


def test_forwards_that_overlap_in_two_threads_are_both_watched():
    both = threading.Barrier(2)

    class Meets(nn.Module):
        def forward(self, x):
            both.wait(timeout=30)
            return x

    model = nn.Sequential(nn.Identity(), Meets(), nn.Identity())

    with overflow_guard(model) as guard:
        threads = [threading.Thread(target=model, args=(ONES,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert guard.forwards == 2


def test_data_parallel_is_refused_with_the_way_out():
    with pytest.raises(TFDebugError) as caught:
        overflow_guard(nn.DataParallel(network()))

    assert "cannot watch torch.nn.DataParallel" in str(caught.value)
    assert str(caught.value).splitlines()[1] == (
        "Use torch.nn.parallel.DistributedDataParallel, or watch the model without the wrapper."
    )


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_tensors_without_values_or_reductions_are_skipped_and_counted():
    class Odd(nn.Module):
        def forward(self, x):
            eighth = x.to(torch.float8_e4m3fn)
            quantised = torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)
            return x, eighth, quantised, x.to_sparse(), torch.ones(3, device="meta")

    with overflow_guard(nn.Sequential(Odd())) as guard:
        guard._hooks.recorder.model(ONES)

    assert guard.skipped == {"float8_e4m3fn": 2, "meta": 2, "quantized": 2, "torch.sparse_coo": 2}


def test_model_on_the_meta_device_has_nothing_to_check():
    model = network().to("meta")

    with pytest.raises(ActivationOverflowError) as caught, overflow_guard(model):
        model(torch.ones(2, 4, device="meta"))

    assert str(caught.value).splitlines() == [
        "overflow_guard checked nothing: no floating-point tensor with values was seen.",
        "Run a forward of the guarded model inside the block.",
        "Tensors that could not be checked: 12 meta.",
    ]


def test_compiled_model_shows_its_own_inputs_and_outputs_and_says_so():
    compiled = torch.compile(dividing(), backend="eager", fullgraph=True)

    with pytest.raises(ActivationOverflowError) as caught, overflow_guard(compiled):
        compiled(ZEROS)

    assert place(caught.value.fault.frame) == "< [0] Sequential: Sequential: output"
    assert "Note: The model is compiled: only its own inputs and outputs can be seen." in str(caught.value)


@pytest.mark.skipif(torch.__version__ < "2.7", reason="torch 2.6 refuses it in words of its own")
def test_model_compiled_in_one_graph_under_watch_is_refused_with_the_reason():
    model = network()
    compiled = torch.compile(model, backend="eager", fullgraph=True)

    with overflow_guard(model) as guard:
        with pytest.raises(Exception, match="pytest-tfdebug is watching the modules of this model") as caught:
            compiled(ONES)
        model(ONES)

    assert "Watch the model uncompiled, or compile it without fullgraph=True." in str(caught.value)
    assert guard.forwards == 1


def test_model_compiled_in_place_says_that_only_its_own_tensors_show():
    model = dividing()
    model.compile(backend="eager", fullgraph=True)

    with pytest.raises(ActivationOverflowError) as caught, overflow_guard(model):
        model(ZEROS)

    assert place(caught.value.fault.frame) == "< [0] Sequential: Sequential: output"
    assert "Note: The model is compiled: only its own inputs and outputs can be seen." in str(caught.value)


def test_nothing_but_one_forward_is_kept_alive():
    """The guard holds numbers; the tensors of the forward go as the forward lets them go."""
    import weakref

    alive = []

    class Counting(nn.Module):
        def forward(self, x):
            x = x + 1
            kept.append(weakref.ref(x))
            alive.append(sum(ref() is not None for ref in kept))
            return x

    kept = []
    model = nn.Sequential(*(Counting() for _ in range(8)))

    with torch.no_grad(), overflow_guard(model):
        model(ONES)

    assert max(alive) <= 2
    assert all(ref() is None for ref in kept)


def test_detect_overflow_prints_the_range_and_says_whether_all_is_finite(capsys):
    assert not detect_overflow(torch.tensor([0.5, -6.0]), "after layer_norm")
    assert detect_overflow(torch.tensor([[1.0, float("inf")]]), "after DenseReluDense")

    assert capsys.readouterr().out.splitlines() == [
        "abs_min= 5.00e-01 abs_max= 6.00e+00 after layer_norm",
        "abs_min= 1.00e+00 abs_max=      inf after DenseReluDense",
        "after DenseReluDense has infs: 1 / 2 elements (50.0%), first at index (0, 1)",
    ]


@pytest.mark.parametrize(
    "tensor",
    [
        torch.tensor([[0.0, float("nan")]]).to(torch.float8_e4m3fn),
        torch.tensor([[0.0, float("nan")]]).to(torch.float8_e5m2),
        torch.tensor([[0.0, float("nan")]]).to_sparse(),
    ],
    ids=["float8_e4m3fn", "float8_e5m2", "sparse"],
)
def test_detect_overflow_looks_at_float8_and_sparse_tensors_too(tensor, capsys):
    assert detect_overflow(tensor, "after quantisation")
    assert capsys.readouterr().out.splitlines() == [
        "abs_min= 0.00e+00 abs_max=      nan after quantisation",
        "after quantisation has nans: 1 / 2 elements (50.0%), first at index (0, 1)",
    ]


def test_detect_overflow_refuses_what_is_no_tensor():
    with pytest.raises(TFDebugError, match=r"^detect_overflow needs a tensor and got tuple\.$"):
        detect_overflow((torch.ones(2),), "after layer_norm")
