"""The one way out for text: nothing in it steers a terminal, and it holds no secret.

A secret is a token, a password, a key, a cookie, and what secret variables of the environment hold. :func:`redact`
masks, as ``***``, the values of variables with a secret's name, what stands behind such a name, forms that tell a
secret by themselves, and words that were drawn at random. It rather masks a word too many than one too few.
"""

from __future__ import annotations

import json
import os
import re
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, quote_plus

if TYPE_CHECKING:
    from collections.abc import Sequence

MASK = "***"
#: What is no secret under any name.
SWITCHES = frozenset(
    {"true", "false", "none", "null", "auto", "on", "off", "yes", "no", "undefined", "required", "optional"}
)
#: A variable that ends like this says where a secret is, not what it is; and where the shell is and was.
_POINTERS, _PLACES = ("file", "path", "dir", "sock"), ("PWD", "OLDPWD")
#: What stands before "key" where the key is one that opens something.
_KEYS = (
    "access|account|aes|anthropic|api|app|application|auth|aws|azure|client|consumer|db|database|deploy|encrypt|"
    "encryption|gcp|google|gpg|hmac|hub|license|master|openai|pgp|priv|private|rsa|secret|security|service|session|"
    "shared|sign|signing|ssh|storage|subscription|wandb|webhook"
)
#: What stands before "token" where it is a token of a vocabulary.
_VOCABULARY = (
    "additional|audio|begin|boa|boi|bos|class|cls|control|current|decoder|dist|each|end|eoa|eoi|eos|every|extra|first|"
    "forced|generated|global|image|img|input|last|latent|mask|max|min|new|next|num|output|pad|padding|per|prefix|prev|"
    "previous|query|register|sep|special|start|stop|suffix|target|text|unexpected|unk|unknown|video|vision|word"
)
_PASSWORDS = "password|passwd|passphrase|passcode|pwd"
#: Names of secrets, their words in small letters and joined by ``_``.
_SECRET = re.compile(
    rf"""
    (?:^|_)(?:pat|auth|authorization|credentials?|creds|cookies|jwt|sig)(?:_|$) | secret | (?:^|_)(?:sid|pw|pin|otp)$
    | (?:{_PASSWORDS}|apikey|cookie|sessid|sessionid)$ | (?:^|_)(?!(?:by|com|encom|sur|tres)pass$)[a-z]*pass$
    | ^token$ | (?:^|_)[a-z]+token$ | (?:^|_)(?!(?:{_VOCABULARY})_)[a-z0-9]+_token$
    | (?:^|_)(?:{_KEYS})_?key(?:_id)?$ | session_id$ | webhook_url$ | (?:slack|discord)_webhook$
    | ^(?:x|shared)_(?:\w+_)?signature$
    """,
    re.VERBOSE,
)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


@lru_cache(maxsize=4096)
def is_secret_name(name: str) -> bool:
    """Tell whether what goes by this name is a secret: ``HF_TOKEN`` and ``x-api-key``, not ``pad_token``.

    Args:
        name: Name of a variable, an attribute, a header, a parameter of a query or an option.
    """
    words = [word.lower() for word in _WORD.findall(name)]
    joined = "_".join(words)
    if len(words) > 1 and words[-1] in _POINTERS:
        return False
    return _SECRET.search(joined) is not None or (name.isupper() and joined.endswith(("_key", "_key_id")))


def is_secret(name: str, value: object) -> bool:
    """Tell whether a value under a name is a secret; switches, numbers and what is empty are none."""
    if isinstance(value, (bool, int, float, type(None))) or value in ("", MASK):
        return False
    return is_secret_name(name) and not (isinstance(value, str) and value.lower() in SWITCHES)


def leaving(text: str, *, keep: str = "") -> str:
    """Return a text as it may be shown: without secrets, and with what could steer a terminal written out.

    Args:
        text: What a model, a test or a file is called, or says.
        keep: Characters that stay, such as line breaks.
    """
    return printable(redact(text), keep=keep)


def printable(text: str, *, keep: str = "") -> str:
    """Return a text with every character that could steer a terminal or a parser written out; ``keep`` stays.

    Under a CI server, whose runner reads the log, nothing in it begins a command either.
    """
    if not text.isprintable():
        text = "".join(
            character if character.isprintable() or character in keep else character.encode("unicode_escape").decode()
            for character in text
        )
    return without_commands(text)


