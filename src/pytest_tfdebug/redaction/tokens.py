"""Tokens that tell themselves: behind a prefix, by their length, or in a form that detect-secrets knows."""

from __future__ import annotations

import importlib
import pkgutil
import re
from functools import cache

MASK = "***"
#: Characters above which a text is not shown to the rules of detect-secrets, which take the square of its length.
_LONGEST = 20_000
#: A word that may be a token, its parts joined by ``-``, ``_`` or ``.``.
_WORD = re.compile(r"(?<![\w.-])[A-Za-z0-9][\w.-]{19,}[\w+/=-]*")
#: What stands before a token: ``hf_``, ``sk-``, ``wandb_v1_``.
_PREFIX = re.compile(r"[A-Za-z][A-Za-z0-9]{1,15}[-_.](?:v\d+[-_])?")
#: Prefixes of model hubs, trackers and code hosts: whatever stands behind them, if it is long enough.
_OURS = re.compile(
    r"(?i)(?:hf|api_org|whsec|wandb|nvapi|gh[pousr]|github_pat|gl[a-z]{2,5}t|sk|rk|xox[a-z]|xapp|co|ya29)[-_.]"
)
_PART = re.compile(r"[A-Za-z0-9]{16,}")
_CAPITALS = re.compile(r"(?=[A-Z]*\d[A-Z]*\d)[A-Z0-9]{16,}")
_TURN = re.compile(r"(?<=[a-z])[A-Z]|(?<=[A-Za-z])\d|(?<=\d)[A-Za-z]")
#: In a word that nobody has named, letters and digits, small and capital, take turns: more than a quarter of its
#: letters begin another kind. In names of classes a fifth do.
_DRAWN = 0.26
#: Without a prefix only a longer one counts, of both cases: a checksum stays.
_LONG = 32
#: Rules of detect-secrets that are about other things than tokens.
_OTHERS = frozenset({"basic_auth", "ip_public", "keyword", "high_entropy_strings", "private_key"})


def without_tokens(text: str) -> str:
    """Return a text with every token masked, its prefix left: ``hf_***``."""
    words = [found[0] for found in _WORD.finditer(text)]
    if any(map(_is_drawn, words)) and len(text) <= _LONGEST:
        for pattern in _known():
            text = pattern.sub(_masked, text)
    return _WORD.sub(_judged, text) if words else text


def _is_drawn(word: str, begin: int = 0) -> bool:
    """Tell whether a part of a word was drawn at random."""
    parts = [part[0] for part in _PART.finditer(word, begin)]
    return any(len(_TURN.findall(part)) > _DRAWN * len(part) or _CAPITALS.fullmatch(part) for part in parts)


def _judged(found: re.Match[str]) -> str:
    word = found[0]
    ours, prefix = _OURS.match(word), _PREFIX.match(word)
    if ours is not None and _PART.search(word, ours.end()) is not None and not _is_words(word[ours.end() :]):
        return f"{ours[0]}{MASK}"
    if prefix is not None and _is_drawn(word, prefix.end()):
        return f"{prefix[0]}{MASK}"
    has_both = word != word.lower() and word != word.upper()
    return MASK if has_both and any(len(each) >= _LONG and _is_drawn(each) for each in _PART.findall(word)) else word


def _is_words(text: str) -> bool:
    """Tell whether a text has small letters alone, as words have."""
    return text.replace("_", "").replace("-", "").isalpha() and text.islower()


def _masked(found: re.Match[str]) -> str:
    """Mask what a rule of detect-secrets has found: its last group, or all of it."""
    secret = next((group for group in reversed(found.groups()) if group), None)
    return MASK if secret is None or len(secret) < len(found[0]) // 2 else found[0].replace(secret, MASK)


@cache
def _known() -> tuple[re.Pattern[str], ...]:
    """Return the patterns of detect-secrets; importing them takes a third of a second."""
    import detect_secrets.plugins
    from detect_secrets.plugins.base import RegexBasedDetector

    found: list[re.Pattern[str]] = []
    for module in pkgutil.iter_modules(detect_secrets.plugins.__path__):
        if module.name in _OTHERS:
            continue
        for kind in vars(importlib.import_module(f"detect_secrets.plugins.{module.name}")).values():
            is_rule = isinstance(kind, type) and issubclass(kind, RegexBasedDetector) and kind is not RegexBasedDetector
            found += kind.denylist if is_rule else ()
    return tuple(dict.fromkeys(found))
