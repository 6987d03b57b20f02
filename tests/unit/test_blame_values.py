"""Which line of a port the values of two forwards blame, where the two share no name: one bug for each rule."""

import copy
import linecache

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - as everybody calls it
from torch import nn

from pytest_tfdebug import compare, fill, trace
from pytest_tfdebug.parity.proof import prove

WIDTH, HEADS = 16, 2


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        q, k, v = (part(x).unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in (self.query, self.key, self.value))
        weights = (q @ k.transpose(-2, -1) / 8**0.5).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))


class Feed(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 40), nn.Linear(40, WIDTH)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.attention = nn.LayerNorm(WIDTH), Attention()
        self.after, self.feed = nn.LayerNorm(WIDTH), Feed()

    def forward(self, x):
        x = x + self.attention(self.before(x))
        return x + self.feed(self.after(x))


class Reference(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.layers, self.norm = (
            nn.Embedding(32, WIDTH),
            nn.ModuleList([Layer(), Layer()]),
            nn.LayerNorm(WIDTH),
        )

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return {"last": self.norm(x)}


class Parallel(Layer):
    def forward(self, x):
        return self.attention(self.before(x)) + self.feed(self.after(x)) + x


class ParallelReference(Reference):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Parallel(), Parallel()])


class Mix(nn.Module):
    """What attends; it is given everything by its caller."""

    def forward(self, query, key, value):
        scores = query @ key.transpose(-2, -1)
        scores = scores / query.shape[-1] ** 0.5
        weights = scores.softmax(-1)
        return weights @ value


class Att(nn.Module):
    def __init__(self):
        super().__init__()
        self.wq, self.wk, self.wv = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.mix, self.o = Mix(), nn.Linear(WIDTH, WIDTH)

    def forward(self, h):
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in (self.wq(h), self.wk(h), self.wv(h)))
        mixed = self.mix(q, k, v)
        return self.o(mixed.transpose(1, 2).flatten(2))


class SwapsArguments(Att):
    def forward(self, h):
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in (self.wq(h), self.wk(h), self.wv(h)))
        mixed = self.mix(q, v, k)  # BUG
        return self.o(mixed.transpose(1, 2).flatten(2))


class Ffn(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1, self.w2 = nn.Linear(WIDTH, 40), nn.Linear(40, WIDTH)

    def forward(self, h):
        h = F.gelu(self.w1(h))
        return self.w2(h)


class ForgetsGelu(Ffn):
    def forward(self, h):
        h = self.w1(h)  # BUG: either line is where the step is missing
        return self.w2(h)  # BUG


class Block(nn.Module):
    def __init__(self, att=Att, ffn=Ffn):
        super().__init__()
        self.n1, self.att, self.n2, self.ffn = nn.LayerNorm(WIDTH), att(), nn.LayerNorm(WIDTH), ffn()

    def forward(self, h):
        h = h + self.att(self.n1(h))
        return h + self.ffn(self.n2(h))


class ForgetsResidual(Block):
    def forward(self, h):
        a = self.att(self.n1(h))
        return a + self.ffn(self.n2(a))  # BUG


class ForgetsFeed(Block):
    def forward(self, h):
        return h + self.att(self.n1(h))  # BUG


class Scales(Att):
    def forward(self, h):
        h = h * WIDTH**0.5  # BUG
        return super().forward(h)


class NormsOnceMore(Block):
    def forward(self, h):
        h = h + self.att(self.n1(h))
        normed = self.n1(self.n2(h))  # BUG
        return h + self.ffn(normed)


class ParallelBlock(Block):
    def forward(self, h):
        both = self.att(self.n1(h)) + h
        return self.ffn(self.n2(h)) + both


class Port(nn.Module):
    def __init__(self, block=Block, *, returns_all=False, **parts):
        super().__init__()
        self.tok, self.ln = nn.Embedding(32, WIDTH), nn.LayerNorm(WIDTH)
        self.blocks = nn.Sequential(Block(**({} if block is not ParallelBlock else parts)), block(**parts))
        if block is ParallelBlock:
            self.blocks[0] = ParallelBlock()
        self.returns_all = returns_all

    def forward(self, tokens):
        every = [self.tok(tokens)]
        for block in self.blocks:
            every.append(block(every[-1]))
        every[-1] = self.ln(every[-1])
        return every if self.returns_all else every[-1]


class Unnormed(Port):
    """A port with another bug at its end."""

    def forward(self, tokens):
        return self.blocks(self.tok(tokens))


def with_weights_of(reference, port):
    port.tok, port.ln = reference.embed, reference.norm
    for block, layer in zip(port.blocks, reference.layers, strict=True):
        block.n1, block.n2 = layer.before, layer.after
        block.ffn.w1, block.ffn.w2, block.att.o = layer.feed.up, layer.feed.down, layer.attention.out
        block.att.wq, block.att.wk = layer.attention.query, layer.attention.key
        block.att.wv = layer.attention.value
    return port


def report_of(reference, port, outputs=None):
    fill(reference, seed=0)
    ids = torch.arange(12).reshape(2, 6)
    return compare(trace(reference, ids), trace(with_weights_of(reference, port), ids), outputs=outputs)


def shown_of(culprit):
    lines = range(culprit.source.first, culprit.source.last + 1)
    return [linecache.getline(culprit.source.file, line) for line in lines]


@pytest.mark.parametrize("port", [Port(), Port(returns_all=True)], ids=["one output", "all outputs"])
def test_port_that_is_right_has_no_culprit(port):
    assert report_of(Reference(), port).culprit is None
    assert report_of(ParallelReference(), Port(ParallelBlock)).culprit is None


@pytest.mark.parametrize("returns_all", [False, True])
@pytest.mark.parametrize(
    ("parts", "path"),
    [
        ({"att": SwapsArguments}, "blocks.1.att"),
        ({"ffn": ForgetsGelu}, "blocks.1.ffn"),
        ({"block": ForgetsResidual}, "blocks.1"),
        ({"block": ForgetsFeed}, "blocks.1"),
    ],
)
def test_line_of_a_bug_is_named(parts, path, returns_all):
    culprit = report_of(Reference(), Port(**parts, returns_all=returns_all)).culprit

    assert culprit.path == path
    assert any("# BUG" in line for line in shown_of(culprit)), culprit


@pytest.mark.parametrize(("parts", "path"), [({"att": Scales}, "blocks.1.att"), ({"block": NormsOnceMore}, "blocks.1")])
def test_step_too_many_is_told_where_more_is_wrong_behind_it(parts, path):
    culprit = report_of(Reference(), Unnormed(**parts)).culprit

    assert culprit.path == path
    assert "# BUG" in "".join(shown_of(culprit))
    assert culprit.wrong == "does a step that the reference does not"


class ScalesInPlace(Block):
    def forward(self, h):
        return super().forward(h * 0.37)


@pytest.mark.parametrize("own", [{"scale": 0.37}, {"divisor": 1 / 0.37}, {"scale": 0.5}])
@pytest.mark.parametrize("first", [Block, ScalesInPlace])
def test_numbers_that_the_reference_alone_holds_are_told(own, first):
    reference, port = Reference(), Port(ForgetsFeed)
    port.blocks[0] = first()
    reference.layers[0].scale, reference.layers[0].drop_rate, reference.layers[0].count = 0.37, 0.1, 7
    vars(port).update(own)

    told = [note for note in report_of(reference, port).notes if note.startswith("No module")]

    assert told == (
        ["No module here holds the reference's scale 0.37."] if own == {"scale": 0.5} and first is Block else []
    )


def test_sum_in_another_order_is_not_blamed_for_a_bug_before_it(monkeypatch, one_thread):
    monkeypatch.setattr(prove, "SECONDS", 120.0)
    culprit = report_of(ParallelReference(), Port(ParallelBlock, ffn=ForgetsGelu)).culprit

    assert culprit.path == "blocks.1.ffn"
    assert "# BUG" in linecache.getline(culprit.source.file, culprit.source.first)


class Nothing(nn.Module):
    def forward(self, h):
        return h  # BUG


class HasNoOp(Ffn):
    def __init__(self):
        super().__init__()
        self.act = Nothing()

    def forward(self, h):
        return self.w2(self.act(self.w1(h)))


class Activated(Feed):
    def __init__(self):
        super().__init__()
        self.act = nn.GELU()

    def forward(self, x):
        return self.down(self.act(self.up(x)))


class ActivatedReference(Reference):
    def __init__(self):
        super().__init__()
        for layer in self.layers:
            layer.feed = Activated()


def test_caller_of_an_identity_module_is_named_with_the_references_step():
    culprit = report_of(ActivatedReference(), Port(ffn=HasNoOp)).culprit

    assert culprit.path == "blocks.1.ffn"
    assert "self.act(" in linecache.getline(culprit.source.file, culprit.source.first)
    assert "self.act(" in linecache.getline(culprit.reference.file, culprit.reference.first)


class Lengthens(Att):
    def forward(self, h):
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in (self.wq(h), self.wk(h), self.wv(h)))
        return self.o(self.mix(q, k, v).transpose(1, 2).reshape(-1, len(h), WIDTH))


