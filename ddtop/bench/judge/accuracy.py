"""The accuracy guard: at temperature 0, do a configuration's outputs agree with the baseline's? Pure.

Speculative decoding must not change answers beyond what other batch shapes and kernels change in the baseline's. Garbage, one token repeated or one line for ever, is found without any baseline.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Texts = Mapping[str, Sequence[str]]
"""Request index → the texts of its choices, as a cell's result holds them."""

WORD = re.compile(r"\S+")
NOISE = 3e-3
"""Differences for each agreeing character that batch shapes alone may make. Measured with one function in batches of
1, 8 and 32 and behind drafts of 2, 4 and 8 on an H200: at most 1.5e-3; with another nonce before the prompt: 5e-3."""
NOISIER = 2.0
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


@dataclass(frozen=True, slots=True)
class _Agreement:
    """`differing` of some outputs, after `characters` that agreed (of equal outputs: all of theirs)."""

    differing: int
    characters: int

    def least(self) -> float:
        """Differences for each agreeing character, as few as these would be by chance (one standard deviation)."""
        return max(0.0, self.differing - math.sqrt(self.differing)) / max(1, self.characters)

    def most(self) -> float:
        """The same, as many."""
        return (self.differing + math.sqrt(self.differing)) / max(1, self.characters)


def _agreement(pairs: Sequence[tuple[str, str, str]]) -> _Agreement:
    places = [(divergence(a, b), len(a)) for _, a, b in pairs]
    return _Agreement(
        sum(at is not None for at, _ in places), sum(whole if at is None else at for at, whole in places)
    )


def compare_outputs(baseline: Texts, other: Texts, again: Texts | None = None) -> AccuracyReport:
    """Compare a configuration's outputs with the baseline's for the same requests. `again`: a second run of the
    baseline, in another batch.

    The same function in another batch shape differs now and then, where two tokens are nearly equally likely: the
    longer the output the more often, so the share of equal outputs says nothing by itself. What is judged is how often
    outputs part for each character that agreed: suspect above NOISE, and above NOISIER times what the baseline does
    with itself.
    """
    pairs = _pairs(baseline, other)
    if not pairs:
        return AccuracyReport(0, 0.0, None, None, False, "no common requests to compare")
    found = [
        Difference(i, at, a[at : at + 80], b[at : at + 80])
        for i, a, b in pairs
        if (at := divergence(a, b)) is not None
    ]
    share = 1 - len(found) / len(pairs)
    expected, limit = None, NOISE
    if again is not None and (own := _pairs(baseline, again)):
        expected = sum(a == b for _, a, b in own) / len(own)
        limit = max(NOISE, NOISIER * _agreement(own).most())
    places = sorted(one.at for one in found)
    middle = places[len(places) // 2] if places else None
    suspect = _agreement(pairs).least() > limit
    if not found:
        why = f"all {len(pairs)} outputs equal the baseline's"
    else:
        own_words = f"; the baseline agrees with itself in {expected:.0%}" if expected is not None else ""
        noise = "" if suspect else ", as another batch shape makes them"
        why = (
            f"{share:.0%} of {len(pairs)} outputs equal the baseline's{own_words};"
            f" others part after {middle} characters (median){noise}"
        )
    return AccuracyReport(len(pairs), share, expected, middle, suspect, why, tuple(found[:20]))


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