def without_commands(text: str) -> str:
    """Return a text in which no line begins a command of a CI server's runner, which reads the log; elsewhere as is."""
    if not ("::" in text or "##" in text) or ci_server() is None:
        return text
    return _COMMAND.sub(lambda found: "# #" if found[1] is None else f"{found[1]}: :", text)


_FALSE = frozenset({"", "0", "false", "no", "off"})
#: What CI servers set: most of them CI; Jenkins, Azure Pipelines, TeamCity and CodeBuild a name of their own.
_SERVERS = ("CI", "GITHUB_ACTIONS", "JENKINS_URL", "TF_BUILD", "TEAMCITY_VERSION", "CODEBUILD_BUILD_ID")
#: What begins a command: of GitHub at the beginning of a line, of older runners, Azure and TeamCity anywhere in it.
_COMMAND = re.compile(r"(?m)^([ \t]*)::|##(?=\w*\[)")


def ci_server() -> str | None:
    """Return the variable by which a CI server is known; ``CI=false`` says that it is none."""
    set_to = {name: os.environ[name].strip().lower() for name in _SERVERS if os.environ.get(name)}
    if set_to.get("CI") in _FALSE:
        return None
    return next((name for name, value in set_to.items() if value not in _FALSE), None)


def redact(text: str) -> str:
    """Return the text without secrets."""
    return _without(_secrets_of_the_environment(), text)


def redacted(value: Any, *, keep: str | None = None) -> Any:  # noqa: ANN401 - any JSON value
    """Return a JSON value without secrets in its texts, and with nothing under the names of secrets but switches.

    With ``keep`` its texts are :func:`printable` as well.
    """
    known: dict[str, str] = {}  # records repeat their texts thousands of times
    values = _secrets_of_the_environment()

    def of(value: Any) -> Any:  # noqa: ANN401 - as above
        if isinstance(value, str):
            if value not in known:
                text = _without(values, value)
                known[value] = text if keep is None else printable(text, keep=keep)
            return known[value]
        if isinstance(value, dict):
            return {
                of(key): MASK if isinstance(key, str) and is_secret(key, item) else of(item)
                for key, item in value.items()
            }
        return [of(item) for item in value] if isinstance(value, (list, tuple)) else value

    return of(value)


#: Values shorter than this stand for too much else to be looked for, and up to the second only whole words count.
_SHORTEST, _WHOLE = 4, 8


def _secrets_of_the_environment() -> Sequence[str]:
    """Return the values of secret variables, and their lines, as they are and as addresses, JSON and Python write them.

    The long ones come first: one may hold another.
    """
    known = [
        text
        for name, value in os.environ.items()
        if name not in _PLACES and is_secret(name, value)
        for text in (value, *value.splitlines())
        if len(text) >= _SHORTEST and not text.isspace()
    ]
    forms = set(known)
    for text in known:
        content = os.fsencode(text)  # a variable may hold any bytes
        forms |= {quote(content, safe=""), quote(content), quote_plus(content), repr(content)[2:-1]}
        forms |= {json.dumps(text)[1:-1], repr(text)[1:-1], text.encode("unicode_escape").decode()}
    return sorted(forms, key=len, reverse=True)


