"""Every way in which a signature's regex can match holds one of its anchors: a line without an anchor is not looked at.

Texts are made from the regex itself, branch by branch; those that the regex then finds must hold an anchor.
"""

from __future__ import annotations

import random
from re import _constants as op  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

import pytest

from ddtop.sources.log.signatures import Signature, load_catalogue

_CLASS = {op.CATEGORY_DIGIT: "7", op.CATEGORY_SPACE: " ", op.CATEGORY_WORD: "w", op.CATEGORY_NOT_SPACE: "x"}


def made(items: Any, pick: random.Random) -> str:
    """One text that the parsed regex may match."""
    out = []
    for what, value in items:
        if what is op.LITERAL:
            out.append(chr(value))
        elif what in (op.NOT_LITERAL, op.ANY):
            out.append("~")
        elif what is op.IN:
            out.append(one_of(value, pick))
        elif what is op.BRANCH:
            out.append(made(pick.choice(value[1]), pick))
        elif what is op.SUBPATTERN:
            out.append(made(value[3], pick))
        elif what in (op.MAX_REPEAT, op.MIN_REPEAT):
            low, high, inner = value
            out += [made(inner, pick) for _ in range(pick.choice((low, min(max(low, 1), high))))]
    return "".join(out)


def one_of(choices: Any, pick: random.Random) -> str:
    if any(what is op.NEGATE for what, _ in choices):
        return "x"
    what, value = pick.choice(choices)
    if what is op.LITERAL:
        return chr(value)
    return chr(pick.randint(*value)) if what is op.RANGE else _CLASS[value]


@pytest.mark.parametrize("signature", load_catalogue(), ids=lambda s: s.id)
def test_whatever_matches_holds_an_anchor(signature: Signature) -> None:
    pick, tree = random.Random(1), parser.parse(signature.regex.pattern)
    texts = {text for text in (made(tree, pick) for _ in range(300)) if signature.regex.search(text)}
    assert texts, "no text could be made"
    assert not [text for text in texts if not any(anchor in text for anchor in signature.anchors)]