def test_operands_that_broadcast_are_told_at_the_line_that_combines_them():
    reference, port = Reference(), Port(att=Lengthens)
    fill(reference, seed=0)
    ids = torch.arange(6).reshape(1, 6)

    culprit = compare(trace(reference, ids), trace(with_weights_of(reference, port), ids)).culprit

    assert culprit.path == "blocks.1"
    assert "h = h + self.att" in linecache.getline(culprit.source.file, culprit.source.first)


class Trunk(nn.Module):
    def __init__(self, blocks):
        super().__init__()
        self.blocks = blocks

    def forward(self, h):
        for block in self.blocks:
            h = block(h)
        return h


class WithTrunk(Port):
    """A port that returns pieces of the last states, and the states before the norm."""

    def __init__(self, *, norms=True, rest=slice(1, None), is_last=True):
        super().__init__()
        self.trunk, self.norms, self.rest, self.is_last = Trunk(self.blocks), norms, rest, is_last

    def forward(self, tokens):
        embedded = self.tok(tokens)
        raw = self.trunk(embedded)
        h = self.ln(raw) if self.norms else raw
        if not self.is_last:
            return embedded
        rest = h[:, self.rest]  # BUG where it is not all from 1 on
        return {"begin": h[:, 0], "rest": rest, "raw": raw}


PIECES = {"begin": "last[:, 0]", "rest": "last[:, 1:]"}


def test_pieces_of_a_whole_output_are_no_fault_unless_they_differ():
    assert report_of(Reference(), WithTrunk(), PIECES).culprit is None

    culprit = report_of(Reference(), WithTrunk(rest=slice(2, None))).culprit

    assert culprit.path == "WithTrunk"
    assert "# BUG" in linecache.getline(culprit.source.file, culprit.source.first)


def test_change_that_mends_the_pieces_of_an_output_is_proved(monkeypatch, one_thread):
    monkeypatch.setattr(prove, "SECONDS", 120.0)
    port = WithTrunk()
    port.trunk.blocks[1].ffn = ForgetsGelu()

    culprit = report_of(Reference(), port, PIECES).culprit

    assert "gelu" in culprit.proved


def test_pieces_that_overlap_are_not_taken_for_the_whole(monkeypatch, one_thread):
    monkeypatch.setattr(prove, "SECONDS", 5.0)
    port = WithTrunk(rest=slice(0, -1))
    port.trunk.blocks[1].ffn = ForgetsGelu()

    report = report_of(Reference(), port, PIECES)

    assert report.search != "proved"