#: A name or a module path: no sign of a secret can stand in it.
_PLAIN = re.compile(r"(?!.*(?:hf|api_org)_)(?!.*[A-Za-z0-9]{16})[\w.]*")
#: What is asked of an address, of which no value is shown: nobody knows which of them lets one in.
_QUERY = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{1,20}:/{1,3}[^\s'\"<>?#]{1,1000}\?)([^\s'\"<>#]+)")
#: The value of each of its parts, and a part that is long and has no name.
_ASKED = re.compile(r"(?<==)[^&]+|(?:(?<=^)|(?<=&))[^=&]{16,}(?=&|$)")
#: A name, and a value beside it: of an option, of a call such as ``setenv``, in a list of variables, in a shell.
_BESIDE = tuple(
    re.compile(pattern)
    for pattern in (
        r"((?<![\w-])--?(?P<name>[A-Za-z][\w-]*)\s+)(?:'[^']*'|\"[^\"]*\"|(?!-)[^\s'\"]+)",
        r"(['\"](?P<name>(?=\w*[A-Z_-])[\w-]+)['\"],\s*(?:['\"]value['\"]:\s*)?[bru]?['\"])[^'\"]+",
        r"(\bname:\s*['\"]?(?P<name>\w+)['\"]?(?:\s|\\n)+value:\s*)[^\s,}]+",
        r"(\b(?:set|setenv|export)\s+(?P<name>[A-Z]\w*)\s+)(?:'[^']*'|\"[^\"]*\"|[^\s'\"]+)",
    )
)
_HOST = r"(?=@[A-Za-z0-9\[])"
#: What stands behind an option: in quotes or as a word.
_ARGUMENT = r"""(?:'[^'\r\n]+'|"[^"\r\n]+"|[^\s'"]+)"""
#: Forms that are secret whatever stands before them; their first group stays.
_FORMS = tuple(
    re.compile(pattern)
    for pattern in (
        # a private key, with line ends as they are or written out; an end that was cut off is no reason to show it
        r"(?s)(-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----).*?(?:-----END [A-Z0-9 ]*-----|\Z)",
        r"(?s)(Private-Lines:\s*\d+\s*)(?!\s).*?(?=\s*Private-MAC|\Z)",  # a key of PuTTY
        r"(?i)(\bPrivate-MAC:\s*)\w+",
        r"(?i)((?<![\w-])(?:(?:proxy-)?authorization|(?:set-)?cookie2?)\s*:\s*)(?!['\"])[^\r\n'\"]+",
        r"(?i)(['\"](?:authorization|(?:set-)?cookie)['\"],\s*b?['\"])[^'\"]+",
        r"(?i)(<(\w*(?:password|passwd|passphrase|token|secret|credentials?|api_?key))>)[^<>]+(?=</\2>)",
        # user:password@host and token@host, the password with slashes, signs and spaces
        rf"((?:[A-Za-z0-9+.-]{{1,40}}:/{{1,3}}|(?<![\w:/])//))[^\s/:@'\"<>]*:[^\r\n'\"<>]{{0,200}}[^\s'\"<>]{_HOST}",
        r"([A-Za-z0-9+.-]{1,40}:/{1,3})[^/\s'\"<>]+(?=@)",
        rf"()(?<![\w/.%+-])[A-Za-z_][\w.+%-]*:(?!//|\d+[:,)\s])[^\s:'\"@][^\r\n'\"]{{2,80}}?(?<!\s){_HOST}",
        r"(?i)()(?<![\w/.%+-])[A-Za-z_][\w.+-]*%(?:25)*3A[^\s'\"@/:]{3,200}?(?=%(?:25)*40[A-Za-z0-9])",
        # .netrc, on one line or on several
        r"(?i)(\b(?:(?:machine|login)\s+\S+|default)(?:\s+(?:login|account)\s+\S+)*\s+password\s+)\S+",
        r"(?im)(^\s*password\s+)\S+(?=\s*$)",
        # addresses that let whoever knows them write
        r"(?i)(https?:/{1,2}(?:hooks\.[^/\s]+|[^\s'\"<>]{0,200}?webhook[^/\s]*|[^\s'\"<>]{0,200}?/(?:incoming|hook))/)[^\s'\"<>]+",
        r"(?i)(\bconda\.[^\s/'\"]+/t/)[^\s/'\"]+",
        r"(?i)(\bbearer(?:\s+|%20))[A-Za-z0-9._~+/=-]{8,}",
        r"(?i)(\bbasic\s+)(?=\S*[\d=])[A-Za-z0-9+/]{8,}={0,2}",
        r"(\b(?:hf|api_org)_)(?!\w*_)[A-Za-z0-9]{10,}",  # and not hf_transfer_enabled
        r"(\b(?:A[BKS]IA|AIza|LTAI))(?=\w*\d)[\w-]{16,}",
        r"()\b(?:SK|AC|dapi)[0-9a-f]{32}\b|\bAGE-SECRET-KEY-1[A-Z0-9]+",
        # passwords of commands, and of Kaggle's file
        r"((?<![\w.-])(?:-u|-U|--(?:proxy-)?user)(?:\s+|=))(?:'[^':]+:[^']*'|\"[^\":]+:[^\"]*\"|[^\s:'\"]+:\S+)",
        rf"(?i)(\b(?:mysql\w*|mariadb\w*)\b[^\r\n]{{0,200}}?\s-p){_ARGUMENT}",
        rf"(?i)(\bsshpass\s+-p\s*|\bdocker\s+login\b[^\r\n]{{0,200}}?\s-p\s+|\bredis-cli\b[^\r\n]{{0,200}}?\s-a\s+){_ARGUMENT}",
        r"(?i)(\bwandb\s+login\s+(?:--\w+\s+)*)[0-9a-f]{40}\b",
        r"""(['"]username['"]:\s*['"][^'"]*['"],\s*['"]key['"]:\s*['"])[^'"]+""",
    )
)


