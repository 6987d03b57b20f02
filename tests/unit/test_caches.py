"""What modules write into the caches that they are given is recorded, and explains what differs in them at the end."""

import pytest
import torch
from torch import nn
from transformers import DynamicCache

from golden_files import opened, rewritten
from pytest_tfdebug import GoldenError, Trace, compare, record, trace
from pytest_tfdebug.parity.compare import explained
from pytest_tfdebug.parity.comparison import conclude, ended
from pytest_tfdebug.parity.pair.pairing import RecordedModules
from pytest_tfdebug.parity.tensors.comparator import Comparator
from pytest_tfdebug.parity.tensors.tolerance import tolerances
from pytest_tfdebug.tracing.record.leaves import CacheWatch, caches_among
from pytest_tfdebug.tracing.record.recorder import Recorder

X = torch.linspace(-1, 1, 8).view(1, 2, 4)


class OwnCache:
    """Written like those of transformers, and of no class of theirs."""

    def __init__(self, count=2):
        self.layers = [{"keys": None} for _ in range(count)]
        self.lengths = torch.zeros(count)
        self.seen = 0


class Attention(nn.Module):
    """Writes into its cache between two of its children, and once more after them."""

    def __init__(self, place, *, factor=1.0, is_late=False):
        super().__init__()
        torch.manual_seed(place)
        self.place, self.factor, self.is_late = place, factor, is_late
        self.k, self.o = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x, cache=None):
        keys = self.k(x)
        if cache is not None and not self.is_late:
            cache.layers[self.place]["keys"] = keys * self.factor
        x = self.o(keys)
        if cache is not None:
            cache.lengths[self.place] += keys.shape[1]
            if self.is_late:
                cache.layers[self.place]["keys"] = keys * self.factor
        return x


class Model(nn.Module):
    def __init__(self, factor=1.0, *, hands_on=True, returns=True, is_late=False, makes=OwnCache):
        super().__init__()
        self.first, self.second = Attention(0), Attention(1, factor=factor, is_late=is_late)
        self.hands_on, self.returns, self.makes = hands_on, returns, makes

    def forward(self, x, cache=None):
        cache = self.makes() if cache is None else cache
        x = self.first(x, cache)
        x = self.second(x, cache=cache if self.hands_on else None)
        return {"x": x, "cache": cache if self.returns else None}


def written(traced):
    return [
        (call.path, write.record.leaf, None if write.before is None else traced.calls[write.before].path)
        for call in traced
        for write in call.writes
    ]


def test_writes_are_told_with_the_child_that_is_called_next():
    assert written(trace(Model(), X)) == [
        ("first", "OwnCache.layers[0]['keys']", "first.o"),
        ("first", "OwnCache.lengths", None),
        ("second", "OwnCache.layers[1]['keys']", "second.o"),
        ("second", "OwnCache.lengths", None),
    ]


def test_what_a_write_left_is_kept_as_it_was():
    lengths = [
        write.record.tensor for call in trace(Model(), X) for write in call.writes if "lengths" in write.record.leaf
    ]

    assert [tensor.tolist() for tensor in lengths] == [[2, 0], [2, 2]]


def test_cache_that_the_model_was_given_is_watched_from_what_it_holds():
    cache = OwnCache()
    model = Model()
    with torch.no_grad(), record(model) as traced:
        model(X, cache)
        model(X, cache)

    assert len(written(traced)) == 8
    assert [write.record.tensor.tolist() for write in traced["second#1"].writes][1] == [4, 4]


def test_caller_that_writes_between_the_calls_of_its_children_wrote_it():
    class Writing(Model):
        def forward(self, x):
            cache = OwnCache()
            x = self.first(x, cache)
            cache.lengths = cache.lengths + 1
            return self.second(x, cache)

    assert ("Writing", "OwnCache.lengths", "second") in written(trace(Writing(), X))


def test_models_without_a_cache_have_no_writes():
    assert written(trace(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), X)) == []