def test_module_whose_parameters_are_not_used_is_where_a_step_is_missing():
    culprit = report_of(Reference(), WithTrunk(norms=False)).culprit

    assert culprit.path == "WithTrunk"
    assert "skips a step that the reference does" in culprit.explanation


def test_value_that_is_computed_and_not_returned_is_named():
    culprit = report_of(Reference(), WithTrunk(is_last=False)).culprit

    assert culprit.path == "WithTrunk"
    assert "uses the wrong operand here; the port computes the right one too" in culprit.explanation


class ReboundInput(Block):
    def forward(self, h):
        h = self.n1(h)
        h = h + self.att(h)  # BUG: the sum takes the normed input
        return h + self.ffn(self.n2(h))


def test_sum_of_the_normed_input_is_named_beside_a_right_normless_layer():
    """As in a port of ModernBERT, whose first layer has no norm: there the line does right, for another reason."""
    reference, port = Reference(), Port(ReboundInput)
    port.blocks[0] = ReboundInput()
    reference.layers[0].before, port.blocks[0].n1 = nn.Identity(), nn.Identity()

    culprit = report_of(reference, port).culprit

    assert culprit.path == "blocks.1"
    assert ["# BUG" in line for line in shown_of(culprit)] == [True]


class TakesTheFirst(nn.Module):
    """Takes another than the last of what its trunk made."""

    def __init__(self, layers):
        super().__init__()
        self.layers = layers

    def made(self, x):
        states = [x]
        for layer in self.layers:
            states.append(layer(states[-1]))
        return states

    def forward(self, x):
        states = self.made(x)
        last = states[-2]  # BUG: not the last
        return last.transpose(0, 1)


def test_value_handed_on_instead_of_the_computed_one_is_named():
    layers = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(3)])
    fill(layers, seed=0)
    x = torch.linspace(-1, 1, 4 * WIDTH).sin().view(2, 2, WIDTH)

    class InOrder(nn.Module):
        def __init__(self):
            super().__init__()
            self.all = layers

        def forward(self, given):
            for layer in self.all:
                given = layer(given)
            return given.transpose(0, 1)

    culprit = compare(trace(InOrder(), x), trace(TakesTheFirst(layers), x)).culprit

    assert "# BUG" in linecache.getline(culprit.source.file, culprit.source.first)
    assert culprit.wrong == "uses the wrong operand here"


def test_port_of_the_references_class_name_may_name_its_input_otherwise():
    reference = Reference()
    port = with_weights_of(reference, type("Reference", (Port,), {})())
    fill(reference, seed=0)
    ids = torch.arange(12).reshape(2, 6)

    assert compare(trace(reference, ids=ids), trace(port, ids)).culprit is None


class Scores(nn.Module):
    def forward(self, scores):
        return scores * 1.0


def own_names(*, is_laid_out_otherwise=False, size=8, act=None):
    """Return a model with the names and classes of any other that this gives."""

    class Heads(Attention):
        def __init__(self):
            super().__init__()
            self.scores = Scores()

        def forward(self, x):
            parts = (part(x).unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in (self.query, self.key, self.value))
            return self.out(self.mixed(*parts).transpose(1, 2).flatten(2))

        def mixed(self, q, k, v):
            scores = q @ k.transpose(-2, -1) / size**0.5  # BUG where the size is not 8
            if is_laid_out_otherwise:
                scores = self.scores(scores.permute(2, 3, 0, 1)).permute(2, 3, 0, 1)
            else:
                scores = self.scores(scores)
            return scores.softmax(-1) @ v

    class Forward(Activated if act is None else Feed):
        def forward(self, x):
            return self.down(self.act(self.up(x)) if act is None else act(self.up(x)))

    class Model(Reference):
        def __init__(self):
            super().__init__()
            for layer in self.layers:
                layer.attention, layer.feed = Heads(), Forward()

    return fill(Model(), seed=0)


def wrong_gelu(x):
    return x * (1 + torch.erf(x / 2)) / 2  # BUG


def compared_by_name(reference, port):
    ids = torch.arange(12).reshape(2, 6)
    return compare(trace(reference, ids), trace(port, ids))


def test_layout_of_a_module_is_not_blamed_for_a_bug_behind_it():
    other = own_names(is_laid_out_otherwise=True)
    assert compared_by_name(own_names(), other).ok

    other.layers[1].feed.act = nn.SiLU()
    assert compared_by_name(own_names(), other).culprit.path == "layers.1.feed.act"


def test_line_beside_the_forward_of_a_module_is_named_where_names_pair():
    culprit = compared_by_name(own_names(), own_names(size=4)).culprit

    assert culprit.path == "layers.0.attention"
    assert "# BUG" in linecache.getline(culprit.source.file, culprit.source.first)


def test_function_in_the_place_of_a_module_is_no_missing_call():
    assert compared_by_name(own_names(), own_names(act=F.gelu)).ok

    culprit = compared_by_name(own_names(), own_names(act=wrong_gelu)).culprit

    assert (culprit.path, culprit.kind) == ("layers.0.feed", "glue")


