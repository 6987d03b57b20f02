import contextlib
import warnings

import pytest
import torch
from torch import nn

import pytest_tfdebug
from pytest_tfdebug import TFDebugError, Trace, record, trace


class Block(nn.Module):
    def __init__(self, size=4):
        super().__init__()
        self.inner = nn.Linear(size, size)
        self.act = nn.ReLU()

    def forward(self, x):
        return self.act(self.inner(x)) + x


class Stack(nn.Module):
    def __init__(self, depth=3):
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(depth))
        self.norm = nn.LayerNorm(4)

    def forward(self, x, scale=1.0):
        for layer in self.layers:
            x = layer(x)
        return {"hidden": self.norm(x) * scale, "count": len(self.layers)}


class Calls(nn.Module):
    """A module whose forward is a function given to it."""

    def __init__(self, function, **children):
        super().__init__()
        self.function = function
        for name, child in children.items():
            setattr(self, name, child)

    def forward(self, *args, **kwargs):
        return self.function(self, *args, **kwargs)


X = torch.arange(8.0).view(2, 4) / 8


def hooks_of(model):
    return [
        len(module._forward_hooks) + len(module._forward_pre_hooks) + len(module._forward_hooks_always_called)
        for module in model.modules()
    ]


def test_calls_come_in_order_with_their_tree_and_depth():
    recorded = trace(Stack(depth=2), X)

    assert [(call.path, call.depth) for call in recorded] == [
        ("Stack", 0),
        ("layers.0", 1),
        ("layers.0.inner", 2),
        ("layers.0.act", 2),
        ("layers.1", 1),
        ("layers.1.inner", 2),
        ("layers.1.act", 2),
        ("norm", 1),
    ]
    assert [call.parent for call in recorded] == [None, 0, 1, 1, 0, 4, 4, 0]
    assert len(recorded) == 8


def test_inputs_and_outputs_are_those_of_the_forward():
    model = Stack()

    recorded = trace(model, X, scale=torch.tensor(2.0))

    assert [record.leaf for record in recorded["Stack"].inputs] == ["[0]", "['scale']"]
    assert [record.leaf for record in recorded["Stack"].outputs] == ["['hidden']"]
    assert torch.equal(recorded["Stack"].outputs[0].tensor, model(X, 2.0)["hidden"])
    assert torch.equal(recorded["layers.0"].outputs[0].tensor, recorded["layers.1"].inputs[0].tensor)


def test_module_called_several_times_has_a_call_for_each():
    model = Calls(lambda self, x: self.lin(self.lin(self.lin(x))), lin=nn.Linear(4, 4))

    recorded = trace(model, X)

    assert [call.name for call in recorded] == ["Calls", "lin", "lin#1", "lin#2"]
    assert torch.equal(recorded["lin"].outputs[0].tensor, recorded["lin#1"].inputs[0].tensor)


def test_shared_module_is_known_by_every_path():
    lin = nn.Linear(4, 4)
    recorded = trace(Calls(lambda self, x: self.second(self.first(x)), first=lin, second=lin), X)

    assert [call.name for call in recorded] == ["Calls", "first", "first#1"]
    assert recorded.aliases == {"first": ("second",)}
    assert recorded["second#1"] is recorded["first#1"]


@pytest.mark.parametrize("name", ["nowhere", "first#7", "first#x", "first#"])
def test_unknown_call_is_a_key_error_that_names_it(name):
    recorded = trace(Calls(lambda self, x: self.first(x), first=nn.Identity()), X)

    if name == "first#":
        assert recorded[name] is recorded["first"]
    else:
        with pytest.raises(KeyError, match=f"'{name}': no such call among the 2 of this trace"):
            recorded[name]


def test_in_place_operations_do_not_rewrite_what_was_recorded():
    def forward(self, x):
        hidden = self.lin(x)
        hidden.add_(1)
        hidden.data.mul_(2)
        return self.act(hidden)

    model = Calls(forward, lin=nn.Linear(4, 4), act=nn.ReLU(inplace=True))
    recorded = trace(model, X.clone())

    expected = model.lin(X)
    assert torch.equal(recorded["lin"].outputs[0].tensor, expected)
    assert torch.equal(recorded["act"].inputs[0].tensor, (expected + 1) * 2)
    assert torch.equal(recorded["act"].outputs[0].tensor, ((expected + 1) * 2).relu())


def test_forward_that_raises_passes_its_exception_on_and_leaves_no_hook():
    error = ValueError("the model's own")

    def forward(self, x):
        self.lin(x)
        raise error

    model = Calls(forward, lin=nn.Linear(4, 4))

    with pytest.raises(ValueError, match="the model's own") as caught, record(model) as recorded:
        model(X)
    assert caught.value is error
    assert caught.value.__context__ is None
    assert hooks_of(model) == [0, 0]
    assert [(call.name, call.error) for call in recorded] == [("Calls", "ValueError"), ("lin", None)]
    assert str(recorded).splitlines()[0] == "Calls (Calls) raised ValueError"
    assert recorded["Calls"].outputs is None


