"""Ports that agree with their reference in the call of a test, and not in others: each on a model of transformers."""

import pytest
import torch
from transformers import BertConfig, BertForMaskedLM, BertModel, MistralConfig, MistralForCausalLM, ViTConfig, ViTModel

import pytest_tfdebug

IDS = torch.randint(3, 99, (2, 8), generator=torch.Generator().manual_seed(0))
MASK = torch.ones_like(IDS)
PADDED = torch.tensor([[1, 1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 0, 0, 0]])
SMALL = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}


def mistral(window=12, cls=MistralForCausalLM):
    config = MistralConfig(vocab_size=99, num_key_value_heads=1, head_dim=16, sliding_window=window, **SMALL)
    return pytest_tfdebug.fill(cls(config).eval(), seed=0)


def penalised():
    model = mistral()
    model.generation_config.update(num_beams=3, repetition_penalty=1.5, no_repeat_ngram_size=2)
    return model


def bert(cls=BertModel):
    return pytest_tfdebug.fill(cls(BertConfig(vocab_size=99, max_position_embeddings=64, **SMALL)).eval(), seed=0)


def vit(cls=ViTModel):
    return pytest_tfdebug.fill(cls(ViTConfig(image_size=16, patch_size=4, **SMALL)).eval(), seed=0)


def masked(cls=BertForMaskedLM):
    return bert(cls)


class AllLabels(BertForMaskedLM):
    """Its loss counts every label."""

    def forward(self, input_ids, labels=None):
        logits = super().forward(input_ids).logits
        each = torch.nn.functional.cross_entropy(logits.mT, labels.clamp(min=0), reduction="none")
        return {"loss": each.mean(), "logits": logits}


class Unshifted(MistralForCausalLM):
    """Holds each token to itself, not to the next."""

    def forward(self, input_ids, labels=None):
        logits = super().forward(input_ids, use_cache=False).logits
        loss = None if labels is None else torch.nn.functional.cross_entropy(logits.mT, labels)
        return {"loss": loss, "logits": logits}


def untied():
    model = masked()
    decoder = model.cls.predictions.decoder
    decoder.weight = torch.nn.Parameter(decoder.weight.detach().clone())
    return model


class Detached(BertForMaskedLM):
    """Cuts its body off the graph."""

    def forward(self, input_ids, labels=None):
        logits = self.cls(self.bert(input_ids).last_hidden_state.detach())
        return {"loss": torch.nn.functional.cross_entropy(logits.mT, labels), "logits": logits}


class OneSegment(BertModel):
    def forward(self, input_ids, attention_mask=None, token_type_ids=None):
        return super().forward(input_ids, attention_mask)


class FirstMask(BertModel):
    """Keeps the first mask of a shape."""

    known = {}  # noqa: RUF012 - what is wrong

    def forward(self, input_ids, attention_mask=None):
        return super().forward(input_ids, self.known.setdefault(attention_mask.shape, attention_mask.clone()))


class Scaling(ViTModel):
    """Scales its own input."""

    def forward(self, pixel_values):
        pixel_values.mul_(2).div_(2).add_(1)
        return super().forward(pixel_values - 1)


class Turned(ViTModel):
    """Sees images that are not square in a mirror."""

    def forward(self, pixel_values, interpolate_pos_encoding=None):
        is_square = pixel_values.shape[-1] == pixel_values.shape[-2]
        seen = pixel_values if is_square else pixel_values.flip(-1)
        return super().forward(seen, interpolate_pos_encoding=interpolate_pos_encoding)


class FromTheStart(MistralForCausalLM):
    """Counts the positions of each call from 0."""

    def forward(self, input_ids, position_ids=None, **others):
        return super().forward(input_ids, position_ids=torch.arange(input_ids.shape[1])[None], **others)


class Tokens(MistralForCausalLM):
    """Generates by a method of its own, which returns the new tokens alone."""

    def generate(self, tokens, count):
        return super().generate(tokens, max_new_tokens=count, do_sample=False)[:, tokens.shape[1] :]


class Samples(MistralForCausalLM):
    """Draws its tokens."""

    def generate(self, input_ids):
        return super().generate(input_ids, max_new_tokens=6, do_sample=True)


class Endless(MistralForCausalLM):
    """Generates until a token that never comes."""

    def generate(self, input_ids, max_new_tokens=None):
        while True:
            input_ids = torch.cat([input_ids, self(input_ids).logits[:, -1:].argmax(-1)], 1)


class Untold(MistralForCausalLM):
    """Gives as many tokens as it likes."""

    def generate(self, input_ids):
        raise AssertionError


class Counting(BertModel):
    """Adds the number of calls before."""

    def __init__(self, config):
        super().__init__(config)
        self.register_buffer("calls", torch.zeros(()), persistent=False)

    def forward(self, input_ids, attention_mask=None):
        found = super().forward(input_ids, attention_mask)
        found["last_hidden_state"] = found["last_hidden_state"] + self.calls
        self.calls += 1
        return found