class Pooler(nn.Module):
    """A container of what a port has side by side."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x):
        return self.norm(x.mean(1))


class Pooled(Reference):
    def __init__(self):
        super().__init__()
        self.norm, self.head = Pooler(), nn.Linear(WIDTH, 4)

    def forward(self, ids):
        return self.head(super().forward(ids)["last"])


class OwnLayerNorm(nn.LayerNorm):
    def forward(self, x):
        return F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)


class ForgetsToPool(Port):
    def __init__(self):
        super().__init__()
        self.ln, self.classes = OwnLayerNorm(WIDTH), nn.Linear(WIDTH, 4)

    def forward(self, ids):
        h = self.tok(ids)
        for block in self.blocks:
            h = block(h)
        h = self.ln(h)  # BUG: not pooled
        return self.classes(h)


def test_step_missing_before_a_norm_is_not_blamed_on_the_norm():
    reference = fill(Pooled(), seed=0)
    port, ids = with_weights_of(reference, ForgetsToPool()), torch.arange(12).reshape(2, 6)
    port.ln, port.classes = OwnLayerNorm(WIDTH), reference.head
    port.ln.load_state_dict(reference.norm.norm.state_dict())

    report = compare(trace(reference, ids), trace(port, ids))

    culprit = report.culprit
    assert (culprit.path, culprit.kind) == ("ForgetsToPool", "glue")
    assert "# BUG" in linecache.getline(culprit.source.file, culprit.source.last)
    assert "return self.norm(x.mean(1))" in str(report)


class Stem(nn.Module):
    def __init__(self, act):
        super().__init__()
        self.conv, self.act, self.pool = nn.Conv1d(3, WIDTH, 3), act, nn.MaxPool1d(2)

    def forward(self, pixels):
        return self.pool(self.act(self.conv(pixels)))


class ForgetsRelu(nn.Module):
    def __init__(self, stem):
        super().__init__()
        self.filters, self.reduce = stem.conv, stem.pool

    def forward(self, image):
        image = self.filters(image)
        return self.reduce(image)  # BUG: no activation


def test_activation_missing_before_a_pooling_is_not_blamed_on_the_pooling():
    reference = fill(Stem(nn.ReLU()), seed=0)
    port, pixels = ForgetsRelu(copy.deepcopy(reference)), torch.linspace(-1, 1, 60).sin().view(1, 3, 20)

    culprit = compare(trace(reference, pixels), trace(port, pixels)).culprit

    assert "# BUG" in linecache.getline(culprit.source.file, culprit.source.first)
    assert culprit.wrong == "skips a step that the reference does"


def test_port_without_comparable_calls_and_values_is_not_blamed():
    class Noisy(nn.Module):
        def __init__(self, name):
            super().__init__()
            self.name = name
            self.add_module(name, nn.Linear(4, 4))

        def forward(self, x):
            return getattr(self, self.name)(x) * next(self.draws)

    reference, port = fill(Noisy("one"), seed=0), fill(Noisy("other"), seed=0)
    reference.draws, port.draws = iter([1.0, 2.0]), iter([3.0, 4.0])

    culprit = compare(trace(reference, torch.ones(2, 4)), trace(port, torch.ones(2, 4))).culprit

    assert culprit.explanation == (
        "None of the calls in it could be compared, so the fault may lie in its lines or in 'other'; "
        "the expected forward calls 'one' instead."
    )


class WrittenOutNorm(nn.Module):
    """Does the same to what it is given, whatever its weight, before that comes in."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * x


class Recurrent(nn.Module):
    """A layer that returns a state beside what it hands on."""

    def __init__(self):
        super().__init__()
        self.before, self.mix = WrittenOutNorm(), nn.Linear(WIDTH, WIDTH)
        self.after, self.feed = WrittenOutNorm(), Feed()

    def forward(self, x):
        state = self.mix(self.before(x))
        x = x + state
        return x + self.feed(self.after(x)), state


class Body(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.layers = nn.Embedding(32, WIDTH), nn.ModuleList([Recurrent(), Recurrent()])
        self.norm = WrittenOutNorm()

    def forward(self, ids):
        x, states = self.embed(ids), []
        for layer in self.layers:
            x, state = layer(x)
            states.append(state)
        return {"hidden": self.norm(x), "seen": torch.ones(1, dtype=torch.int64), "states": states}


class RecurrentReference(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = Body(), nn.Linear(WIDTH, 32)

    def forward(self, ids):
        found = self.body(ids)
        return {"logits": self.head(found["hidden"]), "seen": found["seen"], "states": found["states"]}


class Step(nn.Module):
    def __init__(self, layer, forgets):
        super().__init__()
        self.n1, self.mixer, self.n2, self.ffn, self.forgets = layer.before, layer.mix, layer.after, layer.feed, forgets

    def forward(self, h):
        mixed = self.mixer(self.n1(h))
        h = h if self.forgets == "first sum" else h + mixed
        fed = self.ffn(self.n2(h))
        h = h if self.forgets == "second sum" else h + fed
        return h, mixed


class Steps(nn.Module):
    def __init__(self, body, forgets):
        super().__init__()
        self.steps, self.ln = nn.ModuleList([Step(layer, forgets) for layer in body.layers]), body.norm
        self.forgets = forgets

    def forward(self, h):
        mixed = []
        for step in self.steps:
            h, state = step(h)
            mixed.append(state)
        return h if self.forgets == "norm" else self.ln(h), mixed


class RecurrentPort(nn.Module):
    def __init__(self, reference, forgets=""):
        super().__init__()
        self.tok, self.trunk, self.out = reference.body.embed, Steps(reference.body, forgets), reference.head

    def forward(self, tokens):
        h, mixed = self.trunk(self.tok(tokens))
        return self.out(h), *mixed


def recurrent_report(forgets, outputs=None):
    reference, ids = fill(RecurrentReference(), seed=0), torch.arange(12).reshape(2, 6)
    port = RecurrentPort(reference, forgets)
    return compare(trace(reference, ids), trace(port, ids), outputs=outputs)


def test_outputs_of_other_names_are_paired_past_what_one_side_returns():
    report = recurrent_report("", outputs={"[0]": "logits"})

    assert report.culprit is None
    assert [told.split()[0] for told in report.output_notes if "element by element" in told] == [
        "logits",
        "states[0]",
        "states[1]",
    ]


@pytest.mark.parametrize(("forgets", "path"), [("first sum", "trunk.steps.0"), ("second sum", "trunk.steps.0")])
def test_step_missing_before_a_written_out_norm_is_not_blamed_behind_it(forgets, path):
    culprit = recurrent_report(forgets).culprit

    assert culprit.path == path
    assert "skips a step that the reference does" in culprit.explanation


class ScalesQueries(Attention):
    def forward(self, x):
        q, k, v = (part(x).unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in (self.query, self.key, self.value))
        weights = ((q * 8**-0.5) @ k.transpose(-2, -1)).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))


