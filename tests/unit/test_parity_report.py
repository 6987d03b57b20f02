import copy
from dataclasses import replace

import pytest
import torch
from torch import nn

from pytest_tfdebug import compare, trace
from pytest_tfdebug.records import SourceRange

X = torch.linspace(-1, 1, 8).view(2, 4)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(4), nn.Linear(4, 8), nn.Linear(8, 4)

    def forward(self, x):
        return x + self.down(self.up(self.norm(x)).relu())


class Deep(nn.Module):
    def __init__(self, depth=32):
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Linear(4, 4)
        self.layers = nn.ModuleList(Block() for _ in range(depth))
        self.head = nn.Linear(4, 4)

    def forward(self, x):
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def report_of(change, depth=32):
    model = Deep(depth)
    port = copy.deepcopy(model)
    with torch.no_grad():
        change(port)
    return compare(trace(model, X), trace(port, X))


@pytest.fixture(scope="module")
def report():
    return report_of(lambda port: port.layers[7].up.bias.add_(1))


def test_report_of_a_deep_model_stays_within_40_lines_of_120_columns(report):
    lines = str(report).splitlines()

    assert len(lines) < 40
    assert max(map(len, lines)) <= 120


def test_up_to_eight_lines_of_code_are_shown(report):
    lines = SourceRange("port.py", 1, 9, code="\n".join(f"x{number} = x" for number in range(9)))

    shown = replace(report, culprit=replace(report.culprit, source=lines, reference=None)).check_text().code

    assert [line.strip() for line in shown] == ["here, port.py:1-9:", *(f"x{number} = x" for number in range(8))]


@pytest.mark.parametrize("place", ["embed", "layers.0.down", "layers.16.norm", "layers.31.down", "head"])
def test_it_is_wherever_the_culprit_stands(place):
    report = report_of(lambda port: port.get_submodule(place).bias.add_(1))

    assert report.culprit.path == place
    assert len(str(report).splitlines()) < 40
    assert f"{place} " in str(report).partition("Drift")[2]


def test_culprit_comes_first_then_the_facts_then_the_drift(report):
    text = str(report).splitlines()

    assert text[0].startswith("test_parity_report.py:")
    assert text[0].endswith(" in layers.7.up (Linear): has other weights: layers.7.up.bias")
    assert text[1].startswith("  here, test_parity_report.py:")
    assert "self.up(" in text[2]
    del text[1:3]
    assert text[1].startswith("  The forward differs from the expected one. 'layers.7.up.bias' does not hold the")
    text.remove(text[2])  # the rest of the sentence
    assert text[2] == "  Tensor: output of 'layers.7.up', shape (2, 8), float32"
    assert text[3] == "  Mismatched elements: 16 / 16 (100.0%)"
    assert text[4].startswith("  Greatest absolute difference: 1 at index (")
    assert text[4].endswith(" allowed)")
    assert text[5].startswith("  Greatest relative difference: ")
    assert text[6].startswith("  RMSE 1, relative L2 ")
    assert text[7] == f"  Drift ({len(report.divergences)} tensors outside tolerance):"
    assert text[8].split() == ["output", "of", "relative", "L2", "max", "abs"]


def test_drift_shows_the_culprit_s_neighbours_and_the_layers_after_it(report):
    drift = str(report).partition("Drift")[2].splitlines()[2:]
    rows = {line.split()[0]: line for line in drift}

    assert rows["layers.7.norm"].split()[1:] == ["equal"]
    assert rows["layers.7.up"].endswith("<- outside tolerance")
    assert {"layers.7.down", "layers.7", "Deep"} <= rows.keys()
    assert "layers.3.up" not in rows


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda y: (y, y + 1), " 1.00e+00 "),
        (lambda y: (y, y[:1]), "shape "),
        (lambda y: (y, y.double()), "dtype "),
    ],
)
def test_drift_of_a_call_is_that_of_the_output_that_fails(change, told):
    class Router(nn.Module):
        def __init__(self, change):
            super().__init__()
            self.change = change

        def forward(self, x):
            return self.change(torch.ones_like(x))

    class Routed(nn.Module):
        def __init__(self, change):
            super().__init__()
            self.router = Router(change)

        def forward(self, x):
            return self.router(x)[0]

    lines = str(compare(trace(Routed(lambda y: (y, y)), X), trace(Routed(change), X), internal="fail")).splitlines()
    [row] = (line for line in lines if line.startswith("    router "))

    assert told in row
    assert row.endswith("  <- outside tolerance")


def test_verbose_has_every_call_and_every_divergence(report):
    text = report.to_text(verbose=True)

    assert all(f"    {call.call.name} " in text for call in report.calls)
    assert "  Every tensor outside tolerance, in the order of computation:" in text
    assert text.count("; Greatest absolute difference: ") == len(report.divergences)


def test_notes_and_facts_stand_at_the_end(report):
    changed = replace(
        report,
        notes=["Something was seen."],
        facts=["Golden: here"],
        subject="The port differs from its golden",
        advice="Mend it.",
    )

    lines = str(changed).splitlines()

    assert lines[3].startswith("  The port differs from its golden. ")
    assert "  Next: mend it." in lines[4:6]
    assert lines[-2:] == ["  Note: Something was seen.", "  Golden: here"]


def test_report_without_divergence_says_how_the_output_was_compared():
    report = report_of(lambda port: None, depth=2)

    assert str(report).splitlines() == [
        f"Parity: {report.tensors} tensors of 11 calls agree.",
        "  Outputs: the output element by element.",
    ]
    assert report.ok


def test_shape_a_dtype_and_non_finite_values_are_told():
    class Cast(nn.Module):
        def __init__(self, change):
            super().__init__()
            self.change = change

        def forward(self, x):
            return self.change(x)

    def text(change):
        return str(compare(trace(Cast(lambda x: x), X), trace(Cast(change), X)))

    assert "  Shapes differ: (4, 2), expected (2, 4)" in text(lambda x: x.t())
    assert "  Dtypes differ: float64, expected float32" in text(torch.Tensor.double)
    assert "  Non-finite elements: 8, expected 0" in text(lambda x: x / 0)
    assert "Greatest absolute difference: inf at index (0, 0)" in text(lambda x: x / 0)


def test_frame_has_a_row_for_each_tensor(report):
    frame = report.to_dataframe()

    wrong = frame[~frame["ok"]]
    assert len(frame) == report.tensors
    assert "layers.7.up" in set(wrong["path"])
    assert "layers.7.norm" not in set(wrong["path"])
    assert (frame[frame["path"] == "layers.3"]["relative_l2"] == 0).all()
    assert wrong["relative_l2"].gt(0).all()