def test_watch_tells_of_what_is_new_or_changed_since_the_last_look():
    cache, watch = DynamicCache(), CacheWatch()
    first = torch.ones(1, 1, 2, 3)
    looks = [watch.written([cache])]
    cache.update(first, first, 0)
    looks += [watch.written([cache]), watch.written([cache])]
    cache.layers[0].keys.mul_(2)
    looks += [watch.written([cache])]
    cache.update(first, first, 0)
    looks += [watch.written([cache])]

    own = [[leaf.path for leaf in look] for look in looks]
    both = ["DynamicCache.layers[0].keys", "DynamicCache.layers[0].values"]
    assert own == [[], both, [], both[:1], both]
    assert looks[-1][0].tensor is cache.layers[0].keys


def test_watch_takes_tensors_that_keep_no_count_of_their_writes():
    cache, watch = OwnCache(1), CacheWatch()
    with torch.inference_mode():
        cache.lengths = torch.zeros(1)
        assert watch.written([cache]) == []
        cache.lengths = torch.ones(1)
        assert [leaf.path for leaf in watch.written([cache])] == ["OwnCache.lengths"]


def test_cache_that_holds_itself_ends():
    cache = OwnCache(1)
    cache.layers.append(cache)

    assert CacheWatch().written([cache]) == []


def test_caches_are_found_among_positional_and_keyword_arguments():
    one, other = DynamicCache(), OwnCache()

    assert caches_among((X, one), {"cache": other, "mask": None}) == (one, other)


def test_writes_survive_a_file(tmp_path):
    traced = trace(Model(), X)
    traced.save(tmp_path / "t.safetensors")
    loaded = Trace.load(tmp_path / "t.safetensors")

    assert written(loaded) == written(traced)
    assert all(
        mine.record.tensor.equal(theirs.record.tensor)
        for one, other in zip(loaded, traced, strict=True)
        for mine, theirs in zip(one.writes, other.writes, strict=True)
    )


@pytest.mark.parametrize("writes", [{}, [[None]], [["0", []]], [[0, ["leaf", 99]]]])
def test_damaged_writes_are_a_damaged_file(tmp_path, writes):
    path = tmp_path / "t.safetensors"
    trace(Model(), X).save(path)
    document, tensors = opened(path)
    document["calls"][1]["writes"] = writes
    rewritten(path, document, tensors)

    with pytest.raises(GoldenError, match=r"damaged|names tensor 99"):
        Trace.load(path)


def test_what_a_call_that_was_left_out_has_written_its_caller_wrote():
    calls = trace(Model(), X).calls

    common = RecordedModules(["first", "second"], {}, ["second", "first.k", "first.o"]).common(calls)

    assert [(call.path, [write.before for write in call.writes]) for call in common] == [
        ("Model", [None, None]),
        ("first", [None, None]),
    ]
    assert all(call.writes for call in calls if call.path in ("first", "second"))


def diverging(port, model=None):
    report = compare(trace(model or Model(), X), trace(port, X))
    return report.culprit and (report.culprit.kind, report.culprit.path), report


def test_wrong_value_in_a_cache_is_blamed_on_its_writing_lines():
    blamed, report = diverging(Model(2.0))

    assert blamed == ("glue", "second")
    assert report.culprit.explanation == (
        "Attention has factor 2.0; the reference has 1.0. 14 tensors agree before it: the fault is in the lines of "
        "Attention's forward between its calls of 'second.k' and 'second.o'."
    )
    assert str(report.culprit.source) == "test_caches.py:42"
    text = str(report).splitlines()
    assert "  Tensor: OwnCache.layers[1]['keys'] as written by 'second', shape (1, 2, 4), float32" in text
    assert "  Mismatched elements: 8 / 8 (100.0%)" in text
    assert [(d.path, d.direction) for d in report.divergences] == [("second", "write"), ("Model", "output")]


def test_write_after_the_last_child_is_blamed_on_the_lines_after_it():
    report = diverging(Model(2.0, is_late=True), Model(is_late=True))[1]

    assert "forward after its call of 'second.o'." in report.culprit.explanation