class ForgetsScale(nn.Module):
    """Takes the parts of a fused projection, and scales nothing."""

    def __init__(self, attention):
        super().__init__()
        parts = (attention.query, attention.key, attention.value)
        self.qkv, self.o = nn.Linear(WIDTH, 3 * WIDTH), attention.out
        self.qkv.weight = nn.Parameter(torch.cat([part.weight.detach() for part in parts]))
        self.qkv.bias = nn.Parameter(torch.cat([part.bias.detach() for part in parts]))

    def forward(self, h):
        q, k, v = self.qkv(h).unflatten(-1, (3, HEADS, -1)).transpose(1, 3).unbind(2)
        return self.o(((q @ k.mT).softmax(-1) @ v).transpose(1, 2).flatten(2))


def test_scale_left_out_is_told_wherever_the_reference_has_it():
    reference, port = Reference(), Port()
    for layer in reference.layers:
        layer.attention = ScalesQueries()
    fill(reference, seed=0)
    port.tok, port.ln = reference.embed, reference.norm
    for layer, block in zip(reference.layers, port.blocks, strict=True):
        block.n1, block.n2, block.att = layer.before, layer.after, ForgetsScale(layer.attention)
        block.ffn.w1, block.ffn.w2 = layer.feed.up, layer.feed.down
    ids = torch.arange(12).reshape(2, 6)

    culprit = compare(trace(reference, ids), trace(port, ids)).culprit

    assert (culprit.path, culprit.wrong) == ("blocks.0.att", "skips a step that the reference does")


class WrittenOutLayerNorm(nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.w, self.b = norm.weight, norm.bias

    def forward(self, x):
        x = x - x.mean(-1, keepdim=True)
        scale = (x.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt()
        return x / scale * self.w + self.b


class ForgetsSum(Block):
    def forward(self, h):
        h = h + self.att(self.n1(h))
        fed = self.ffn(self.n2(h))
        return h, fed  # BUG: not the sum


class WithFed(Port):
    """A port of which a layer returns beside the states what it should have added to them."""

    def forward(self, tokens):
        h, fed = self.blocks[1](self.blocks[0](self.tok(tokens)))
        return self.ln(h), fed


def test_operand_of_a_written_out_norm_is_blamed_in_the_norms_place(monkeypatch, one_thread):
    monkeypatch.setattr(prove, "SECONDS", 120.0)
    reference, port = fill(Reference(), seed=0), WithFed(ForgetsSum)
    ids = torch.arange(12).reshape(2, 6)
    with_weights_of(reference, port).ln = WrittenOutLayerNorm(reference.norm)

    culprit = compare(trace(reference, ids), trace(port, ids)).culprit

    assert (culprit.path, culprit.kind) == ("blocks.1", "glue")
    assert "skips a step that the reference does" in culprit.explanation


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.gate, self.down = nn.Linear(WIDTH, 40), nn.Linear(WIDTH, 40), nn.Linear(40, WIDTH, bias=False)

    def forward(self, x):
        return self.down(F.gelu(self.gate(x)) * self.up(x))


class ForgetsToMultiply(nn.Module):
    """Has a bias of zeros that its reference has not."""

    def __init__(self, gated):
        super().__init__()
        self.w1, self.w2, self.w3 = gated.gate, gated.up, nn.Parameter(gated.down.weight.detach().t().clone())
        self.zeros = nn.Parameter(torch.zeros(WIDTH))

    def forward(self, h):
        opened, _ = F.gelu(self.w1(h)), self.w2(h)  # BUG: either line is where the product is missing
        return torch.addmm(self.zeros, opened.flatten(0, 1), self.w3).view(h.shape)  # BUG


def test_bias_of_zeros_is_not_taken_for_the_operand_that_is_wrong():
    reference, port = Reference(), Port()
    for layer in reference.layers:
        layer.feed = Gated()
    ids = torch.arange(12).reshape(2, 6)
    fill(reference, seed=0)
    port.tok, port.ln = reference.embed, reference.norm
    for block, layer in zip(port.blocks, reference.layers, strict=True):
        block.n1, block.att, block.n2, block.ffn = (
            layer.before,
            layer.attention,
            layer.after,
            ForgetsToMultiply(layer.feed),
        )

    culprit = compare(trace(reference, ids), trace(port, ids)).culprit

    assert culprit.path == "blocks.0.ffn"
    assert "# BUG" in linecache.getline(culprit.source.file, culprit.source.first)


class FusedAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        weights = (q @ k.transpose(-2, -1) / 8**0.5).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))


class HeadsApart(nn.Module):
    """Holds the projections of each head by itself, as analysis libraries do."""

    def __init__(self, fused):
        super().__init__()
        weights, biases = fused.qkv.weight.detach().chunk(3), fused.qkv.bias.detach().chunk(3)
        self.w = nn.ParameterList([each.view(HEADS, -1, WIDTH).transpose(1, 2).clone() for each in weights])
        self.b = nn.ParameterList([each.view(HEADS, -1).clone() for each in biases])
        self.mix, self.o = Mix(), fused.out

    def forward(self, h):
        parts = []
        for w, b in zip(self.w, self.b, strict=True):
            rows = w.transpose(1, 2).reshape(WIDTH, WIDTH)
            parts.append(F.linear(h, rows, b.flatten()).unflatten(-1, (HEADS, -1)).transpose(1, 2))
        return self.o(self.mix(*parts).transpose(1, 2).flatten(2))


