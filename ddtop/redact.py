"""What counts as a secret in plans, command lines, environments and logs, and how it is left out of what is given away. Pure.

A secret is known by its name (`--api-key`, `HF_TOKEN`, `password=`), by its form (`hf_…`, `sk-…`, a private key), or as the
password of a URL. docs/security.md says so to people.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

HIDDEN = "[removed]"
SHORTEST = 6
"""Characters: a shorter value is no secret that is worth the name, and would be found inside other words."""

TOKEN = 12
"""Characters of what follows `token:` in prose, from which it is taken for one."""

_KEYS = (
    "api|auth|admin|access|private|secret|signing|encryption|master|account|subscription|license|webhook|hmac"
)
_NAME = re.compile(
    r"(?i)(^|_)(token|secret|passw(or)?d|passphrase|credentials?|authorization|(db|user|root|admin|smtp|proxy)_?(pass|pwd)"
    rf"|({_KEYS})_?key)(_|$)"
)
_HARMLESS = re.compile(
    r"(?i)(^|_)(eos|bos|pad|unk|sep|cls|mask|stop|start|end|first|last|next|per|image|video|audio|draft|special|added|extra|new"
    r"|input|output|prompt|single|each|one|a)_token(_|$)|_?token_(id|ids|count|usage|budget|limit|type|ratio|capacity)(_|$)"
)
_FORMS = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,}|[sr]k_live_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}"
    r"|glpat-[A-Za-z0-9_-]{16,}|xox[abprs]-[A-Za-z0-9-]{10,}|A[KS]IA[0-9A-Z]{12,}|AIza[A-Za-z0-9_-]{30,}|ya29\.[A-Za-z0-9_-]{20,}"
    r"|gsk_[A-Za-z0-9]{20,}|npm_[A-Za-z0-9]{30,}|pypi-[A-Za-z0-9_-]{30,}|xai-[A-Za-z0-9]{30,}|nvapi-[A-Za-z0-9_-]{20,}"
    r"|eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,})"
    r"|(?<=hooks\.slack\.com/services/)[\w/]{16,}|(?<=/api/webhooks/)\d+/[\w-]{16,}"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----",
    re.S,
)
_BEGINS = re.compile(r"^(hf_|sk-|ghp_|github_pat_|glpat-|xox[abp]-|AKIA)[A-Za-z0-9_-]{8,}|-----BEGIN ")
_URL = re.compile(r"(?<=://)[^/\s:@'\"]*:([^/\s@'\"]+)@")
_QUERY = re.compile(
    r"(?i)[?&](?:key|sig|signature|x-(?:amz|goog)-(?:signature|credential|security-token))=([^&\s'\"<>]+)"
)
_COOKIE = re.compile(r"(?i)\b(?:set-)?cookie['\"]?: ?['\"]?([^\s'\"][^\r\n'\"]*)")
_HEADER = re.compile(
    r"(?i)\bauthorization\\?['\"]?\s*[:=]\s*\\?['\"]?(?:bearer|basic|token|digest|apikey)\s+([A-Za-z0-9._~+/=-]{6,})"
)
_BEARER = re.compile(r"(?i)\bbearer\s+([A-Za-z0-9._~+/=-]{8,})")
_BASIC = re.compile(r"(?i)\bbasic\s+([A-Za-z0-9+/]{8,}={0,2})")
# From the beginning of a word alone, and no longer than a name: else a line of 20,000 characters without a blank takes seconds.
_NAMED = re.compile(
    r"(?i)(?<![\w.-])(?P<name>(?:(?:api|access|auth|private|secret|admin) )?[\w.-]{0,80}"
    r"(?:token|secret|passw|passphrase|pass|pwd|key|credential|authorization)[\w-]{0,80})\\?['\"]?"
    r"(?P<between>\s*(?:[=:]{1,3}>?|->|,)\s*|\s+)[\[(]?(?:\\?\"(?P<double>(?:[^\"\\\n]|\\[^\"\n]){1,400})"
    r"|\\?'(?P<single>(?:[^'\\\n]|\\[^'\n]){1,400})|(?P<value>(?:(?!&[\w.-]{1,80}=)[^\s'\",;)}\]\\])+))"
)
_PHRASE = re.compile(r"(?i)passw|passphrase|secret")
"""Names of secrets that may have blanks in them, where they are quoted."""
_NO_VALUE = re.compile(
    r"(?i)(none|null|bearer|basic|true|false|\*+|<[^>]*>|\{[\w.]+\}|\$\{?\w+\}?|\[removed\]|[\d.]+)\Z"
)
_FILE = re.compile(r"[~.]{0,2}/|.*\.(?:pem|key|crt|json|txt)\Z")
MOST = 64
"""Secrets of one text that are each looked for in all of it; where it has more, each is left out only where it was found."""


def looks_secret(name: str, value: str) -> bool:
    """Whether an environment variable looks as if it held a secret."""
    return names_secret(name) or bool(_BEGINS.match(value))


def names_secret(name: str) -> bool:
    """Whether a flag, a variable or a key names a secret.

    >>> [names_secret(n) for n in ("--api-key", "HF_TOKEN", "eos_token", "--tokenizer-path", "max_total_tokens")]
    [True, True, False, False, False]
    """
    plain = re.sub(r"[^A-Za-z0-9]+", "_", name.strip("-")).strip("_")
    return bool(_NAME.search(plain)) and not _HARMLESS.search(plain)


def _is_value(text: str) -> bool:
    return len(text) >= SHORTEST and not _NO_VALUE.match(text) and not text.startswith("-")


def secrets_in(value: Any, name: str = "") -> set[str]:
    """The secrets in a JSON value: under names that say so, after flags that say so, by their form, in URLs.

    >>> sorted(secrets_in({"argv": ["vllm", "--api-key", "abcdef123", "--port=1"], "env": {"HF_TOKEN": "qwertyuiop"}}))
    ['abcdef123', 'qwertyuiop']
    """
    if isinstance(value, str):
        return _in_text(value, name)
    found: set[str] = set()
    if isinstance(value, Mapping):
        for key, inner in value.items():
            found |= secrets_in(inner, str(key))
    elif isinstance(value, Sequence) and not isinstance(value, bytes):
        before = ""
        for item in value:
            flag = before if before.startswith("-") and "=" not in before else name
            found |= secrets_in(item, flag)
            before = item if isinstance(item, str) else ""
    return found


def _in_text(text: str, name: str) -> set[str]:
    found = {text[begin:end] for begin, end in _spans(text)}
    whole = names_secret(name) or _is_key_flag(name, text)
    if name and whole and _is_value(text) and (not any(c.isspace() for c in text) or _PHRASE.search(name)):
        found.add(text)
    return {one for one in found if len(one) >= SHORTEST}


def _spans(text: str) -> list[tuple[int, int]]:
    """Where the secrets stand in a text."""
    found = [m.span() for m in _FORMS.finditer(text)]
    found += [m.span(1) for one in (_URL, _QUERY, _COOKIE, _HEADER) for m in one.finditer(text)]
    found += [m.span(1) for m in _BEARER.finditer(text) if _is_random(m[1])]
    found += [m.span(1) for m in _BASIC.finditer(text) if _is_basic(m[1])]
    found += [span for m in _NAMED.finditer(text) if (span := _assigned(m)) is not None]
    return found


def _is_random(word: str) -> bool:
    """Whether a word after `bearer` is a token, not prose such as `Bearer authentication`."""
    return any(c.isdigit() for c in word) or (len(word) >= 2 * TOKEN and not word.islower())


def _is_basic(word: str) -> bool:
    """Whether a word after `basic` is a user and a password in base64."""
    try:
        return b":" in base64.b64decode(word + "=" * (-len(word) % 4), validate=True)
    except ValueError:
        return False


def _is_key_flag(name: str, value: str) -> bool:
    """`--key V`, where V is no file: one of TLS has its key there."""
    return name.lower() in ("--key", "-key") and not _FILE.match(value)


def _assigned(match: re.Match[str]) -> tuple[int, int] | None:
    """Where the value stands that text gives to a secret. Prose has the word token before other words: those are none."""
    name, between = match["name"], match["between"].strip()
    group = next(g for g in ("double", "single", "value") if match[g] is not None)
    value, (begin, end) = match[group], match.span(group)
    if group != "value" and not _PHRASE.search(name):  # another than a phrase ends with its word
        value = re.split(r"\s", value, maxsplit=1)[0]
        end = begin + len(value)
    if not (names_secret(name) or _is_key_flag(name, value)) or not _is_value(value):
        return None
    if between in ("", ","):  # `--api-key abc`, and as a list: '--api-key', 'abc'
        return (begin, end) if name.startswith("-") else None
    if " " not in name and (between not in (":", "->") or not name.lower().endswith("token")):
        return begin, end
    random = len(value) >= TOKEN and any(c.isdigit() for c in value) and any(c.isalpha() for c in value)
    return (begin, end) if random else None


def hide(text: str, secrets: Iterable[str]) -> str:
    """`text` with every one of `secrets` replaced, the longest first."""
    for one in sorted(secrets, key=len, reverse=True):
        text = text.replace(one, HIDDEN)
    return text


_HINTS = (
    "passw", "passphrase", "_pass", "-pass", "pwd", "secret", "hf_", "sk-", "k_live_", "ghp_", "gho_", "ghs_", "ghu_", "ghr_",
    "github_pat_", "glpat-", "xox", "akia", "asia", "aiza", "ya29.", "gsk_", "npm_", "pypi-", "xai-", "nvapi-", "eyj", "bearer",
    "basic", "credential", "authoriz", "@", "sig=", "signature=", "cookie", "hooks.slack", "/webhooks/", "private",
)  # fmt: skip
_KEY_HINT = re.compile(rf"(?:{_KEYS})[_. -]?key|-key\b|[?&]key=")
_TOKEN_HINT = re.compile(
    r"(?<![a-z0-9])token(?![a-z0-9])[\w.-]{0,80}\\?['\"]?\s*(?:[=:,]|->)(?!\s*[\d.]+(?:[\s,;)}\]]|$))"
    r"|[-_.]token(?![a-z0-9])[\w.-]{0,80}\\?['\"]?\s"
)
"""One of these is in every line that has a secret to be found: looking for them costs a tenth of finding it. The words token
and key alone are in most lines of a server, so they count only where a value may follow."""


def log_line(text: str) -> str:
    """A line of a server's log without what is a secret by its name, its form or its place in a URL.

    Servers print their own arguments, API keys among them. Quick: every line of every log goes through here.

    >>> log_line("args: Namespace(host='0.0.0.0', api_key='sk-abcdefghijklmnop', port=8000)")
    "args: Namespace(host='0.0.0.0', api_key='[removed]', port=8000)"
    """
    low = text.lower()
    for hint in _HINTS:
        if hint in low:
            return _without(text)
    if "key" in low and _KEY_HINT.search(low) is not None:
        return _without(text)
    if "token" in low and _TOKEN_HINT.search(low) is not None:
        return _without(text)
    return text


def _without(text: str) -> str:
    """A text without its own secrets, in a time that grows as its length does."""
    secrets = secrets_in(text)
    if len(secrets) <= MOST:
        return hide(text, secrets)
    out, at = [], 0
    for begin, end in sorted(_spans(text)):
        if end > at and end - begin >= SHORTEST:
            out += [text[at : max(at, begin)], HIDDEN]
            at = end
    return "".join((*out, text[at:]))


def without_secrets(value: Any, name: str = "") -> Any:
    """A JSON value with its own secrets replaced."""
    return replaced(value, secrets_in(value, name))


def replaced(value: Any, secrets: set[str]) -> Any:
    """A JSON value with these secrets replaced, wherever they stand; keys are left as they are."""
    if not secrets:
        return value
    if isinstance(value, str):
        return hide(value, secrets)
    if isinstance(value, Mapping):
        return {key: replaced(inner, secrets) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [replaced(inner, secrets) for inner in value]
    return value