def test_trace_leaves_no_hook_when_the_forward_raises():
    def forward(self, x):
        return self.lin(x).nothing

    model = Calls(forward, lin=nn.Linear(4, 4))

    with pytest.raises(AttributeError, match="nothing"):
        trace(model, X)
    assert hooks_of(model) == [0, 0]


def test_exception_that_the_parent_catches_is_the_child_s_alone():
    def fail(self, x):
        raise KeyError("x")

    def forward(self, x):
        try:
            self.bad(x)
        except KeyError:
            self.good(x)
        return self.good(x)

    recorded = trace(Calls(forward, bad=Calls(fail), good=nn.Identity()), X)

    assert [(call.name, call.error, call.parent) for call in recorded] == [
        ("Calls", None, None),
        ("bad", "KeyError", 0),
        ("good", None, 0),
        ("good#1", None, 0),
    ]
    assert all(call.outputs is not None for call in recorded if call.path != "bad")


def test_module_that_returns_none_while_an_exception_is_handled_has_returned():
    def forward(self, x):
        try:
            {}["x"]
        except KeyError:
            self.quiet(x)
        return x

    recorded = trace(Calls(forward, quiet=Calls(lambda self, x: None)), X)

    assert recorded["quiet"].outputs == ()
    assert recorded["quiet"].error is None


def test_interrupt_that_the_parent_catches_does_not_move_the_calls_after_it():
    class Stop(BaseException):
        pass

    def stop(self, x):
        raise Stop

    def forward(self, x):
        with contextlib.suppress(Stop):
            self.bad(x)
        return self.good(x)

    recorded = trace(Calls(forward, bad=Calls(stop), good=nn.Identity()), X)

    assert recorded["Calls"].outputs is not None
    assert recorded["bad"].outputs is None


@pytest.mark.parametrize("result", [None, "text", 3, []])
def test_outputs_without_tensors_have_no_leaves(result):
    recorded = trace(Calls(lambda self, x: result), X)

    assert recorded["Calls"].outputs == ()


def test_generator_reaches_the_caller_unconsumed():
    model = Calls(lambda self, x: (self.lin(x) for _ in range(2)), lin=nn.Linear(4, 4))

    with record(model) as recorded:
        results = list(model(X))

    assert len(results) == 2
    assert [call.name for call in recorded] == ["Calls", "lin", "lin#1"]
    assert [call.parent for call in recorded] == [None, None, None]


def test_training_mode_leaves_random_numbers_buffers_and_mode_as_they_were():
    model = nn.Sequential(nn.BatchNorm1d(4), nn.Dropout(0.5), nn.BatchNorm1d(4)).train()
    model[2].eval()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    random_state = torch.get_rng_state()

    first, second = trace(model, X), trace(model, X)

    assert torch.equal(torch.get_rng_state(), random_state)
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert [module.training for module in model.modules()] == [True, True, True, False]
    assert torch.equal(first["1"].outputs[0].tensor, second["1"].outputs[0].tensor)


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("way", ["in place", "data", "new data", "rebound", "added", "mode"])
def test_whatever_a_forward_does_to_its_buffers_is_undone(way, inference):
    def forward(self, x):
        if way == "in place":
            self.seen.add_(1)
        elif way == "data":
            self.seen.data.add_(1)
        elif way == "new data":
            self.seen.data = torch.zeros(7)
        elif way == "rebound":
            self.seen = self.seen + 1
        elif way == "added":
            self.later = x
        else:
            self.train()
        return x

    with torch.inference_mode(inference and way != "new data"):
        model = Calls(forward).eval()
        model.register_buffer("seen", torch.zeros(2))
        model.register_buffer("later", None)
        seen = model.seen
        trace(model, X)

        assert model.seen is seen
        assert seen.tolist() == [0.0, 0.0]
        assert model.later is None
        assert not model.training


def test_gradients_are_off_inside_and_as_before_outside():
    seen = []
    model = Calls(lambda self, x: seen.append(torch.is_grad_enabled()) or x)

    trace(model, X)

    assert seen == [False]
    assert torch.is_grad_enabled()


def test_lazy_modules_are_left_as_they_are_until_the_model_was_called():
    model = nn.Sequential(nn.LazyLinear(3), nn.LazyBatchNorm1d())

    with pytest.raises(TFDebugError) as caught:
        trace(model, X)

    assert str(caught.value) == (
        "Sequential has lazy modules: 0.weight has no shape yet.\nCall the model once with its inputs, then check it."
    )
    assert type(model[0]) is nn.LazyLinear
    model(X)
    assert trace(model, X)["1"].outputs[0].shape == (2, 3)