class SubtractsAttention(Block):
    def forward(self, h):
        return h - self.att(self.n1(h)) + self.ffn(self.n2(h))  # BUG


def test_parameter_cut_otherwise_is_not_blamed_for_a_sum_before_it():
    reference, port = ParallelReference(), Port()
    for layer in reference.layers:
        layer.attention = FusedAttention()
    ids = torch.arange(12).reshape(2, 6)
    fill(reference, seed=0)
    port.tok, port.ln = reference.embed, reference.norm
    for place, layer in enumerate(reference.layers):
        block = port.blocks[place] = SubtractsAttention()
        block.n1, block.n2, block.att = layer.before, layer.after, HeadsApart(layer.attention)
        block.ffn.w1, block.ffn.w2 = layer.feed.up, layer.feed.down

    culprit = compare(trace(reference, ids), trace(port, ids)).culprit

    assert culprit.path == "blocks.0"
    assert "# BUG" in linecache.getline(culprit.source.file, culprit.source.first)


def report_on(reference, port, *inputs, outputs=None):
    """Return the report on a port that has the parameters of its reference, in the same order."""
    fill(reference, seed=0)
    port.load_state_dict(dict(zip(port.state_dict(), reference.state_dict().values(), strict=True)))
    return compare(trace(reference, *inputs), trace(port, *inputs), outputs=outputs)


def states(length=6):
    return torch.randn(2, length, WIDTH, generator=torch.Generator().manual_seed(0))


class Forecast(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.mix, self.norm = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, x):
        scale = x.std()
        return {"last": self.norm(self.mix(self.embed(x / scale))), "scale": scale}


class ReturnsMore(Forecast):
    def forward(self, x):
        embedded = self.embed(x / x.std())
        return (embedded, self.norm(self.mix(embedded))), x > 0


class ReturnsAMask(Forecast):
    def forward(self, x):
        return self.norm(self.mix(self.embed(x / x.std()))), (x > 0)[..., 0]


@pytest.mark.parametrize(("port", "own"), [(ReturnsMore(), "[0][1]"), (ReturnsAMask(), "[0]")])
def test_extra_outputs_of_both_sides_are_not_held_to_each_other(port, own):
    report = report_on(Forecast(), port, states())

    assert "compared with the reference's 'scale' (): not compared." in report.culprit.explanation
    assert report_on(Forecast(), port, states(), outputs={own: "last"}).ok


class HandsOn(nn.Module):
    def forward(self, x):
        return x


class ForgetsNorm(Block):
    def forward(self, h):
        h = h + self.att(h)  # BUG
        return h + self.ffn(self.n2(h))


class BeginsWithNothing(Port):
    def __init__(self, block):
        super().__init__(block)
        self.drop, self.blocks[0] = HandsOn(), block()

    def forward(self, tokens):
        return self.ln(self.blocks(self.drop(self.tok(tokens))))


def test_identity_module_is_not_named_for_a_step_of_another_module():
    culprit = report_of(Reference(), BeginsWithNothing(ForgetsNorm)).culprit

    assert culprit.path.startswith("blocks.0")


class Masks(nn.Module):
    def __init__(self):
        super().__init__()
        self.out, self.norm = nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, x):
        x = x * (x < 99).any(-1, keepdim=True)
        return self.norm(self.out(x))


class HidesAll(Masks):
    def forward(self, x):
        x = x * (x > 99).any(-1, keepdim=True)  # BUG
        return self.norm(self.out(x))


def test_product_of_zeros_is_not_taken_for_its_bias():
    culprit = report_on(Masks(), HidesAll(), states()).culprit

    assert any("# BUG" in line for line in shown_of(culprit)), culprit


class Stages(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.scale = nn.Parameter(torch.ones(3, 1))

    def forward(self, x):
        return self.second(self.first(x.mean(1))[:, None] * self.scale)


class Exchanged(Stages):
    def forward(self, x):
        h = self.second(x.mean(1))  # BUG
        return self.first(h[:, None] * self.scale)


def test_weight_with_another_value_is_named_where_it_is_used():
    culprit = report_on(Stages(), Exchanged(), states(length=5)).culprit

    assert any("# BUG" in line for line in shown_of(culprit)), culprit


class Causal(Attention):
    def forward(self, x):
        q, k, v = (part(x).unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in (self.query, self.key, self.value))
        hidden = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        weights = (q @ k.transpose(-2, -1) / 8**0.5).masked_fill(hidden, -torch.inf).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))


class CausalByDistance(Attention):
    def forward(self, x):
        q, k, v = (part(x).unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in (self.query, self.key, self.value))
        place = torch.arange(x.shape[1])
        apart = place[:, None] - place[None]
        seen = apart >= -1  # BUG
        seen = seen & (apart < 99)
        return self.out(F.scaled_dot_product_attention(q, k, v, seen).transpose(1, 2).flatten(2))


def test_mask_made_in_another_way_is_named_with_the_edit_that_mends_it(monkeypatch, one_thread):
    monkeypatch.setattr(prove, "SECONDS", 120.0)
    culprit = report_on(Causal(), CausalByDistance(), states()).culprit

    assert any("# BUG" in line for line in shown_of(culprit)), culprit
    assert "-        seen = apart >= -1  # BUG" in culprit.patch