def _without(values: Sequence[str], text: str) -> str:
    """Return a text without some values, and without every form of a secret."""
    for value in values:
        if value in text:
            is_long = len(value) >= _WHOLE
            text = text.replace(value, MASK) if is_long else re.sub(rf"(?<!\w){re.escape(value)}(?!\w)", MASK, text)
    if _PLAIN.fullmatch(text):
        return text
    text = _QUERY.sub(lambda found: found[1] + _ASKED.sub(MASK, found[2]), text)
    for pattern in _FORMS:
        text = pattern.sub(lambda found: f"{found[1] or ''}{MASK}", text)
    text = _drawn(text)
    for pattern in _BESIDE:
        text = pattern.sub(lambda found: f"{found[1]}{MASK}" if is_secret_name(found["name"]) else found[0], text)
    return _without_named(text)


_QUOTE = r"(?:\\?['\"]|%22|%27)"
#: ``=``, ``:``, and what stands between where a name has a type: ``: str =``.
_SIGN = r"(?:\s*(?:=>|:=|=|:\s*[A-Za-z_][\w.|\[\] ]{0,40}?\s*=(?=\s*[bru]?['\"])|:)\s*)"
#: ``name=``, ``"name": ``, ``name%3D``, and the sign of a query before it.
_NAMED = re.compile(
    rf"""
    (?P<before>(?:[?&]|%(?:25)*(?:3F|26))?)
    (?:(?<![A-Za-z0-9_])|(?<=%[0-9A-Fa-f]{{2}}))(?P<name>[A-Za-z_][A-Za-z0-9_.-]{{0,80}})
    (?P<sep>{_QUOTE}?\]?(?:{_SIGN}|%(?:25)*(?:3D|3A)(?:%(?:25)*20|\+)*)(?:[bru]{{1,2}}(?=['"]))?)
    """,
    re.VERBOSE | re.IGNORECASE,
)
_VALUE = re.compile(
    r"""
    \\"(?:(?!\\").)*(?:\\"|$) | \\'(?:(?!\\').)*(?:\\'|$)
    | "(?:[^"\\]|\\.)*(?:"|$) | '(?:[^'\\]|\\.)*(?:'|$)
    | %22.*?%22 | %27.*?%27
    | \([^()\n]*\) | \{[^{}\n]*\} | \[[^\[\]\n]*\]
    | (?:(?:bearer|basic|token|negotiate|digest)(?:\s+|%20|\+))?(?:(?!%(?:25)*26)[^\s'"`&,;<>)\]}])+
    | <[^<>\n]*>
    """,
    re.VERBOSE | re.IGNORECASE,
)
#: The rest of a password that has spaces: up to a sign that ends it, the next ``name=``, or the end of the line.
_REST = re.compile(r"(?:[ \t]+(?![\w.-]+[ \t]*[=:])[^\s'\"`&,;<>]+)+")
_OF_A_PASSWORD = re.compile(rf"(?i)(?:{_PASSWORDS}|pass)$")
#: How an expression begins: a call, an item, or a bracket that its line does not close.
_EXPRESSION = re.compile(r"[A-Za-z_][\w.]*[\[(]|[(\[{]$")


def _without_named(text: str) -> str:
    """Mask what stands behind the name of a secret and a ``=`` or ``:``."""
    parts: list[str] = []
    position = begin = 0
    while found := _NAMED.search(text, begin):
        begin = found.end("name")  # what stands behind a name that is no secret's may be a name: "url: token='...'"
        value = _VALUE.match(text, found.end()) if _names_a_secret(found) else None
        if value is None or _is_harmless(found, value[0]):
            continue
        closing = quoted[0] if (quoted := re.match(_QUOTE, value[0])) else ""
        parts += [text[position : value.start()], closing, MASK, closing]
        position = value.end()
        if _OF_A_PASSWORD.search(found["name"]) and value[0][0] not in "'\"\\([{%":
            rest = _REST.match(text, position)
            position = rest.end() if rest is not None else position
        begin = position
    return "".join([*parts, text[position:]])


def _names_a_secret(found: re.Match[str]) -> bool:
    """Tell whether a name before a sign is that of a secret, and no word of prose: "second pass: layer 3"."""
    name, sep = found["name"].lower(), found["sep"]
    if found["before"] and name in ("key", "signature", "code"):
        return True
    if name in ("pass", "sig", "pin") and sep.endswith(": "):
        return sep[0] in "'\"\\"
    return is_secret_name(found["name"])