def test_compiled_model_shows_its_inputs_and_outputs_and_says_so():
    model = torch.compile(Block(), backend="eager")

    recorded = trace(model, X)

    assert [(call.path, call.class_name) for call in recorded] == [("Block", "Block")]
    (note,) = recorded.notes
    assert note == (
        "The model is compiled: only its own inputs and outputs can be seen. "
        "Trace the model that was given to torch.compile to see its modules."
    )
    assert str(recorded).splitlines()[-1] == f"Note: {recorded.notes[0]}"


def test_compiled_modules_are_named_and_the_others_recorded():
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(12)))
    model[1].compile(backend="eager")
    model[3] = torch.compile(Block(), backend="eager")

    recorded = trace(model, X)

    assert [call.path for call in recorded] == ["Sequential", *(str(number) for number in range(12))]
    assert recorded.unrecorded == ("3.inner", "3.act")
    assert recorded.notes == ("Compiled modules cannot be looked into: 1, 3.",)


@pytest.mark.as_run("torchscript", works="Left out inside a model, with a note.", limits="Refused as the root.")
def test_torchscript_modules_are_refused_as_roots_and_named_inside_a_model():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scripted = torch.jit.trace(nn.Linear(4, 4), X)

    recorded = trace(nn.Sequential(scripted, nn.ReLU()), X)

    assert [call.path for call in recorded] == ["Sequential", "1"]
    assert recorded.notes == ("Compiled modules cannot be looked into: 0.",)
    with pytest.raises(TFDebugError, match=r"is a TorchScript module: it takes no hooks and nothing can be seen.\nTra"):
        trace(scripted, X)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(3),
        torch.tensor([True, False]),
        torch.empty(0, 4),
        torch.ones(2, 3).t(),
        torch.ones(1, 3).expand(5, 3),
        torch.tensor(1.5),
        torch.ones(2).to(torch.float8_e4m3fn),
        torch.tensor([1 + 2j]).conj(),
    ],
    ids=["integers", "booleans", "empty", "transposed", "expanded", "scalar", "float8", "complex"],
)
def test_tensors_of_every_kind_are_recorded_described_and_stored(tensor, tmp_path):
    recorded = trace(nn.Identity(), tensor)
    recorded.save(tmp_path / "trace.safetensors")
    loaded = Trace.load(tmp_path / "trace.safetensors")

    assert pytest_tfdebug.compare(loaded, recorded).ok
    kept = loaded["Identity"].outputs[0]
    assert (kept.shape, kept.dtype) == (tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))
    assert kept.tensor.tolist() == tensor.tolist() if kept.dtype != "float8_e4m3fn" else True
    assert str(loaded) == str(recorded)
    assert len(recorded.to_dataframe()) == 2


def test_vmap_inside_a_forward_leaves_shapes_where_there_are_no_values():
    model = Calls(lambda self, x: torch.vmap(self.lin)(x), lin=nn.Linear(4, 4))

    recorded = trace(model, X)

    assert recorded["lin"].outputs[0].tensor is None
    assert recorded["lin"].outputs[0].shape == (4,)
    assert recorded["Calls"].outputs[0].tensor is not None
    assert str(recorded)


def test_tied_weights_and_an_encoder_decoder_are_one_tree():
    class EncoderDecoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.shared = nn.Embedding(5, 4)
            self.encoder = Calls(lambda self, ids: self.embed(ids), embed=self.shared)
            self.decoder = Calls(lambda self, ids, memory: self.embed(ids) + memory, embed=self.shared)
            self.head = nn.Linear(4, 5, bias=False)
            self.head.weight = self.shared.weight

        def forward(self, ids, decoder_ids):
            return self.head(self.decoder(decoder_ids, memory=self.encoder(ids)))

    recorded = trace(EncoderDecoder(), torch.tensor([[1, 2]]), decoder_ids=torch.tensor([[3, 4]]))

    assert [call.name for call in recorded] == ["EncoderDecoder", "encoder", "shared", "decoder", "shared#1", "head"]
    assert recorded["decoder.embed#1"].parent == recorded["decoder"].index
    assert [record.leaf for record in recorded["decoder"].inputs] == ["[0]", "['memory']"]


def test_modules_are_picked_by_globs_and_the_root_always():
    model = Stack(depth=2)

    assert [call.path for call in trace(model, X, include="layers.*.inner")] == [
        "Stack",
        "layers.0.inner",
        "layers.1.inner",
    ]
    assert [call.path for call in trace(model, X, include=["layers.**", "norm"], exclude="**.inner")] == [
        "Stack",
        "layers.0",
        "layers.0.act",
        "layers.1",
        "layers.1.act",
        "norm",
    ]