def test_line_of_a_helper_in_another_file_is_named(tmp_path, monkeypatch):
    (tmp_path / "helper_of_a_port.py").write_text(
        "def gelu(x):\n    half = x * 0.5\n    return half * (1 + x.tanh())\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    from helper_of_a_port import gelu

    class Helped(Feed):
        def forward(self, x):
            return self.down(gelu(self.up(x)))

    culprit = report_on(Feed(), Helped(), states()).culprit

    assert culprit.source.file == str(tmp_path / "helper_of_a_port.py")


def unit(x, axis):
    return x / x.norm(dim=axis, keepdim=True)


class Cosine(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return F.normalize(self.query(x), dim=-1) @ F.normalize(self.key(x), dim=-1).transpose(1, 2)


class CosineOfOneAxis(Cosine):
    def forward(self, x):
        return self.scores(self.query(x), self.key(x))

    def scores(self, q, k):
        return unit(q, 1) @ unit(k, -1).transpose(1, 2)  # BUG


def test_line_with_two_calls_of_a_helper_is_named_before_the_helper():
    culprit = report_on(Cosine(), CosineOfOneAxis(), states()).culprit

    assert any("# BUG" in line for line in shown_of(culprit)), culprit


def scores_of(q, k):
    return q / q.norm(dim=1, keepdim=True) @ (k / k.norm(dim=-1, keepdim=True)).transpose(1, 2)  # BUG


class CosineInAFunction(Cosine):
    def forward(self, x):
        return scores_of(self.query(x), self.key(x))


def test_line_that_does_the_same_twice_is_named_before_its_caller():
    culprit = report_on(Cosine(), CosineInAFunction(), states()).culprit

    assert any("# BUG" in line for line in shown_of(culprit)), culprit


class PostNorm(Layer):
    def forward(self, x):
        x = self.before(x + self.attention(x))
        return self.after(x + self.feed(x))


class Shell(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, h):
        return self.inner(h)


class ForgetsFirstSum(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.att, self.n2, self.ffn = nn.LayerNorm(WIDTH), Attention(), nn.LayerNorm(WIDTH), Feed()

    def forward(self, h):
        h = self.n1(self.att(h))  # BUG
        return self.n2(h + self.ffn(h))


def test_module_whose_partner_holds_the_step_is_named_of_two_nested_ones():
    culprit = report_on(Shell(Shell(PostNorm())), Shell(Shell(ForgetsFirstSum())), states()).culprit

    assert culprit.path == "inner.inner"


class Placed(Layer):
    def forward(self, x, places):
        x = x + self.attention(self.before(x) + places)
        return x + self.feed(self.after(x))


class AllPlaced(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.layers = nn.Linear(WIDTH, WIDTH), nn.ModuleList([Placed(), Placed()])

    def forward(self, x):
        places = torch.arange(x.shape[1])[:, None] / 100
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x, places)
        return x


class ForgetsAttention(ForgetsFirstSum):
    def forward(self, h):
        return h + self.ffn(self.n2(h))  # BUG


def test_step_left_out_is_not_a_constant_made_for_it():
    port = nn.Sequential(nn.Linear(WIDTH, WIDTH), ForgetsAttention(), ForgetsAttention())

    culprit = report_on(AllPlaced(), port, states()).culprit

    assert culprit.path == "1"
    assert "arange" not in culprit.reference.code


class Coupling(nn.Module):
    """Changes one half of its features by what it makes of the other: what it returns is put together of both."""

    def __init__(self):
        super().__init__()
        self.shift = nn.Linear(WIDTH // 2, WIDTH // 2)

    def forward(self, x):
        kept, changed = torch.split(x, WIDTH // 2, dim=-1)
        return torch.cat([kept, changed + self.shift(kept)], dim=-1)


class Flow(nn.Module):
    def __init__(self):
        super().__init__()
        self.steps = nn.ModuleList([Coupling(), Coupling()])

    def forward(self, x):
        for step in self.steps:
            x = step(x.flip(-1))
        return x


class UnflippedFlow(nn.Module):
    def __init__(self, reference):
        super().__init__()
        self.parts = reference.steps

    def forward(self, x):
        for part in self.parts:
            x = part(x)
        return x


def test_input_is_no_output_whose_halves_are_put_together_again(monkeypatch):
    monkeypatch.setattr(prove, "SECONDS", 120.0)
    reference = fill(Flow().eval(), seed=0)
    x = torch.randn(2, 5, WIDTH, generator=torch.Generator().manual_seed(0))

    report = compare(trace(reference, x), trace(UnflippedFlow(reference).eval(), x))

    place = report.culprit.reference
    assert "step(x.flip(-1))" in linecache.getline(place.file, place.first)
    assert report.culprit.proved.startswith("your port lacks the flip of test_blame_values.py")


class TakesAway(Layer):
    def forward(self, x):
        x = x + self.attention(self.before(x))
        return x - self.feed(self.after(x))  # BUG


class RowByRow(nn.Module):
    """Runs a model for each row of a batch, and lays side by side what that gives."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, ids):
        return torch.cat([self.inner(row[None])["last"] for row in ids])


def test_what_is_computed_in_pieces_is_held_to_the_whole():
    reference = fill(Reference().eval(), seed=0)
    wrong = copy.deepcopy(reference)
    wrong.layers[1].__class__ = TakesAway
    ids = torch.arange(3, 27).reshape(2, 12)

    report = compare(trace(reference, ids), trace(RowByRow(wrong).eval(), ids))

    assert "# BUG" in linecache.getline(report.culprit.source.file, report.culprit.source.first)


class BiasBeforeWeight(nn.Module):
    """A layer norm that adds its bias before it multiplies: what it holds as its bias is not the reference's."""

    def __init__(self, norm):
        super().__init__()
        self.weight = norm.weight
        self.bias = nn.Parameter((norm.bias / norm.weight).detach())

    def forward(self, x):
        centred = x - x.mean(-1, keepdim=True)
        scaled = centred * (centred.square().mean(-1, keepdim=True) + 1e-5).rsqrt()
        return (scaled + self.bias.view(1, 1, -1)) * self.weight.view(1, 1, -1)


def test_parameter_in_another_form_is_not_blamed_for_a_sum_before_it():
    def held_otherwise(block):
        port = with_weights_of(reference, Port(block))
        port.ln = BiasBeforeWeight(port.ln)
        for each in port.blocks:
            each.n1, each.n2 = BiasBeforeWeight(each.n1), BiasBeforeWeight(each.n2)
        return compare(trace(reference, ids), trace(port, ids)).culprit

    reference, ids = fill(Reference().eval(), seed=0), torch.arange(12).reshape(2, 6)
    assert held_otherwise(Block) is None

    culprit = held_otherwise(ForgetsResidual)

    assert culprit.kind != "weights"
    assert "x = x + self.attention" in linecache.getline(culprit.reference.file, culprit.reference.first)


class Grouped(nn.Module):
    """Gives each of three groups of rows to an expert of its own, all at once."""

    def __init__(self):
        super().__init__()
        self.up, self.down = (nn.Parameter(torch.empty(3, WIDTH, WIDTH)) for _ in range(2))

    def forward(self, x):
        x = torch.bmm(x, self.up)
        return torch.bmm(F.gelu(x), self.down)


class Expert(nn.Module):
    def __init__(self, up, down):
        super().__init__()
        self.up, self.down = (nn.Parameter(each.detach().clone()) for each in (up, down))

    def forward(self, x):
        x = x @ self.up
        x = F.relu(x)  # BUG
        return x @ self.down


class OneByOne(nn.Module):
    def __init__(self, grouped):
        super().__init__()
        self.experts = nn.ModuleList(map(Expert, grouped.up, grouped.down))

    def forward(self, x):
        return torch.stack([expert(rows) for expert, rows in zip(self.experts, x, strict=True)])


def test_experts_one_by_one_are_held_to_all_of_them_at_once():
    grouped = fill(Grouped().eval(), seed=0)
    x = torch.randn(3, 5, WIDTH, generator=torch.Generator().manual_seed(0))

    report = compare(trace(grouped, x), trace(OneByOne(grouped).eval(), x))

    assert "# BUG" in linecache.getline(report.culprit.source.file, report.culprit.source.first)


class LooksBack(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.out = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        queries = self.query(x)
        hidden = queries.new_full(x.shape[:2], float("-inf"))
        scores = queries @ queries.mT + hidden[:1].repeat(x.shape[1], 1).triu(1)
        mixed = scores.softmax(-1) @ queries
        return self.out(mixed.mean(1))


class ForgetsToNormalize(nn.Module):
    def __init__(self, reference):
        super().__init__()
        self.q, self.o = reference.query, reference.out

    def forward(self, h):
        q = self.q(h)
        hidden = q.new_full(h.shape[:2], float("-inf"))
        scores = q @ q.mT + hidden[:1].repeat(h.shape[1], 1).triu(1)
        mixed = scores @ q  # BUG
        return self.o(mixed.mean(1))


def test_output_that_is_nan_throughout_is_not_taken_for_a_mask():
    reference = fill(LooksBack().eval(), seed=0)
    port = ForgetsToNormalize(reference).eval()
    x = torch.randn(2, WIDTH, WIDTH, generator=torch.Generator().manual_seed(0))
    assert port(x).isnan().all()

    culprit = compare(trace(reference, x), trace(port, x)).culprit

    assert "# BUG" in linecache.getline(culprit.source.file, culprit.source.first)


class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.gate, self.out = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(3))

    def forward(self, x):
        gate, up = self.gate(x), self.up(x)
        return self.out(gate * up)


class InALoop(nn.Module):
    def __init__(self, both):
        super().__init__()
        self.g, self.u, self.o = both.gate.weight, both.up.weight, both.out.weight

    def forward(self, x):
        rows = []
        for row in x:
            gate, up = row @ self.g.T, row @ self.u.T
            gate = F.relu(gate)  # BUG
            rows.append((gate * up) @ self.o.T)
        return torch.stack(rows)


def test_values_of_a_loop_in_turn_are_held_to_the_whole():
    both = fill(Both().eval(), seed=0)
    x = torch.randn(3, 5, WIDTH, generator=torch.Generator().manual_seed(0))

    culprit = compare(trace(both, x), trace(InALoop(both).eval(), x)).culprit

    assert "# BUG" in linecache.getline(culprit.source.file, culprit.source.first)


class Folded(nn.Module):
    """Four neighbouring patches in one token, then tokens that look at each other; a port may leave out a step."""

    def __init__(self, *names, turned):
        super().__init__()
        self._names, self._turned = names, turned
        for name, sizes in zip(names, ((3, 4), (16, 8), (8, 8)), strict=True):
            self.add_module(name, nn.Linear(*sizes))

    def forward(self, image):
        patch, token, out = map(self.get_submodule, self._names)
        x = patch(image).reshape(2, 6, 3, 8)
        x = x.transpose(1, 2).reshape(2, 3, 3, 16)
        if self._turned:
            x = x.transpose(1, 2)
        x = x.flatten(1, 2)
        tokens = token(x)
        scores = tokens @ tokens.mT + torch.arange(9)
        return {"tokens": tokens, "last": out(scores.softmax(-1) @ tokens)}


def test_elements_in_another_order_are_told_where_they_come_into_it():
    reference = fill(Folded("patch", "token", "out", turned=True), seed=0)
    port = Folded("cut", "join", "head", turned=False)
    port.load_state_dict(dict(zip(port.state_dict(), reference.state_dict().values(), strict=True)))
    image = torch.randn(2, 6, 6, 3, generator=torch.Generator().manual_seed(0))

    culprit = compare(trace(reference, image), trace(port, image)).culprit

    assert culprit.wrong == "puts elements in another order than the reference"
    assert culprit.source.first == Folded.forward.__code__.co_firstlineno + 6
