"""The accuracy guard: at temperature 0, do a configuration's outputs agree with the baseline's? Pure.

Speculative decoding must not change answers beyond what the baseline differs from itself (batching and kernels make
runs differ a little). Garbage, one token repeated or one line for ever, is found without any baseline.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Texts = Mapping[str, Sequence[str]]
"""Request index → the texts of its choices, as a cell's result holds them."""

WORD = re.compile(r"\S+")
BEGINNING = 800  # characters that `garbage` looks at


@dataclass(frozen=True, slots=True)
class Difference:
    """One request whose output differs: the character of the first divergence, and both texts from there."""

    index: str
    at: int
    baseline: str
    other: str


@dataclass(frozen=True, slots=True)
class AccuracyReport:
    """`equal_share` of `compared` outputs; `expected_share` is the baseline's with itself (None: not measured).
    `first_divergence` is the median character of the first difference among differing outputs."""

    compared: int
    equal_share: float
    expected_share: float | None
    first_divergence: int | None
    suspect: bool
    why: str
    differences: tuple[Difference, ...] = ()


def divergence(a: str, b: str) -> int | None:
    """The first character in which two texts differ (one being the start of the other counts from its end); None if equal."""
    if a == b:
        return None
    for place, (one, other) in enumerate(zip(a, b, strict=False)):
        if one != other:
            return place
    return min(len(a), len(b))


def _pairs(a: Texts, b: Texts) -> list[tuple[str, str, str]]:
    return [
        (index, one, other)
        for index in sorted(set(a) & set(b), key=lambda text: (len(text), text))
        for one, other in zip(a[index], b[index], strict=False)
    ]


def compare_outputs(
    baseline: Texts, other: Texts, again: Texts | None = None, *, slack: float = 0.1
) -> AccuracyReport:
    """Compare a configuration's outputs with the baseline's for the same requests. `again`: a second run of the
    baseline; a configuration is suspect if it agrees by more than `slack` less than the baseline does with itself.
    Without `again` only a share of equal outputs below one half is suspect."""
    pairs = _pairs(baseline, other)
    if not pairs:
        return AccuracyReport(0, 0.0, None, None, False, "no common requests to compare")
    found = [
        Difference(i, at, a[at : at + 80], b[at : at + 80])
        for i, a, b in pairs
        if (at := divergence(a, b)) is not None
    ]
    share = 1 - len(found) / len(pairs)
    expected = None
    if again is not None and (own := _pairs(baseline, again)):
        expected = sum(a == b for _, a, b in own) / len(own)
    places = sorted(one.at for one in found)
    limit = (expected - slack) if expected is not None else 0.5
    suspect = share < limit
    if not found:
        why = f"all {len(pairs)} outputs equal the baseline's"
    else:
        own_words = f"; the baseline agrees with itself in {expected:.0%}" if expected is not None else ""
        why = f"{share:.0%} of {len(pairs)} outputs equal the baseline's{own_words}"
    return AccuracyReport(
        len(pairs),
        share,
        expected,
        places[len(places) // 2] if places else None,
        suspect,
        why,
        tuple(found[:20]),
    )


def garbage(text: str) -> str:
    """Why a text is garbage, or "". Judged by its beginning, and only if that is long enough: one word, one character or
    one short cycle over and over, or mostly broken characters. (A sound answer that goes round in circles after its
    natural end, which ignore_eos makes it pass, is no garbage.)"""
    stripped = text.strip()[:BEGINNING]
    if len(stripped) < 60:
        return ""
    bad = sum(ch == "\ufffd" or (ord(ch) < 32 and ch not in "\n\r\t") for ch in stripped)
    if bad > 0.2 * len(stripped):
        return "mostly broken characters"
    if len(set(stripped)) <= 3:
        return f"{len(set(stripped))} different characters in {len(stripped)}"
    words = WORD.findall(stripped)
    if len(words) >= 20:
        most = max(words.count(word) for word in set(words))
        if most > 0.8 * len(words):
            return "one word repeated"
        # a short cycle: the text equals itself shifted by its period for most of its length
        for period in range(1, 7):
            same = sum(words[i] == words[i - period] for i in range(period, len(words)))
            if same > 0.95 * (len(words) - period):
                return f"a cycle of {period} words"
    elif len(stripped) >= 200 and len(words) <= 2 and len(set(stripped)) < 12:
        return "one run of few characters"
    return ""


def garbage_share(texts: Texts) -> tuple[float, str]:
    """(share of outputs that are garbage, the first reason found)."""
    judged = [garbage(text) for choices in texts.values() for text in choices]
    bad = [why for why in judged if why]
    return (len(bad) / len(judged) if judged else 0.0), (bad[0] if bad else "")
