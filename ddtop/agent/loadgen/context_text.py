"""Context before a prompt: natural text shipped with ddtop, cut to a number of tokens (±1%) by the server's own count.

Natural, because random tokens destroy what speculative decoding accepts. The cut is by characters and converges on the
count that the server gives, by /tokenize or by the prompt tokens of a one-token request.
"""

from __future__ import annotations

import pkgutil
import random
from typing import Any, Callable

CHARS_PER_TOKEN = 4.3  # English prose, first guess only
TOLERANCE = 0.01


def corpus() -> str:
    """The shipped text (also from inside a zip)."""
    data = pkgutil.get_data(__package__ or "", "corpus.txt")
    if data is None:
        raise FileNotFoundError("corpus.txt is missing from the load generator")
    return data.decode("utf-8")


def random_words(text: str, seed: int = 0) -> str:
    """The text's words in random order, three times over: no draft model can guess it."""
    words = text.split()
    source = random.Random(seed)
    return " ".join(source.choice(words) for _ in range(3 * len(words)))


def passage(chars: int, text: str) -> str:
    """The first `chars` characters of the text; where it ends it goes on as another part with its own heading, so that
    no long stretch is an exact repetition of the one before."""
    out = text[:chars]
    part = 2
    while len(out) < chars:
        turn = (part * 7919) % max(1, len(text))
        turn = text.find("\n\n", turn) + 2 if text.find("\n\n", turn) >= 0 else 0
        out += "\n\nPart %d.\n\n" % part + text[turn:] + text[:turn]
        part += 1
    return out[:chars]


def fit_context(tokens: int, count: Callable[[str], int | None], text: str) -> tuple[str, dict[str, Any]]:
    """Text of `tokens` tokens by `count` and how well it fits: {"asked", "tokens" (absent if never counted), "chars",
    "tries", "ok"}. `count` returns None where nothing can be counted; the first guess is then kept and not "ok"."""
    about: dict[str, Any] = {"asked": tokens, "tries": 0, "ok": tokens == 0}
    if tokens <= 0:
        return "", about
    chars = int(tokens * CHARS_PER_TOKEN)
    best: tuple[int, str, int] | None = None
    low, high = 0, 0  # characters known to give too few, too many
    for _ in range(10):
        piece = passage(chars, text)
        got = count(piece)
        about["tries"] += 1
        if not got:
            break
        off = abs(got - tokens)
        if best is None or off < best[0]:
            best = (off, piece, got)
        if off <= max(1, tokens * TOLERANCE * 0.5):
            break
        if got < tokens:
            low = max(low, chars)
        else:
            high = chars if not high else min(high, chars)
        guess = int(chars * tokens / got)
        if (high and guess >= high) or guess <= low:
            guess = (low + high) // 2 if high else guess
        if guess == chars:
            break
        chars = max(1, guess)
    if best is None:
        piece = passage(int(tokens * CHARS_PER_TOKEN), text)
        about["chars"] = len(piece)
        return piece + "\n\n", about
    about.update(tokens=best[2], chars=len(best[1]), ok=best[0] <= max(1, tokens * TOLERANCE))
    return best[1] + "\n\n", about