def test_call_that_was_not_given_its_cache_is_blamed_on_its_caller():
    blamed, report = diverging(Model(hands_on=False))

    assert blamed == ("glue", "Model")
    assert report.culprit.explanation == (
        "Model has hands_on False; the reference has True. 14 tensors agree before it: the fault is in the lines of "
        "Model's forward between its calls of 'first' and 'second'. 'second' is given cache=None instead of an object."
    )
    assert str(report.culprit.source) == "test_caches.py:60"


def test_cache_not_returned_is_blamed_on_the_call_that_keeps_it():
    class Outer(nn.Module):
        def __init__(self, **kwargs):
            super().__init__()
            self.model = Model(**kwargs)

        def forward(self, x):
            return self.model(x)

    blamed, report = diverging(Outer(returns=False), Outer())

    assert blamed == ("glue", "model")
    assert "forward after its call of 'model.second'." in report.culprit.explanation


def test_module_without_children_that_writes_something_else_is_the_culprit():
    class Writer(nn.Module):
        def __init__(self, factor):
            super().__init__()
            self.factor = factor

        def forward(self, x, cache):
            cache.lengths = x.sum(-1) * self.factor
            return x

    class Around(nn.Module):
        def __init__(self, factor):
            super().__init__()
            self.writer = Writer(factor)

        def forward(self, x):
            cache = OwnCache()
            return self.writer(x, cache), cache

    blamed, report = diverging(Around(2), Around(1))

    assert blamed == ("module", "writer")
    assert report.culprit.explanation.startswith(
        "Writer has factor 2; the reference has 1. Its inputs agree and what it wrote into its cache does not, and it calls"
    )


def test_cache_of_another_layout_that_stays_inside_is_no_fault():
    class Flat(OwnCache):
        def __init__(self):
            super().__init__()
            self.layers = {place: {"keys": None} for place in range(2)}

    port = Model(makes=Flat, returns=False)

    assert diverging(port, Model(returns=False))[0] is None
    port.second.o.weight.data.mul_(2)
    assert diverging(port, Model(returns=False))[0] == ("weights", "second.o")


def test_port_without_a_cache_may_write_its_masks_in_another_way():
    class Masked(Attention):
        def forward(self, x, cache, mask):
            return super().forward(x, cache) * self.factor + mask.clamp(max=0)

    class Port(Masked):
        pass

    class Both(nn.Module):
        def __init__(self, kind, mask, factor=1.0):
            super().__init__()
            self.first, self.second, self.mask = kind(0), kind(1, factor=factor), mask

        def forward(self, x):
            cache, mask = OwnCache() if type(self.first) is Masked else None, torch.full((2, 4), self.mask)
            return self.second(self.first(x, cache, mask), cache, mask)

    assert diverging(Both(Port, 2.0), Both(Masked, 1.0))[0] is None
    assert diverging(Both(Port, 2.0, factor=3.0), Both(Masked, 1.0))[0] == ("glue", "second")


def test_wrong_value_in_a_cache_is_blamed_before_the_step_showing_it():
    class Step(nn.Module):
        def __init__(self, factor):
            super().__init__()
            self.model = Model(factor, returns=False)
            self.head = nn.Identity()

        def forward(self, x):
            cache = OwnCache()
            x = self.model(x, cache)["x"]
            return self.head(x + cache.layers[1]["keys"])

    blamed, _ = diverging(Step(2.0), Step(1.0))

    assert blamed == ("glue", "model.second")


@pytest.mark.parametrize("port", [Model(2.0), Model(hands_on=False), Model(returns=False), Model()])
def test_forward_compared_while_it_runs_is_judged_as_its_trace(port):
    expected, actual = trace(Model(), X), trace(port, X)
    names = [path for path, _ in port.named_modules() if path]
    comparator = Comparator(expected, None, tolerances(None, None, None), modules=names, aliases={})
    with torch.no_grad(), Recorder(port, comparator):
        port(X)

    found = ended(comparator)
    report = conclude(found.answered(explained(expected, actual, fails=found.fails)) if found.asks else found)
    assert str(report) == str(compare(expected, actual))