CHECKED = """
import torch
from test_elsewhere import IDS, MASK, PADDED, AllLabels, Counting, Detached, Endless, FirstMask, FromTheStart, OneSegment, Samples
from test_elsewhere import Scaling, Tokens, Turned, Unshifted, Untold, bert, masked, mistral, penalised, untied, vit

def test_it(tf_golden):
    reference, port = {reference}, {port}
    tf_golden.check(port, reference=reference, {inputs})
"""
TIED = "bert.embeddings.word_embeddings.weight, cls.predictions.decoder.weight"
TWICE = "A second call of the port on the same inputs gives another answer: its forward changes calls. The reference's does not."
WRONG = {
    "window": (
        "mistral()",
        "mistral(window=None)",
        "input_ids=IDS, use_cache=False",
        "With the tokens in another order, 24 more tokens and a row more, the port differs from its reference: modeling_",
    ),
    "segments": (
        "bert()",
        "bert(OneSegment)",
        "input_ids=IDS, attention_mask=MASK, token_type_ids=MASK * 0",
        "With token_type_ids of 0 and 1, the port differs from its reference: modeling_bert.py:",
    ),
    "memo": (
        "bert()",
        "bert(FirstMask)",
        "input_ids=IDS, attention_mask=PADDED",
        "With pads at the end of the last row, by attention_mask, the port differs from its reference: test_elsewhere.py:",
    ),
    "its own input": (
        "vit()",
        "vit(Scaling)",
        "pixel_values=torch.linspace(-1, 1, 1536).view(2, 3, 16, 16)",
        "The port's forward writes to its input pixel_values, and the reference's does not.",
    ),
    "ignored labels": (
        "masked()",
        "masked(AllLabels)",
        "input_ids=IDS, labels=IDS",
        "With labels of -100 at the end of each row, the port differs from its reference: test_elsewhere.py:",
    ),
    "labels": (
        "mistral(window=None)",
        "mistral(None, Unshifted)",
        "input_ids=IDS, use_cache=False",
        "With labels, the port differs from its reference: test_elsewhere.py:",
    ),
    "ties": (
        "masked()",
        "untied()",
        "input_ids=IDS",
        f"{TIED} are two weights, which training moves apart; the reference's {TIED} are one.",
    ),
    "gradients": (
        "masked()",
        "masked(Detached)",
        "input_ids=IDS, labels=IDS",
        "No gradient of its loss reaches bert.embeddings.position_embeddings.weight, bert.embeddings.",
    ),
    "image": (
        "vit()",
        "vit(Turned)",
        "pixel_values=torch.linspace(-1, 1, 1536).view(2, 3, 16, 16)",
        "With pixel_values twice as wide, the port differs from its reference: test_elsewhere.py:",
    ),
    "generate": (
        "mistral(window=None)",
        "mistral(None, FromTheStart)",
        "input_ids=IDS, use_cache=False",
        (
            "Its generate() gives the tokens 58 85 38 63 28 19 where its reference's gives 58 38 22 19 2 2, on the test's inputs "
            "without pads, choosing the likeliest token each time."
        ),
    ),
    "state": ("bert()", "bert(Counting)", "input_ids=IDS, attention_mask=MASK", TWICE),
}


@pytest.mark.parametrize("kind", WRONG)
def test_port_that_differs_elsewhere_passes_with_a_warning_that_says_where(pytester, kind):
    reference, port, inputs, told = WRONG[kind]
    pytester.makepyfile(test_it=CHECKED.format(reference=reference, port=port, inputs=inputs))

    result = pytester.runpytest("--tf-golden=update", "-W", "default")

    result.assert_outcomes(passed=1)
    named = {
        "window": "MistralForCausalLM",
        "labels": "Unshifted",
        "ties": "BertForMaskedLM",
        "generate": "FromTheStart",
    }.get(kind, port.removesuffix(")").partition("(")[2])
    assert f"CoverageWarning: {named}: {told}" in " ".join(result.stdout.str().split())


@pytest.mark.parametrize("kind", [kind for kind in WRONG if kind not in ("gradients", "state")])
def test_right_port_is_quiet(pytester, kind):
    reference, _, inputs, _ = WRONG[kind]
    pytester.makepyfile(test_it=CHECKED.format(reference=reference, port=reference, inputs=inputs))

    result = pytester.runpytest("--tf-golden=update", "-W", "error::pytest_tfdebug.errors.CoverageWarning")

    result.assert_outcomes(passed=1)


@pytest.mark.parametrize("port", ["Tokens", "Samples"])
def test_generate_of_another_form_and_one_that_draws_its_tokens_are_quiet(pytester, port):
    checked = CHECKED.format(
        reference="mistral()", port=f"mistral(cls={port})", inputs="input_ids=IDS, use_cache=False"
    )
    pytester.makepyfile(test_it=checked)

    result = pytester.runpytest("--tf-golden=update", "-W", "error::pytest_tfdebug.errors.CoverageWarning")

    result.assert_outcomes(passed=1)


class Drawing(BertModel):
    """Draws a random number, which changes nothing."""

    def forward(self, input_ids, attention_mask=None):
        found = super().forward(input_ids, attention_mask)
        found["last_hidden_state"] = found["last_hidden_state"] + 0 * torch.rand(())
        return found


STATES = """
import random
import torch
from test_elsewhere import IDS, MASK, Drawing, bert

def test_it(tf_golden):
    port, reference = bert(Drawing), bert(Drawing)
    before = torch.random.get_rng_state(), random.getstate()
    tf_golden.check(port, reference=reference, input_ids=IDS, attention_mask=MASK)
    assert torch.equal(torch.random.get_rng_state(), before[0])
    assert random.getstate() == before[1]
"""


def test_generators_of_random_numbers_are_as_they_were(pytester):
    pytester.makepyfile(test_it=STATES)

    result = pytester.runpytest("--tf-golden=update")

    result.assert_outcomes(passed=1)
