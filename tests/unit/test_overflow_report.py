"""The text of the report: its form is the one of transformers' documentation."""

import re
from pathlib import Path

import pytest
import torch

from pytest_tfdebug import ActivationOverflowError, overflow_guard
from pytest_tfdebug.data.overflow import Extremes, Fault, Frame
from pytest_tfdebug.report.overflow import fault_text, frame_line

FRAME = re.compile(
    r"abs_max= *(inf|nan|\d\.\d\de[+-]\d\d) [<>] \[\d+\] [\w.]+: \w+: (input|output)(\[\d+\]|\['\w+'\]|\.\w+)*"
)

#: The last lines of the documented report, as the numbers in it read.
DOCUMENTED = """
< [0] encoder.block.2.layer.1.DenseReluDense.wo: Linear: output has infs


last 4 frames:
abs_max= 1.62e+04 > [0] encoder.block.2.layer.1.DenseReluDense.dropout: Dropout: input[0]
abs_max= 1.80e+04 < [0] encoder.block.2.layer.1.DenseReluDense.dropout: Dropout: output
abs_max= 1.80e+04 > [0] encoder.block.2.layer.1.DenseReluDense.wo: Linear: input[0]
abs_max=      inf < [0] encoder.block.2.layer.1.DenseReluDense.wo: Linear: output
"""

HIDDEN = -float("inf")
DENSE = "encoder.block.2.layer.1.DenseReluDense"


def frame(name, class_name, direction, leaf, value):
    extremes = Extremes("float16", -value, 0.5)
    return Frame(0, f"{DENSE}.{name}", class_name, direction, leaf, extremes)


def test_report_has_the_documented_form_to_the_letter():
    frames = (
        frame("dropout", "Dropout", "input", "[0]", 16200.0),
        frame("dropout", "Dropout", "output", "", 18000.0),
        frame("wo", "Linear", "input", "[0]", 18000.0),
        frame("wo", "Linear", "output", "", float("inf")),
    )
    fault = Fault(frames[-1], "module", f"{DENSE}.wo", "Linear", frames=frames)

    report = f"{fault_text(fault)}\n"

    assert report.endswith(DOCUMENTED)
    assert report.removesuffix(DOCUMENTED).splitlines() == [
        f"{DENSE}.wo (Linear): output has infs",
        f"  Where: {DENSE}.wo (Linear): the module itself; its inputs are finite.",
        "  Next: fix these lines. If such a value is meant, name the module in ignore=.",
        "  Its elements could not be counted on this device; a run on the CPU counts them.",
    ]


def test_forty_frames_are_listed_in_the_order_in_which_modules_end():
    """Each line is compared with what plain hooks of torch see in the same forward."""
    model = scaled_t5()
    expected = lines_from_plain_hooks(model)

    with torch.no_grad(), pytest.raises(ActivationOverflowError) as caught, overflow_guard(model):
        forward(model)
    lines = str(caught.value).splitlines()

    assert lines[0].endswith(f" in {DENSE}.wo (Linear): output has infs")
    assert lines[-44:-40] == [f"< [0] {DENSE}.wo: Linear: output has infs", "", "", "last 40 frames:"]
    assert lines[-40:] == expected[-40:]
    assert all(FRAME.fullmatch(line) for line in lines[-40:])
    assert lines[-1] == f"abs_max=      inf < [0] {DENSE}.wo: Linear: output"


@pytest.mark.parametrize("frames", [1, 7, 1000])
def test_number_of_frames_is_the_users(frames):
    model = scaled_t5()
    expected = lines_from_plain_hooks(model)[-frames:]

    with torch.no_grad(), pytest.raises(ActivationOverflowError) as caught, overflow_guard(model, frames=frames):
        forward(model)
    lines = str(caught.value).splitlines()

    assert lines[-len(expected) - 1 :] == [f"last {len(expected)} frames:", *expected]


def test_readme_shows_this_report():
    """Its digits are those of one machine; its words are held to here."""
    readme = (Path(__file__).parents[2] / "docs/overflow.md").read_text(encoding="utf-8")
    shown = next(block for block in readme.split("```\n") if "last 3 frames:" in block)
    ids = torch.arange(14).view(2, 7)
    model = scaled_t5(vocab_size=32128)

    with torch.no_grad(), pytest.raises(ActivationOverflowError) as caught, overflow_guard(model, frames=3):
        model(input_ids=ids, decoder_input_ids=ids)

    assert without_digits(f"{caught.value}\n") == without_digits(shown)


def without_digits(report):
    """Return a report without the size of its values, the share of its elements and the lines of this transformers."""
    return re.sub(r"(?<=modeling_t5\.py:)\d+|\d\.\d\de[+-]\d\d|\d+(?= / 448)|\(\S+%\)", "#", report)


def test_note_stands_behind_its_frame():
    masked = Frame(2, "attn", "Attention", "input", "['mask']", Extremes("float32", -float("inf"), 0.0, note="a mask"))

    assert frame_line(masked) == "abs_max=      inf > [2] attn: Attention: input['mask'] (a mask)"


def scaled_t5(vocab_size=64):
    from transformers import T5Config, T5ForConditionalGeneration

    torch.manual_seed(0)
    config = T5Config(
        vocab_size=vocab_size, d_model=32, d_kv=8, d_ff=64, num_layers=3, num_heads=4, feed_forward_proj="gated-gelu"
    )
    model = T5ForConditionalGeneration(config).eval().half()
    dense = model.get_submodule(DENSE)
    with torch.no_grad():
        dense.wi_0.weight *= 20
        dense.wi_1.weight *= 100
        dense.wo.weight *= 2000
    return model


def forward(model):
    ids = torch.tensor([[5, 17, 3, 42, 8, 21, 60], [9, 1, 33, 2, 7, 50, 11]])
    model(input_ids=ids, decoder_input_ids=ids)


def lines_from_plain_hooks(model):
    """Return the frames up to wo's output, made with hooks of torch and nothing of this package."""
    lines, handles = [], []

    def collect(module, args, kwargs, output, name):
        named = [(f"input[{place}]", value, ">") for place, value in enumerate(args)]
        named += [(f"input[{key!r}]", value, ">") for key, value in kwargs.items()]
        if isinstance(output, tuple):
            named += [(f"output[{place}]", value, "<") for place, value in enumerate(output)]
        else:
            named.append(("output", output, "<"))
        for what, value, sign in named:
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                largest = value.abs().max().item()
                lines.append(f"abs_max={largest:9.2e} {sign} [0] {name}: {type(module).__name__}: {what}")

    for name, module in model.named_modules():
        handles.append(
            module.register_forward_hook(
                lambda module, args, kwargs, output, name=name: collect(module, args, kwargs, output, name),
                with_kwargs=True,
            )
        )
    with torch.no_grad():
        forward(model)
    for handle in handles:
        handle.remove()
    last = next(place for place, line in enumerate(lines) if line.startswith("abs_max=      inf"))
    return lines[: last + 1]
