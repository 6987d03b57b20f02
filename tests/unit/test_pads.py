"""Two traces of padded inputs: what differs at pads alone is not named for a difference at real tokens."""

import linecache

import pytest
import torch
from torch import nn

import pytest_tfdebug

LAST = torch.finfo(torch.float32).min
IDS = torch.arange(3, 27).reshape(2, 12)
MASK = torch.ones_like(IDS)
MASK[0, :4] = 0


class Reference(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.norm = nn.Embedding(40, 16), nn.LayerNorm(16)
        self.q, self.k, self.v, self.o = (nn.Linear(16, 16) for _ in range(4))
        self.head = nn.Linear(16, 40)

    def forward(self, input_ids, attention_mask):
        x = self.embed(input_ids)
        y = self.norm(x)
        hidden = torch.ones(2 * (y.shape[1],), dtype=torch.bool).triu(1) | (attention_mask == 0)[:, None]
        scores = self.q(y) @ self.k(y).mT / 4
        probs = scores.masked_fill(hidden, LAST).softmax(-1).masked_fill(hidden, 0)
        return self.head(x + self.o(probs @ self.v(y)))


class Port(nn.Module):
    """Fills hidden scores with another number: rows without any key differ."""

    def __init__(self, reference, *, is_wrong=False, is_tokens_first=False):
        super().__init__()
        self.inner, self.is_wrong = nn.ModuleDict(dict(reference.named_children())), is_wrong
        self.is_tokens_first = is_tokens_first

    def forward(self, ids, mask):
        ids, mask = (ids.T, mask.T) if self.is_tokens_first else (ids, mask)
        m = self.inner
        x = m["embed"](ids)
        y = m["norm"](x)
        keep = torch.ones(2 * (y.shape[1],), dtype=torch.bool).tril() & mask.bool()[:, None]
        scores = torch.where(keep, m["q"](y) @ m["k"](y).mT / 4, -1e9)
        mixed = scores.softmax(-1) @ m["v"](y)
        found = m["head"](y + m["o"](mixed)) if self.is_wrong else m["head"](x + m["o"](mixed))
        return found.transpose(0, 1) if self.is_tokens_first else found


@pytest.fixture
def reference():
    return pytest_tfdebug.fill(Reference().eval(), seed=0)


def compared(reference, port, ids=IDS, mask=MASK):
    expected = pytest_tfdebug.trace(reference, ids, mask)
    given = (ids.T, mask.T) if port.is_tokens_first else (ids, mask)
    return pytest_tfdebug.compare(expected, pytest_tfdebug.trace(port.eval(), *given))


def test_the_line_of_a_difference_at_real_tokens_is_named_whatever_differs_at_pads(reference):
    report = compared(reference, Port(reference, is_wrong=True))

    source = report.culprit.source
    assert 'found = m["head"](y + m["o"](mixed))' in linecache.getline(source.file, source.first)
    assert report.notes[0] == "This is about the rows without padding (1 of 2), which differ as well."


def test_a_difference_at_pads_alone_says_how_to_leave_them_out(reference):
    report = compared(reference, Port(reference))

    assert not report.ok
    assert str(report).startswith("Port (Port): differs only at positions that attention_mask hides\n")
    assert "Next: leave these positions out: positions=attention_mask" in str(report)


@pytest.mark.parametrize("part", [slice(None), slice(3, 5)], ids=["more tokens than rows", "as many"])
def test_a_port_that_takes_tokens_before_rows_is_explained_with_padding(reference, part):
    port = Port(reference, is_wrong=True, is_tokens_first=True)

    report = compared(reference, port, IDS[:, part], MASK[:, part])

    assert not report.ok
    assert not any(note.startswith("This is about") for note in report.notes)


def test_a_model_that_has_changed_since_is_not_run_on_a_part(reference):
    expected = pytest_tfdebug.trace(reference, IDS, MASK)
    actual = pytest_tfdebug.trace(Port(reference, is_wrong=True).eval(), IDS, MASK)
    torch.nn.init.zeros_(reference.head.weight)

    report = pytest_tfdebug.compare(expected, actual)

    assert not report.ok
    assert not any(note.startswith("This is about") for note in report.notes)


def encoder():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def test_a_mask_that_may_be_of_pads_or_of_tokens_says_nothing():
    torch.manual_seed(0)
    right, wrong = (encoder() for _ in range(2))
    wrong.load_state_dict(right.state_dict())
    nn.init.zeros_(wrong.layers[1].linear2.weight)
    x, pads = torch.randn(2, 6, 8), torch.arange(6).expand(2, 6) > 3

    report = pytest_tfdebug.compare(
        *(pytest_tfdebug.trace(model.eval(), x, src_key_padding_mask=pads) for model in (right, wrong))
    )

    assert report.culprit.path.startswith("layers.1")


def test_a_part_is_recorded_as_the_whole_was(reference):
    expected = pytest_tfdebug.trace(reference, IDS, MASK, exclude="o")
    nn.init.zeros_(reference.o.weight)

    report = pytest_tfdebug.compare(expected, pytest_tfdebug.trace(reference, IDS, MASK, exclude="o"))

    assert all(item.call.path != "o" for item in report.calls)
