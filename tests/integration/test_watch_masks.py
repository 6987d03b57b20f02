"""``--tf-watch-masks``: silent mistakes with masks become warnings that name the call site."""

import pytest

from models import IS_V5

SOURCE = """
import pytest, torch
import padding_models

MODEL, INPUTS = padding_models.build("bert")
IDS, MASK = INPUTS["input_ids"], INPUTS["attention_mask"]

def test_right():
    MODEL(IDS, MASK)
    MODEL(IDS.clamp(min=3))

def test_mistake():
    {call}
"""
MISTAKES = {
    "MODEL(IDS)": "without attention_mask, and 1 of 2 rows begin or end with the pad token 0: pads are attended to. "
    "Pass attention_mask.",
    "MODEL(IDS.clamp(min=3), attention_masks=MASK)": "with attention_masks=, which its forward does not know and "
    "ignores. Did you mean attention_mask=?",
    "MODEL(IDS.clamp(min=3), attn_mask=MASK)": "with attn_mask=, which its forward does not know and ignores. Did you "
    "mean attention_mask=?",
    "MODEL(IDS, attention_mask=1 - MASK)": "with an inverted attention_mask: it is 1 at every pad token and 0 at every "
    "other. Write 1 - mask or ~mask.",
    "MODEL(IDS, attention_mask=MASK[:, :1])": "with attention_mask of shape (2, 1) for 10 tokens: it is shorter than "
    "the input. Give it one entry for each token.",
    "MODEL(IDS, attention_mask=(1.0 - MASK) * -1e9)": "with an additive 2-D attention_mask (lowest value -1e+09): *",
}


def run(pytester, call, *args):
    pytester.makepyfile(test_it=SOURCE.format(call=call))
    return pytester.runpytest("-W", "default", *args)


REFUSED = "the BERT of transformers 4 takes no name that it does not know"


def mistakes():
    for call in MISTAKES:
        is_refused = not IS_V5 and ("attention_masks=" in call or "attn_mask=" in call)
        yield pytest.param(call, marks=pytest.mark.skipif(is_refused, reason=REFUSED))


@pytest.mark.parametrize("call", list(mistakes()))
def test_silent_mistake_is_a_warning_at_the_line_that_made_the_call(pytester, call):
    result = run(pytester, call, "--tf-watch-masks")

    result.assert_outcomes(passed=2, warnings=1)
    result.stdout.fnmatch_lines(
        [
            f"*test_it.py:12: TFDebugMaskWarning: test_it.py:12: BertModel was called {MISTAKES[call]}".replace(
                "[", "[[]"
            )
        ]
    )


def test_nothing_is_watched_without_the_flag(pytester):
    run(pytester, "MODEL(IDS)").assert_outcomes(passed=2, warnings=0)


def test_flag_turns_it_on(pytester):
    run(pytester, "MODEL(IDS)", "--tf-watch-masks").assert_outcomes(passed=2, warnings=1)


@pytest.mark.skipif(not IS_V5, reason=REFUSED)
def test_marked_tests_are_always_watched(pytester):
    source = SOURCE.format(call="MODEL(IDS.clamp(min=3), attention_masks=MASK)")
    pytester.makepyfile(test_it=source.replace("def test_mistake", "@pytest.mark.padding_invariant\ndef test_mistake"))

    result = pytester.runpytest("-W", "default")

    result.assert_outcomes(passed=2, warnings=1)
    result.stdout.fnmatch_lines(["*TFDebugMaskWarning: test_it.py:13: BertModel was called with attention_masks=*"])


def test_pad_token_that_ends_sequences_too_is_no_sign_of_padding(pytester):
    call = "MODEL.config.eos_token_id = 0; MODEL(IDS)"

    run(pytester, call, "--tf-watch-masks").assert_outcomes(passed=2, warnings=0)


def test_decoding_with_a_cache_is_no_mistake(pytester):
    call = (
        'model, inputs = padding_models.build("llama"); '
        "model.generate(inputs['input_ids'].flip(1), attention_mask=inputs['attention_mask'].flip(1), max_new_tokens=3)"
    )

    run(pytester, call, "--tf-watch-masks").assert_outcomes(passed=2, warnings=0)
