"""The one way out for text: nothing in it steers a terminal, and it holds no secret.

A secret is a token, a password, a key, a cookie, and what secret variables of the environment hold.

:func:`redact` looks for three things, and masks each as ``***``: the values of environment variables that
:func:`is_secret_name` takes for secret, values that stand behind such a name, and forms that tell a secret by
themselves. It rather masks a word too many than one too few.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, quote_plus

from pytest_tfdebug.redaction.names import PASSWORDS, SWITCHES, is_secret, is_secret_name
from pytest_tfdebug.redaction.tokens import MASK, without_tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Where the shell is and was: the only variables that end in PWD and hold no password.
_PLACES = ("PWD", "OLDPWD")
#: Values shorter than this stand for too much else to be looked for, and up to the second only whole words count.
_SHORTEST, _LONG = 4, 8
#: A name or a module path: no sign of a secret can stand in it.
_PLAIN = re.compile(r"(?!.*(?:hf|api_org)_)(?!.*[A-Za-z0-9]{16})[\w.]*")
_QUOTE = r"(?:\\?['\"]|%22|%27)"
#: ``name=``, ``"name": ``, ``name%3D``, and the sign of a query before it.
_NAMED = re.compile(
    rf"""
    (?P<before>(?:[?&]|%(?:25)*(?:3F|26))?)
    (?:(?<![A-Za-z0-9_])|(?<=%[0-9A-Fa-f]{{2}}))(?P<name>[A-Za-z_][A-Za-z0-9_.-]{{0,80}})
    (?P<sep>{_QUOTE}?\]?(?:\s*(?:=>|:=|=|:)\s*|%(?:25)*(?:3D|3A)(?:%(?:25)*20|\+)*)(?:[bru]{{1,2}}(?=['"]))?)
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
#: How an expression begins: a call, an item, or a bracket that its line does not close.
_EXPRESSION = re.compile(r"[A-Za-z_][\w.]*[\[(]|[(\[{]$")
_OPTION = re.compile(r"(?<![\w-])(--?(?P<name>[A-Za-z][\w-]*)\s+)(?P<value>'[^']*'|\"[^\"]*\"|(?!-)[^\s'\"]+)")

#: What is asked of an address: no value of it is shown, for nobody knows which of them lets one in.
_QUERY = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{1,20}:/{1,3}[^\s'\"<>?#]{1,1000}\?)([^\s'\"<>#]+)")
#: The value of each of its parts, and a part that is long and has no name.
_ASKED = re.compile(r"(?<==)[^&]+|(?:(?<=^)|(?<=&))[^=&]{16,}(?=&|$)")
_HOST = r"(?=[A-Za-z0-9\[])"
#: What stands behind an option: in quotes or as a word.
_ARGUMENT = r"""(?:'[^'\r\n]+'|"[^"\r\n]+"|[^\s'"]+)"""
#: Forms that are secret whatever stands before them.
_FORMS = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        # a private key, with line ends as they are or written out; an end that was cut off is no reason to show it
        (r"(?s)(-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----).*?(?:-----END [A-Z0-9 ]*-----|\Z)", r"\1***"),
        (r"(?i)((?<![\w-])(?:proxy-)?authorization\s*:\s*)(?!['\"])[^\r\n'\"]+", r"\1***"),
        (r"(?i)((?<![\w-])(?:set-)?cookie2?\s*:\s*)(?!['\"])[^\r\n'\"]+", r"\1***"),
        (
            r"(?i)(['\"](?:(?:proxy-)?authorization|(?:set-)?cookie|x-api-key|[\w-]+-token)['\"],\s*b?['\"])[^'\"]+",
            r"\1***",
        ),
        (r"(?i)(<(\w*(?:password|passwd|passphrase|token|secret|credentials?|api_?key))>)[^<>]+(?=</\2>)", r"\1***"),
        # user:password@host and token@host, the password with slashes, signs and spaces
        (
            rf"((?:[A-Za-z0-9+.-]{{1,40}}:/{{1,3}}|(?<![\w:/])//))[^\s/:@'\"<>]*:[^\r\n'\"<>]{{0,200}}[^\s'\"<>]@{_HOST}",
            r"\1***@",
        ),
        (r"([A-Za-z0-9+.-]{1,40}:/{1,3})[^/\s'\"<>]+@", r"\1***@"),
        (rf"(?<![\w/.%+-])[A-Za-z_][\w.+%-]*:(?!//|\d+[:,)\s])[^\s:'\"@][^\r\n'\"]{{2,80}}?(?<!\s)@{_HOST}", r"***@"),
        (r"(?i)(?<![\w/.%+-])[A-Za-z_][\w.+-]*%(?:25)*3A[^\s'\"@/:]{3,200}?%(?:25)*40(?=[A-Za-z0-9])", r"***%40"),
        # .netrc, on one line or on several
        (r"(?i)(\b(?:(?:machine|login)\s+\S+|default)(?:\s+(?:login|account)\s+\S+)*\s+password\s+)\S+", r"\1***"),
        (r"(?im)(^\s*password\s+)\S+(?=\s*$)", r"\1***"),
        # addresses that let whoever knows them write
        (
            r"(?i)(https?:/{1,2}(?:hooks\.[^/\s]+|[^\s'\"<>]{0,200}?webhook[^/\s]*|[^\s'\"<>]{0,200}?/(?:incoming|hook))/)[^\s'\"<>]+",
            r"\1***",
        ),
        (r"(?i)\b(bearer(?:\s+|%20))[A-Za-z0-9._~+/=-]{8,}", r"\1***"),
        (r"(?i)\b(basic\s+)(?=\S*[\d=])[A-Za-z0-9+/]{8,}={0,2}", r"\1***"),
        (
            r"(?<![\w.-])(-u|-U|--(?:proxy-)?user)(?:\s+|=)(?:'[^':]+:[^']*'|\"[^\":]+:[^\"]*\"|[^\s:'\"]+:\S+)",
            r"\1 ***",
        ),
        (r"\b(hf|api_org)_(?!\w*_)[A-Za-z0-9]{10,}", r"\1_***"),  # and not hf_transfer_enabled
        (r"\b(SK|AC|dapi)[0-9a-f]{32}\b|\bAGE-SECRET-KEY-1[A-Z0-9]+", MASK),
        (r"(?s)(Private-Lines:\s*\d+).*?(?=Private-MAC|\Z)", r"\1 ***\n"),  # a key of PuTTY
        (r"(?i)(\bPrivate-MAC:\s*)\w+", r"\1***"),
        # passwords of commands, behind options of one letter
        (rf"(?i)(\b(?:mysql\w*|mariadb\w*)\b[^\r\n]{{0,200}}?\s-p){_ARGUMENT}", r"\1***"),
        (rf"(?i)(\bsshpass\s+-p\s*|\bredis-cli\b[^\r\n]{{0,200}}?\s-a\s+){_ARGUMENT}", r"\1***"),
        (r"(?i)(\bwandb\s+login\s+(?:--\w+\s+)*)[0-9a-f]{40}\b", r"\1***"),
        (r"""(['"]username['"]:\s*['"][^'"]*['"],\s*['"]key['"]:\s*['"])[^'"]+""", r"\1***"),  # kaggle.json
        (r"(?i)(\bconda\.[^\s/'\"]+/t/)[^\s/'\"]+", r"\1***"),
    )
)


def leaving(text: str, *, keep: str = "") -> str:
    """Return a text as it may be shown: without secrets, and with what could steer a terminal written out.

    Args:
        text: What a model, a test or a file is called, or says.
        keep: Characters that stay, such as line breaks.
    """
    return printable(redact(text), keep=keep)


def printable(text: str, *, keep: str = "") -> str:
    """Return a text with every character that could steer a terminal or a parser written out; ``keep`` stays."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() or character in keep else character.encode("unicode_escape").decode()
        for character in text
    )


def redact(text: str) -> str:
    """Return the text without secrets.

    What a secret's environment variable holds is taken out wherever it stands, also URL-encoded; beyond that, what
    stands behind the name of a secret, and the usual forms.
    """
    return _without(_secrets_of_the_environment(), text)


def _without(values: Sequence[str], text: str) -> str:
    """Return a text without some values, and without every form of a secret."""
    for value in values:
        if value in text:
            text = text.replace(value, MASK) if len(value) >= _LONG else re.sub(_whole(value), MASK, text)
    if _PLAIN.fullmatch(text):
        return text
    text = _QUERY.sub(lambda found: found[1] + _ASKED.sub(MASK, found[2]), text)
    for pattern, replacement in _FORMS:
        text = pattern.sub(replacement, text)
    text = _OPTION.sub(_masked_option, without_tokens(text))
    return _without_named(text)


def redacted(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Return a JSON value without secrets in its texts, and with nothing under the names of secrets but switches."""
    known: dict[str, str] = {}  # records repeat their texts thousands of times
    values = _secrets_of_the_environment()

    def of(value: Any) -> Any:  # noqa: ANN401 - as above
        if isinstance(value, str):
            if value not in known:
                known[value] = _without(values, value)
            return known[value]
        if isinstance(value, dict):
            return {
                of(key): MASK if isinstance(key, str) and is_secret(key, item) else of(item)
                for key, item in value.items()
            }
        return [of(item) for item in value] if isinstance(value, (list, tuple)) else value

    return of(value)


def without_secrets(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Return a JSON value from which what stands under the name of a secret is gone, and with redacted texts."""
    if isinstance(value, dict):
        return {name: without_secrets(item) for name, item in value.items() if not is_secret(name, item)}
    if isinstance(value, list):
        return [without_secrets(item) for item in value]
    return redacted(value)


def _secrets_of_the_environment() -> Sequence[str]:
    """Return the values of secret variables, also URL-encoded, the long ones first: one may hold another."""
    known = [
        value
        for name, value in os.environ.items()
        if len(value) >= _SHORTEST
        and name not in _PLACES
        and is_secret_name(name)
        and value.lower() not in SWITCHES
        and not value.isspace()
    ]
    forms = {form for value in known for form in (value, quote(value, safe=""), quote(value), quote_plus(value))}
    forms |= {value.encode("unicode_escape").decode() for value in known}
    return sorted(forms, key=len, reverse=True)


def _whole(value: str) -> str:
    return rf"(?<!\w){re.escape(value)}(?!\w)"


def _without_named(text: str) -> str:
    """Mask what stands behind the name of a secret and a ``=`` or ``:``."""
    parts: list[str] = []
    position = 0
    for found in _NAMED.finditer(text):
        if found.start() < position or not _is_secret_pair(found):
            continue
        value = _VALUE.match(text, found.end())
        if value is None or _is_harmless(value[0]) or _is_prose(found, value[0]) or _is_code(found, value[0]):
            continue
        closing = found_quote[0] if (found_quote := re.match(_QUOTE, value[0])) else ""
        parts += [text[position : value.start()], closing, MASK, closing]
        position = value.end()
        if found["name"].lower().endswith(PASSWORDS) and value[0][0] not in "'\"\\([{%":
            rest = _REST.match(text, position)
            position = rest.end() if rest is not None else position
    return "".join([*parts, text[position:]])


def _is_secret_pair(found: re.Match[str]) -> bool:
    """Tell whether a name before a sign is that of a secret, and no word of prose: "second pass: layer 3"."""
    name, sep = found["name"].lower(), found["sep"]
    if found["before"] and name in ("key", "signature", "code"):
        return True
    if name in ("pass", "sig", "pin") and sep.endswith(": "):
        return sep[0] in "'\"\\"
    return is_secret_name(found["name"])


def _is_prose(found: re.Match[str], value: str) -> bool:
    """Tell whether a token is one of a text, as in "First token: position 3 of row 0"."""
    return found["name"].lower() == "token" and found["sep"] == ": " and value.isalpha() and value.islower()


def _is_code(found: re.Match[str], value: str) -> bool:
    """Tell whether a value is an expression, as in ``query_pass = query[..., size:]`` of a rotary embedding."""
    return found["sep"] == " = " and _EXPRESSION.match(value) is not None


def _is_harmless(value: str) -> bool:
    """Tell whether a value is a switch, a placeholder, or masked already."""
    inner = value.strip("'\"\\")
    return inner.lower() in SWITCHES or not inner.strip("*") or re.fullmatch(r"<[^<>]*>|\[[A-Z]+\]", inner) is not None


def _masked_option(found: re.Match[str]) -> str:
    return f"{found[1]}{MASK}" if is_secret_name(found["name"]) else found[0]
