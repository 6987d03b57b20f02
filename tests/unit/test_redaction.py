"""No form of a secret is shown, and ordinary text is left alone."""

import json
import os
import time
from urllib.parse import quote_plus

import pytest

from pytest_tfdebug.redaction import is_secret_name, redact, redacted
from secret_forms import FORMS, VARIABLES


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_no_form_of_a_secret_is_shown(form):
    shown = redact(form.text)

    assert not [part for part in form.secrets if part in shown], shown


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
@pytest.mark.parametrize(
    "around", ["could not load ({}), see above", "{{'error': {!r}}}", '{{"error": "{}"}}', "first\n{}\nlast"]
)
def test_no_form_is_shown_within_other_text(form, around):
    shown = redact(around.format(form.text))

    assert not [part for part in form.secrets if part in shown], shown


@pytest.mark.parametrize("name", VARIABLES)
def test_value_of_a_secret_variable_is_not_shown(monkeypatch, name):
    monkeypatch.setenv(name, "my/pass word+1")

    for text in ("a/my/pass word+1/b", "q=my%2Fpass%20word%2B1&x", "q=my%2Fpass+word%2B1&x", "my/pass%20word%2B1"):
        assert "pass" not in redact(text)


def test_secret_variable_is_found_as_other_programs_write_it(monkeypatch):
    value = 'pä55 wörd\'\n"second\\line"'
    monkeypatch.setenv("HUB_TOKEN", value)

    for text in (
        repr(value),
        json.dumps(value),
        str(value.encode()),
        quote_plus(value),
        "E   " + value.split("\n")[1],
    ):
        assert not [part for part in ("55", "second") if part in redact(f"it was {text}, refused")]


@pytest.mark.skipif(os.name == "nt", reason="variables are no bytes on Windows")
def test_secret_variable_may_hold_any_bytes(monkeypatch):
    monkeypatch.setitem(os.environb, b"HUB_TOKEN", b"\xff\xfeabcdefgh")

    assert redact("refused: \udcff\udcfeabcdefgh, %FF%FEabcdefgh") == "refused: ***, ***"


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("TOKENIZER_PATH", "/data/llama", "/data/llama/config.json"),
        ("PWD", "/home/me/work", "/home/me/work/test_it.py"),
        ("USE_AUTH", "true", "true or false"),
        ("MY_TOKEN_FILE", "/run/secrets/hub", "cannot read /run/secrets/hub"),
        ("KEY_PASS", "eval", "evaluate"),
        ("COMPASS", "north", "north"),
    ],
)
def test_value_of_another_variable_stays(monkeypatch, name, value, text):
    monkeypatch.setenv(name, value)

    assert redact(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "pad_token=[PAD], token=True, max_token: 3",
        "passing `token=<your_token>`",
        "eos_token: '</s>', mask_token='<mask>', image_token_id=7",
        "num_key_value_heads=4, sort_key=len, past_key_values=None, key='value'",
        "KeyError: 'model.layers.0.self_attn.k_proj.weight'",
        "missing key: model.embed_tokens.weight",
        "second pass: layer 3 of 4",
        "signature: (self, input_ids, attention_mask=None)",
        "https://github.com/huggingface/transformers/blob/main/setup.py",
        "https://unpkg.com/react@18/index.js",
        "git@github.com:owner/name.git",
        "http://localhost:8080/api/models",
        "tests/test_it.py:12: in <module> @pytest.mark.overflow_free",
        "modeling_llama.py:214: scores = query@key.T",
        "lambda x:x@w",
        "a basic transformer and its hooks: https://pytorch.org/docs/hooks.html",
        "someone@example.com wrote: see 12:30",
        "tokenizer=AutoTokenizer, author: someone",
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)",
        "cuda:0, torch.float32, model.layers[0].mlp: Linear(4, 4)",
        "First token: position 9 of row 0; 1 of 10 real positions differ",
        "hf_transfer_enabled is set, and HF_HUB_ENABLE_HF_TRANSFER=1",
        "test_modeling_llama.py::LlamaModelTest::test_eager_matches_sdpa_inference_00_fp16_pad_left_sdpa_kernels",
        "Wav2Vec2ConformerForXVector, test_Qwen2_5OmniThinkerForConditionalGeneration, cp311-manylinux_2_17_x86_64",
        "models--bert/snapshots/2b7ae12f4c0d9e8f1a3b5c7d9e0f1a2b3c4d5e6f, job-123e4567-e89b-12d3-a456-426614174000",
        "tensor([0x9f8e7d6c, 0x1234abcd]), run 9f8e7d6c5b4a39281706f5e4d3c2b1a0 of 3",
        "python -p no:cacheprovider -u train.py, conda.sh, model-00001-of-00002.safetensors, https://h/x?wide",
        "['pad_token', 'eos_token'], columns=['token', 'label'], tokens: str = 'a', set output_attentions true",
        "bypass=always, pin_memory_device=cuda, class_token=first, spin: up",
    ],
)
def test_ordinary_text_stays(text):
    assert redact(text) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("see https://user:password@host/path now", "see https://***@host/path now"),
        ("login with token=abcdef, then retry", "login with token=***, then retry"),
        ("{'token': 'abcdef', 'revision': 'main'}", "{'token': '***', 'revision': 'main'}"),
        ("Authorization: Bearer abcdef\nAccept: */*", "Authorization: ***\nAccept: */*"),
        ("https://host/file?key=abcdef&x=1", "https://host/file?key=***&x=***"),
        ("Server=db;Password=my pass word;Database=x", "Server=db;Password=***;Database=x"),
    ],
)
def test_what_stands_around_a_secret_stays(text, expected):
    assert redact(text) == expected


def test_what_was_masked_stays_masked():
    for form in FORMS:
        assert redact(redact(form.text)) == redact(form.text)


def test_value_is_redacted_by_its_key_and_by_its_form():
    value = {
        "api_key": "abcdef",
        "pad_token": "[PAD]",
        "eos_token_id": 2,
        "nested": [{"auth": {"user": "me"}}],
        "use_auth_token": True,
    }

    assert redacted(value) == {
        "api_key": "***",
        "pad_token": "[PAD]",
        "eos_token_id": 2,
        "nested": [{"auth": "***"}],
        "use_auth_token": True,
    }


@pytest.mark.parametrize(
    "name", [*VARIABLES, "x-api-key", "authToken", "X-Amz-Credential", "private_key_id", "csrftoken"]
)
def test_secret_is_known_by_its_name(name):
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name", ["bos_token", "vocab_size", "token_type_ids", "pad_token_id", "keys", "key", "num_key_value_heads", "PATH"]
)
def test_other_names_are_no_secrets(name):
    assert not is_secret_name(name)


@pytest.mark.parametrize(
    "part",
    [
        "a",
        "a:",
        "a=",
        "://",
        "https://",
        "a://b:c",
        "%3A",
        "a%3Abcd",
        "token='",
        "password=(",
        "-u ",
        "eyJ",
        "a-",
        "\\",
    ],
)
def test_time_grows_with_the_length_of_the_text(part):
    began = time.process_time()

    redact(part * (100_000 // len(part)))

    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    "line",
    [
        "q_rot, q_pass = q[..., :size], q[..., size:]",
        "query_rot, query_pass = (",
        "token = self.embed(ids)",
    ],
)
def test_line_of_a_model_is_shown_as_it_is(line):
    assert redact(line) == line