def test_modules_are_picked_by_level():
    model = Stack(depth=2)

    assert [call.path for call in trace(model, X, level="layers")] == ["Stack", "layers.0", "layers.1"]
    assert [call.path for call in trace(model, X, level="leaves")][1:3] == ["layers.0.inner", "layers.0.act"]


def test_glob_that_matches_nothing_is_an_error_with_the_nearest_path():
    with pytest.raises(TFDebugError) as caught:
        trace(Stack(), X, include="layer.0")
    assert str(caught.value) == (
        "No module matches 'layer.0' (* is one part of a module path, ** any number of parts). Nearest path: 'layers.0'."
    )


def test_unknown_level_is_an_error_with_the_valid_ones():
    with pytest.raises(TFDebugError, match=r"^level='deep' is not one of all, leaves, layers.$"):
        trace(Stack(), X, level="deep")


def test_what_is_no_module_is_refused():
    with pytest.raises(
        TFDebugError,
        match=r"^trace needs a torch.nn.Module and got the function hooks_of\.\nIf it returns the model, call it\. ",
    ):
        trace(hooks_of, X)


def test_option_that_is_a_parameter_of_the_model_is_not_guessed_at():
    class Leveled(nn.Module):
        def forward(self, x, level=0):
            return x + level

    with pytest.raises(
        TFDebugError, match="level= is an option of trace, and a parameter of Leveled's forward"
    ) as error:
        trace(Leveled(), X, level=3)
    assert "pytest_tfdebug.record(model)" in str(error.value)
    with record(model := Leveled()) as recorded:
        model(X, level=3)
    assert torch.equal(recorded["Leveled"].outputs[0].tensor, X + 3)
    assert trace(Leveled(), X).calls


def test_argument_whose_text_cannot_be_made_does_not_end_the_forward():
    class Shy:
        def __repr__(self):
            raise RuntimeError("not me")

    recorded = trace(Calls(lambda self, x, shy: x), X, Shy())

    assert recorded["Calls"].skeleton["args"] == [{"leaf": 0}, "<Shy object>"]


def test_hooks_of_the_user_are_seen_and_kept():
    model = Block()
    handle = model.inner.register_forward_hook(lambda module, args, output: output * 0)

    recorded = trace(model, X)

    assert recorded["inner"].outputs[0].tensor.abs().max() == 0
    assert handle.id in model.inner._forward_hooks


def test_hooks_that_a_forward_puts_into_its_modules_do_not_stay():
    class Hooking(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.is_hooked = nn.Linear(2, 2), False

        def forward(self, x):
            if not self.is_hooked:
                self.inner.register_forward_hook(lambda _module, _inputs, output: output + 1)
                self.is_hooked = True
            return self.inner(x)

    model, x = Hooking(), torch.ones(1, 2)

    first, second = (pytest_tfdebug.trace(model, x).calls[0].outputs[0].tensor for _ in range(2))

    assert torch.equal(first, second)
    assert (len(model.inner._forward_hooks), model.is_hooked) == (0, False)


def test_unknown_path_is_told_with_those_that_may_be_meant():
    model = nn.Sequential(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), nn.Linear(2, 2))
    recorded = trace(model, torch.ones(1, 2))

    with pytest.raises(KeyError, match=r"'00': no such call among the 5 of this trace. Did you mean '0"):
        recorded["00"]


def test_end_of_a_path_suggests_the_whole():
    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = nn.Module()
            self.model.layers = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])

        def forward(self, x):
            return self.model.layers[1](self.model.layers[0](x))

    with pytest.raises(KeyError, match=r"'layers\.1': .*Did you mean 'model\.layers\.1'\?"):
        trace(Outer(), torch.ones(1, 2))["layers.1"]


def test_list_in_itself_is_recorded_once(tmp_path):
    class Model(nn.Linear):
        def forward(self, held):
            held = [super().forward(held[0])]
            held.append(held)
            return held

    given = [torch.ones(4)]
    given.append(given)
    recorded = trace(Model(4, 4), given)
    recorded.save(tmp_path / "it.safetensors")

    assert [record.leaf for record in recorded.calls[0].inputs] == ["[0][0]"]
    assert [record.leaf for record in Trace.load(tmp_path / "it.safetensors").calls[0].outputs] == ["[0]"]


def test_modules_in_modules_beyond_the_limit_of_python_are_told():
    model = nn.Linear(2, 2)
    for _ in range(900):
        model = nn.Sequential(model)

    with pytest.raises(TFDebugError, match=r"Allow more: sys\.setrecursionlimit"):
        trace(model, torch.ones(2))


def test_whole_numbers_beyond_int64_are_compared():
    one, other = (torch.tensor([number, 1], dtype=torch.uint64) for number in (2**63 + 5, 2**63 + 7))

    report = pytest_tfdebug.compare(trace(nn.Identity(), one), trace(nn.Identity(), other))

    assert "Greatest absolute difference: 2 " in str(report)
