"""What counts as a secret in plans, command lines, environments and logs, and how it is left out of what is given away. Pure.

A secret is known by its name (`--api-key`, `HF_TOKEN`, `password=`), by its form (`hf_…`, `sk-…`, a private key), or as the
password of a URL. docs/security.md says so to people.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

HIDDEN = "[removed]"
SHORTEST = 6
"""Characters: a shorter value is no secret that is worth the name, and would be found inside other words."""

TOKEN = 12
"""Characters of what follows `token:` in prose, from which it is taken for one."""

_NAME = re.compile(
    r"(?i)(^|_)(token|secret|passw(or)?d|passphrase|api_?key|admin_?key|access_?key|private_?key|credentials?|authorization)(_|$)"
)
_HARMLESS = re.compile(
    r"(?i)(^|_)(eos|bos|pad|unk|sep|cls|mask|stop|start|end|first|last|next|per|image|video|audio|draft|special|added|extra|new"
    r"|input|output|prompt|single|each|one|a)_token(_|$)|_?token_(id|ids|count|usage|budget|limit|type|ratio|capacity)(_|$)"
)
_FORMS = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,}"
    r"|xox[abprs]-[A-Za-z0-9-]{10,}|AKIA[0-9A-Z]{12,}|nvapi-[A-Za-z0-9_-]{20,}|eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,})"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----",
    re.S,
)
_BEGINS = re.compile(r"^(hf_|sk-|ghp_|github_pat_|glpat-|xox[abp]-|AKIA)[A-Za-z0-9_-]{8,}|-----BEGIN ")
_URL = re.compile(r"(?<=://)[^/\s:@'\"]*:([^/\s@'\"]+)@")
_BEARER = re.compile(r"(?i)\b(?:bearer|basic)\s+([A-Za-z0-9._~+/=-]{8,})")
# From the beginning of a word alone, and no longer than a name: else a line of 20,000 characters without a blank takes seconds.
_NAMED = re.compile(
    r"(?i)(?<![\w.-])(?P<name>[\w.-]{0,80}(?:token|secret|passw|passphrase|key|credential|authorization)[\w-]{0,80})\\?['\"]?"
    r"(?P<between>\s*[=:,]\s*|\s+)[\[(]?\\?['\"]?(?P<value>[^\s'\",;)}\]\\]+)"
)
_NO_VALUE = re.compile(
    r"(?i)(none|null|bearer|basic|true|false|\*+|<[^>]*>|\{[\w.]+\}|\$\{?\w+\}?|\[removed\]|[\d.]+)\Z"
)


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
    found = set(_FORMS.findall(text)) | {m[1] for m in _URL.finditer(text)}
    found |= {m[1] for m in _BEARER.finditer(text)}
    if name and names_secret(name) and _is_value(text) and not any(c.isspace() for c in text):
        found.add(text)
    found |= {m["value"] for m in _NAMED.finditer(text) if _is_assigned(m)}
    return {one for one in found if len(one) >= SHORTEST}


def _is_assigned(match: re.Match[str]) -> bool:
    """Whether text gives a secret a value. Prose has the word token before other words: those are none."""
    name, value = match["name"], match["value"]
    if not names_secret(name) or not _is_value(value):
        return False
    if match["between"].strip() in ("", ","):  # `--api-key abc`, and as a list: '--api-key', 'abc'
        return name.startswith("-")
    if "=" in match["between"] or not name.lower().endswith("token"):
        return True
    return len(value) >= TOKEN and any(c.isdigit() for c in value) and any(c.isalpha() for c in value)


def hide(text: str, secrets: Iterable[str]) -> str:
    """`text` with every one of `secrets` replaced, the longest first."""
    for one in sorted(secrets, key=len, reverse=True):
        text = text.replace(one, HIDDEN)
    return text


_HINTS = (
    "api_key", "api-key", "api.key", "apikey", "admin_key", "admin-key", "admin.key", "adminkey", "access_key", "access-key",
    "access.key", "accesskey", "private", "passw", "passphrase", "secret", "hf_", "sk-", "ghp_", "gho_", "ghs_", "ghu_", "ghr_",
    "github_pat_", "glpat-", "xox", "akia", "nvapi-", "eyj", "bearer", "basic", "credential", "authoriz", "@",
)  # fmt: skip
_TOKEN_HINT = re.compile(
    r"(?<![a-z0-9])token(?![a-z0-9])[\w.-]{0,80}\\?['\"]?\s*[=:,](?!\s*[\d.]+(?:[\s,;)}\]]|$))"
    r"|[-_.]token(?![a-z0-9])[\w.-]{0,80}\\?['\"]?\s"
)
"""One of these is in every line that has a secret to be found: looking for them costs a tenth of finding it. The word token
alone is in most lines of a server, so it counts only where a value may follow."""


def log_line(text: str) -> str:
    """A line of a server's log without what is a secret by its name, its form or its place in a URL.

    Servers print their own arguments, API keys among them. Quick: every line of every log goes through here.

    >>> log_line("args: Namespace(host='0.0.0.0', api_key='sk-abcdefghijklmnop', port=8000)")
    "args: Namespace(host='0.0.0.0', api_key='[removed]', port=8000)"
    """
    low = text.lower()
    for hint in _HINTS:
        if hint in low:
            return hide(text, secrets_in(text))
    if "token" in low and _TOKEN_HINT.search(low) is not None:
        return hide(text, secrets_in(text))
    return text


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