def _is_harmless(found: re.Match[str], value: str) -> bool:
    """Tell whether a value is a switch, a placeholder, masked already, code of a model or the prose of a report."""
    inner, sep = value.strip("'\"\\"), found["sep"]
    if sep == " = " and _EXPRESSION.match(value):  # query_pass = query[..., size:]
        return True
    if sep == ": " and found["name"].lower() == "token" and value.isalpha() and value.islower():  # token: position 3
        return True
    return inner.lower() in SWITCHES or not inner.strip("*") or re.fullmatch(r"<[^<>]*>|\[[A-Z]+\]", inner) is not None


#: Characters above which a text is not shown to the rules of detect-secrets, which take the square of its length.
_LONGEST = 20_000
#: A word that may be a token, its parts joined by ``-``, ``_`` or ``.``; and what stands before one: ``hf_``, ``sk-``.
_TOKEN = re.compile(r"(?<![\w.-])[A-Za-z0-9][\w.-]{19,}[\w+/=-]*")
_PREFIX = re.compile(r"[A-Za-z][A-Za-z0-9]{1,15}[-_.](?:v\d+[-_])?")
#: Prefixes of model hubs, trackers and code hosts: whatever stands behind them, if it is long enough.
_OURS = re.compile(
    r"(?i)(?:hf|api_org|whsec|wandb|nvapi|gh[pousr]|github_pat|gl[a-z]{2,5}t|sk|rk|xox[a-z]|xapp|co|ya29|hvs|tskey|pul|lsv2)[-_.]"
)
_PART = re.compile(r"[A-Za-z0-9]{16,}")
_CAPITALS = re.compile(r"(?=[A-Z]*\d[A-Z]*\d)[A-Z0-9]{16,}")
#: In a word that nobody has named, letters and digits, small and capital, take turns: more than a quarter of its
#: letters begin another kind. In names of classes a fifth do. Without a prefix only a long one of both cases counts:
#: a checksum stays.
_TURN, _TURNS, _LONG = re.compile(r"(?<=[a-z])[A-Z]|(?<=[A-Za-z])\d|(?<=\d)[A-Za-z]"), 0.26, 32
#: Rules of detect-secrets that are about other things than tokens.
_OTHERS = frozenset({"basic_auth", "ip_public", "keyword", "high_entropy_strings", "private_key"})


def _drawn(text: str) -> str:
    """Mask every token, its prefix left: ``hf_***``."""
    words = [found[0] for found in _TOKEN.finditer(text)]
    if any(map(_is_drawn, words)) and len(text) <= _LONGEST:
        for pattern in _known():
            text = pattern.sub(_masked, text)
    return _TOKEN.sub(_judged, text) if words else text


def _is_drawn(word: str, begin: int = 0) -> bool:
    """Tell whether a part of a word was drawn at random."""
    parts = [part[0] for part in _PART.finditer(word, begin)]
    return any(len(_TURN.findall(part)) > _TURNS * len(part) or _CAPITALS.fullmatch(part) for part in parts)


def _judged(found: re.Match[str]) -> str:
    word = found[0]
    ours, prefix = _OURS.match(word), _PREFIX.match(word)
    if (
        ours is not None
        and _PART.search(word, ours.end()) is not None
        and not re.fullmatch("[a-z_-]+", word[ours.end() :])
    ):
        return f"{ours[0]}{MASK}"
    if prefix is not None and _is_drawn(word, prefix.end()):
        return f"{prefix[0]}{MASK}"
    has_both = word != word.lower() and word != word.upper()
    return MASK if has_both and any(len(each) >= _LONG and _is_drawn(each) for each in _PART.findall(word)) else word


def _masked(found: re.Match[str]) -> str:
    """Mask what a rule of detect-secrets has found: its last group, or all of it."""
    secret = next((group for group in reversed(found.groups()) if group), None)
    return MASK if secret is None or len(secret) < len(found[0]) // 2 else found[0].replace(secret, MASK)


@cache
def _known() -> tuple[re.Pattern[str], ...]:
    """Return the patterns of detect-secrets; importing them takes a third of a second."""
    from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class

    kinds: dict[str, type] = get_mapping_from_secret_type_to_class()
    rules = (kind for kind in kinds.values() if kind.__module__.rpartition(".")[2] not in _OTHERS)
    return tuple(dict.fromkeys(pattern for rule in rules for pattern in getattr(rule, "denylist", ())))
