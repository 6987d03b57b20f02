"""Two traces of padded inputs: what differs at pads alone is not named for a difference at real tokens."""

import linecache

import pytest
import torch
from torch import nn

import pytest_tfdebug
from padded import BUG, IDS, MASK, Port, Reference
from rewriting import rewrite_forward


class TokensFirst(nn.Module):
    """Takes and returns tokens before rows."""

    def __init__(self, port):
        super().__init__()
        self.port = port

    def forward(self, ids, mask):
        return self.port(ids.T, mask.T).transpose(0, 1)


@pytest.fixture
def reference():
    return pytest_tfdebug.fill(Reference().eval(), seed=0)


@pytest.fixture
def wrong(reference):
    port = Port(reference).eval()
    rewrite_forward(port, *BUG)
    return port


def compared(reference, port, given=(IDS, MASK), own=(IDS, MASK)):
    return pytest_tfdebug.compare(pytest_tfdebug.trace(reference, *given), pytest_tfdebug.trace(port.eval(), *own))


def test_line_of_a_difference_at_real_tokens_is_named_despite_the_pads(reference, wrong):
    report = compared(reference, wrong)

    source = report.culprit.source
    assert BUG[1] in linecache.getline(source.file, source.first)
    assert report.part == "the rows without padding (1 of 2)"
    told = "This is about the rows without padding (1 of 2), which differ as well; the others were not looked into."
    assert told in " ".join(str(report).split())


def test_difference_at_pads_alone_says_how_to_leave_them_out(reference):
    report = compared(reference, Port(reference))

    source = report.culprit.source
    assert "mixed = scores.softmax" in linecache.getline(source.file, source.first)
    assert str(report).startswith(f"{source} in Port (Port): differs only at positions that attention_mask hides\n")
    assert "Next: leave these positions out: positions=attention_mask" in str(report)


@pytest.mark.parametrize("part", [slice(None), slice(3, 5)], ids=["more tokens than rows", "as many"])
def test_port_that_takes_tokens_before_rows_is_explained_with_padding(reference, wrong, part):
    given = IDS[:, part], MASK[:, part]

    report = compared(reference, TokensFirst(wrong), given, [each.T for each in given])

    assert not report.ok
    assert not any(note.startswith("This is about") for note in report.notes)


def test_model_that_has_changed_since_is_not_run_on_a_part(reference, wrong):
    expected = pytest_tfdebug.trace(reference, IDS, MASK)
    actual = pytest_tfdebug.trace(wrong, IDS, MASK)
    torch.nn.init.zeros_(reference.head.weight)

    report = pytest_tfdebug.compare(expected, actual)

    assert not report.ok
    assert not any(note.startswith("This is about") for note in report.notes)


class Alike(nn.Module):
    """Says how alike two rows are."""

    def __init__(self, reference):
        super().__init__()
        self.reference, self.scale = reference, nn.Parameter(torch.tensor(3.0))

    def forward(self, input_ids, attention_mask):
        pooled = self.reference(input_ids, attention_mask)[:, -1]
        return {"alike": self.scale * pooled @ pooled.T, "pooled": pooled}


class Pooled(Alike):
    """Leaves that to its caller."""

    def forward(self, ids, mask):
        return self.reference(ids, mask)[:, -1], self.scale * 1


def test_output_without_a_partner_has_none_on_a_part_either(reference):
    model = Alike(reference)

    report = compared(model.eval(), Pooled(reference))

    assert "returns nothing that could be compared with the reference's 'alike' (2, 2): not compared" in str(report)


def encoder():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def test_mask_that_may_be_of_pads_or_of_tokens_says_nothing():
    torch.manual_seed(0)
    right, wrong = (encoder() for _ in range(2))
    wrong.load_state_dict(right.state_dict())
    nn.init.zeros_(wrong.layers[1].linear2.weight)
    x, pads = torch.randn(2, 6, 8), torch.arange(6).expand(2, 6) > 3

    report = pytest_tfdebug.compare(
        *(pytest_tfdebug.trace(model.eval(), x, src_key_padding_mask=pads) for model in (right, wrong))
    )

    assert report.culprit.path.startswith("layers.1")


def test_part_is_recorded_as_the_whole_was(reference):
    expected = pytest_tfdebug.trace(reference, IDS, MASK, exclude="o")
    nn.init.zeros_(reference.o.weight)

    report = pytest_tfdebug.compare(expected, pytest_tfdebug.trace(reference, IDS, MASK, exclude="o"))

    assert all(item.call.path != "o" for item in report.calls)


class WithMemory(nn.Module):
    """A reference that returns more than a port does."""

    def __init__(self, reference):
        super().__init__()
        self.reference = reference

    def forward(self, input_ids, attention_mask):
        return {"logits": self.reference(input_ids, attention_mask), "memory": self.reference.embed(input_ids)}


class Maskless(nn.Module):
    """A port that attends to pads, and does without the other output."""

    def __init__(self, port):
        super().__init__()
        self.port = port

    def forward(self, input_ids, attention_mask):
        return {"logits": self.port(input_ids, torch.ones_like(attention_mask))}


def test_output_that_is_missing_with_and_without_padding_hides_no_difference_in_padded_rows(reference):
    report = compared(WithMemory(reference), Maskless(Port(reference)))

    assert report.part == ""
    assert report.culprit.path == "port"
    assert "torch.where(keep" in linecache.getline(report.culprit.source.file, report.culprit.source.first)
    assert "memory" not in str(report).splitlines()[0]
