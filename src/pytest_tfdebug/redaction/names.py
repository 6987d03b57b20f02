"""Names of secrets: of variables, attributes, headers, options, and of parameters of a query."""

from __future__ import annotations

import re
from functools import lru_cache

#: A variable that ends like this says where a secret is, not what it is.
_POINTERS = ("file", "path", "dir", "sock")
#: What is no secret under any name.
SWITCHES = frozenset(
    {"true", "false", "none", "null", "auto", "on", "off", "yes", "no", "undefined", "required", "optional"}
)

PASSWORDS = ("password", "passwd", "passphrase", "passcode", "pass", "pwd")
_SECRET_ENDINGS = (*PASSWORDS, "token", "apikey", "cookie", "sessid", "sessionid")
_NO_PASSWORDS = frozenset({"bypass", "compass", "encompass", "surpass", "trespass"})
_SECRET_WORDS = frozenset(
    "pat auth authorization credential credentials creds cookies jwt sig".split()  # noqa: SIM905 - words
)
#: Too short to tell anything but at the end.
_SECRET_LAST = frozenset({"sid", "pw", "pin", "otp"})
_SECRET_PAIRS = frozenset({("session", "id"), ("webhook", "url"), ("slack", "webhook"), ("discord", "webhook")})
#: What stands before "key" where the key is one that opens something.
_KEYS = re.compile(
    "access|account|aes|anthropic|api|app|application|auth|aws|azure|client|consumer|db|database|deploy|"
    "encrypt|encryption|gcp|google|gpg|hmac|hub|license|master|openai|pgp|priv|private|rsa|secret|security|"
    "service|session|shared|sign|signing|ssh|storage|subscription|wandb|webhook"
)
#: What stands before "token" where it is a token of a vocabulary.
_VOCABULARY = re.compile(
    "additional|audio|begin|boa|boi|bos|class|cls|control|current|decoder|dist|each|end|eoa|eoi|eos|every|extra|"
    "first|forced|generated|global|image|img|input|last|latent|mask|max|min|new|next|num|output|pad|padding|per|"
    "prefix|prev|previous|query|register|sep|special|start|stop|suffix|target|text|unexpected|unk|unknown|video|"
    "vision|word"
)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


@lru_cache(maxsize=4096)
def is_secret_name(name: str) -> bool:
    """Tell whether what goes by this name is a secret: ``HF_TOKEN`` and ``x-api-key``, not ``pad_token``.

    Args:
        name: Name of a variable, an attribute, a header, a parameter of a query or an option.
    """
    words = [word.lower() for word in _WORD.findall(name)]
    if not words or (words[-1] in _POINTERS and len(words) > 1):
        return False
    before = words[:-1]
    last = words[-1]
    if last == "id" and before and before[-1] == "key":  # AWS_ACCESS_KEY_ID, private_key_id
        before, last = before[:-1], "key"
    if before and (before[-1], last) in _SECRET_PAIRS:
        return True
    if last == "token" and before:
        return _VOCABULARY.fullmatch(before[-1]) is None
    if last == "key":
        return (name.isupper() and bool(before)) or (bool(before) and _KEYS.fullmatch(before[-1]) is not None)
    if last in ("signature", "credential"):
        return last == "credential" or (bool(before) and before[0] in ("x", "shared"))
    return (
        any(word in _SECRET_WORDS or "secret" in word for word in words)
        or last in _SECRET_LAST
        or (last.endswith(_SECRET_ENDINGS) and last not in _NO_PASSWORDS)
        or (last.endswith("key") and _KEYS.fullmatch(last[:-3]) is not None)
    )


def is_secret(name: str, value: object) -> bool:
    """Tell whether a value under a name is a secret; switches, numbers and what is empty are none."""
    if isinstance(value, (bool, int, float, type(None))) or value in ("", "***"):
        return False
    return is_secret_name(name) and not (isinstance(value, str) and value.lower() in SWITCHES)
