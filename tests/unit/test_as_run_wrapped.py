"""Models in what people wrap them in: the paths, and so the goldens, are those of the bare model."""

import copy

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel
from transformers import LlamaConfig, LlamaForCausalLM

import pytest_tfdebug
from pytest_tfdebug import ActivationOverflowError, compare, overflow_guard, trace
from pytest_tfdebug.goldens.weights import fingerprint

IDS = torch.arange(1, 9)[None]


def llama():
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, vocab_size=32, head_dim=8
    )
    return LlamaForCausalLM(config).eval()


class PeftModel(nn.Module):
    """The structure of peft's, which tests/libraries has itself: a tuner that calls ``forward``, as some do."""

    def __init__(self, model):
        super().__init__()
        self.base_model = BaseTuner(model)

    def forward(self, *args, **kwargs):
        return self.base_model(*args, **kwargs)


class BaseTuner(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, *args, **kwargs):
        return self.model.forward(*args, **kwargs)


@pytest.fixture(scope="module")
def process_group(tmp_path_factory):
    store = torch.distributed.FileStore(str(tmp_path_factory.mktemp("group") / "store"), 1)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def distributed(model):
    return nn.parallel.DistributedDataParallel(model)


def checkpointed(model):
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

    model.model.layers[1] = checkpoint_wrapper(model.model.layers[1])
    return model


def sharded(model):
    import warnings

    from torch.distributed.fsdp import FullyShardedDataParallel

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.model.layers[0] = FullyShardedDataParallel(model.model.layers[0], device_id=torch.device("cpu"))
        return FullyShardedDataParallel(model, device_id=torch.device("cpu"))


WRAPPERS = [distributed, AveragedModel, checkpointed, PeftModel, lambda model: distributed(PeftModel(model))]


@pytest.mark.as_run(
    "wrapped",
    works="Everything is named as in the bare model.",
    limits="Tested on one process.",
)
@pytest.mark.parametrize("wrap", WRAPPERS, ids=["ddp", "averaged", "checkpoint", "peft", "nested"])
@pytest.mark.usefixtures("process_group")
def test_wrapped_model_has_the_paths_and_weights_of_the_bare_one(wrap):
    bare, wrapped = llama(), wrap(llama())

    expected, actual = trace(bare, IDS), trace(wrapped, IDS)

    assert [call.path for call in actual] == [call.path for call in expected]
    assert actual.model_class == "LlamaForCausalLM"
    assert actual.modules == expected.modules
    weights = fingerprint(wrapped)
    assert {name: print_ for name, print_ in weights.items() if name != "n_averaged"} == fingerprint(bare)
    for report in (compare(expected, actual), compare(actual, expected)):
        assert report.ok
        assert report.coverage.compared == report.coverage.expected == len(expected)


@pytest.mark.as_run("wrapped", limits="Weights of FSDP1 are not tested.")
@pytest.mark.usefixtures("process_group")
def test_model_sharded_with_fsdp_has_the_paths_of_the_bare_one():
    expected, actual = trace(llama(), IDS), trace(sharded(llama()), IDS)

    assert [call.path for call in actual] == [call.path for call in expected]
    assert compare(expected, actual).ok


@pytest.mark.as_run("wrapped")
@pytest.mark.parametrize("wrap", [*WRAPPERS[:4], sharded], ids=["ddp", "averaged", "checkpoint", "peft", "fsdp"])
@pytest.mark.usefixtures("process_group")
def test_bug_in_a_wrapped_model_has_its_path_in_the_bare_one(wrap):
    wrong = llama()
    wrong.model.layers[1].mlp.act_fn = nn.GELU()

    report = compare(trace(llama(), IDS), trace(wrap(wrong), IDS))

    assert report.culprit.path == "model.layers.1.mlp.act_fn"


def test_overflow_in_a_wrapped_model_has_its_path_in_the_bare_one():
    model = llama()
    model.model.layers[1].mlp.up_proj.weight.data[0] = float("inf")
    wrapped = PeftModel(model)

    with pytest.raises(ActivationOverflowError) as caught, overflow_guard(wrapped), torch.no_grad():
        wrapped(IDS)

    assert caught.value.fault.owner == "model.layers.1.mlp.up_proj"


def test_globs_are_over_the_paths_of_the_bare_model():
    recorded = trace(PeftModel(llama()), IDS, include="model.layers.0.mlp.*")

    assert [call.path for call in recorded][1:] == [
        f"model.layers.0.mlp.{name}" for name in ("gate_proj", "act_fn", "up_proj", "down_proj")
    ]


class Harness(nn.Module):
    """A class of the users' around a model, such as a trainer's, with a module of its own that is not called."""

    def __init__(self, model):
        super().__init__()
        self.net, self.loss = model, nn.CrossEntropyLoss()

    def forward(self, *args, **kwargs):
        return self.net(*args, **kwargs)


def doubly_held(model):
    return Harness(Harness(model))


@pytest.mark.as_run(
    "wrapped", works="A class of your own around a model is compared as the model without it, and keeps its paths."
)
@pytest.mark.parametrize("hold", [Harness, doubly_held])
def test_model_inside_any_class_is_compared_as_much_as_without_it(hold):
    bare, held = trace(llama(), IDS), trace(hold(llama()), IDS)

    for report in (compare(bare, held), compare(held, bare)):
        assert report.ok
        assert report.coverage.compared == len(bare)


@pytest.mark.as_run("wrapped")
@pytest.mark.parametrize(("hold", "inside"), [(Harness, "net"), (doubly_held, "net.net")])
def test_bug_inside_any_class_is_named_where_it_is(hold, inside):
    wrong = llama()
    wrong.model.layers[1].mlp.act_fn = nn.GELU()

    report = compare(trace(llama(), IDS), trace(hold(wrong), IDS))

    assert (report.culprit.path, report.culprit.certain) == (f"{inside}.model.layers.1.mlp.act_fn", True)


def test_module_of_the_users_called_module_is_no_wrapper():
    class Holder(nn.Module):
        def __init__(self):
            super().__init__()
            self.module = nn.Linear(2, 2)

        def forward(self, x):
            return self.module(x)

    recorded = trace(Holder(), torch.ones(1, 2))

    assert [call.path for call in recorded] == ["Holder", "module"]


def test_golden_file_of_the_bare_model_holds_the_wrapped_one(tmp_path):
    trace(llama(), IDS).save(tmp_path / "bare.safetensors")
    wrapped = PeftModel(copy.deepcopy(llama()))

    assert compare(pytest_tfdebug.Trace.load(tmp_path / "bare.safetensors"), trace(wrapped, IDS)).ok
