"""Each source's form of line becomes items; what holds no prompt is named with its line."""

from __future__ import annotations

import gzip
import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddtop.datasets import readers
from ddtop.datasets.choose import choose, shares
from ddtop.datasets.item import PLACEHOLDER, Item, items_of, lines_of
from ddtop.datasets.sources import SOURCES
from ddtop.errors import UsageError


def lines(*rows: object) -> bytes:
    return "\n".join(json.dumps(row) for row in rows).encode()


FORMS = [
    (
        readers.humaneval,
        {"task_id": "T/0", "prompt": "def f(x):\n", "canonical_solution": "    return x\n", "test": "…"},
        Item(group="coding", prompt="def f(x):\n"),
    ),
    (
        readers.gsm8k,
        {"question": "How many eggs?", "answer": "#### 16"},
        Item(group="math", prompt="How many eggs?"),
    ),
    (
        readers.math500,
        {"problem": "Find $x$.", "solution": "…", "subject": "Counting & Probability", "level": 2},
        Item(group="counting_probability", prompt="Find $x$."),
    ),
    (
        readers.turns,
        {"question_id": 81, "category": "writing", "turns": ["Write.", "Again."], "reference": []},
        Item(group="writing", prompt="Write.", turns=("Again.",)),
    ),
    (
        readers.sharegpt,
        {
            "id": "a",
            "conversations": [
                {"from": "human", "value": "Hello"},
                {"from": "gpt", "value": "Hi"},
                {"from": "human", "value": "More"},
            ],
        },
        Item(group="chat", prompt="Hello", turns=("More",)),
    ),
    (
        readers.sharegpt,
        {"conversations": [{"from": "system", "value": "Be brief."}, {"from": "human", "value": "Hello"}]},
        Item(
            group="chat",
            messages=({"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}),
        ),
    ),
    (readers.own, "Count to ten.", Item(group="all", prompt="Count to ten.")),
    (
        readers.own,
        {"prompt": "Say it", "output_tokens": 64},
        Item(group="all", prompt="Say it", output_tokens=64),
    ),
    (
        readers.own,
        {"messages": [{"role": "user", "content": "Hi"}], "group": "chat", "max_tokens": 8},
        Item(group="chat", messages=({"role": "user", "content": "Hi"},), output_tokens=8),
    ),
    (
        readers.own,
        {"conversations": [{"content": "Hi"}, {"content": "Hello"}, {"content": "Bye"}]},
        Item(group="all", prompt="Hi", turns=("Bye",)),
    ),
    (
        readers.own,
        {"category": "Q A", "turns": ["One", "Two"]},
        Item(group="q_a", prompt="One", turns=("Two",)),
    ),
]


@pytest.mark.parametrize(
    ("reader", "row", "item"), FORMS, ids=[f"{r.__name__}-{i}" for i, (r, *_) in enumerate(FORMS)]
)
def test_a_form_becomes_an_item(reader, row, item) -> None:
    data = lines(row, row)
    for form in (
        data,
        b"\xef\xbb\xbf" + data,
        gzip.compress(data),
        lines([row, row]),
        data.replace(b"\n", b"\r\n\r\n"),
    ):
        assert readers.read(form, reader, "x") == (item, item)


def test_every_source_says_how_it_is_had_and_under_which_licence() -> None:
    for source in SOURCES:
        assert source.licence
        assert source.what
        assert bool(source.url) != bool(source.how), f"{source.name}: fetched, or how it is had"
        if source.url:
            assert source.revision in source.url, f"{source.name}: not pinned"
            assert len(source.sha256) == 64


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b'{"prompt": "a"}\n\n{"prompt": \n', "line 3 is no JSON"),
        (lines({"prompt": "a"}, {"question": "b"}), "line 2 holds no prompt"),
        (lines({"prompt": "  "}), "line 1 holds no prompt"),
        (lines({"prompt": "a", "output_tokens": True}), "line 1 holds no prompt"),
        (lines({"prompt": "a", "turns": [1]}), "line 1 holds no prompt"),
        (lines({"turns": []}), "line 1 holds no prompt"),
        (lines({"conversations": []}), "line 1 holds no prompt"),
        (lines(7), "line 1 holds no prompt"),
        (b"", "holds no prompts"),
        (b"[", "line 1 is no JSON"),
        (b"\xff\xfe", "line 1 is no JSON"),
        (b"PAR1\0", "Parquet"),
        (b"\x1f\x8b\x08\x00", "damaged"),
    ],
)
def test_what_holds_no_prompt_is_named(data: bytes, words: str) -> None:
    with pytest.raises(UsageError, match=words) as raised:
        readers.read(data, readers.own, "mine.jsonl")
    assert "mine.jsonl" in raised.value.what


@pytest.mark.parametrize("reader", [readers.turns, readers.own])
def test_a_placeholder_is_refused(reader) -> None:
    row = {"category": "coding", "turns": ["Fine."]}
    bad = {"category": "coding", "turns": ["Fine.", f"{PLACEHOLDER} USING SPECDEC_BENCH"]}
    with pytest.raises(UsageError, match="line 2 is a placeholder") as raised:
        readers.read(lines(row, bad), reader, "speed-bench:qualitative")
    assert "prepare_data.py" in raised.value.do


def test_a_source_with_rows_of_no_prompt_leaves_them_out() -> None:
    good = {"conversations": [{"from": "human", "value": "Hello"}]}
    bad = {"conversations": [{"from": "gpt", "value": "An answer alone"}]}
    assert len(readers.read(lines([good, bad, good]), readers.sharegpt, "sharegpt", skip=True)) == 2


def test_lines_read_back() -> None:
    items = tuple(item for _, _, item in FORMS)
    assert items_of(lines_of(items), "x") == items
    with pytest.raises(UsageError, match="line 2 is damaged"):
        items_of(lines_of(items[:1]) + "{", "x")


def many(counts: dict[str, int]) -> list[Item]:
    return [Item(group=name, prompt=f"{name} {n}") for name, count in counts.items() for n in range(count)]


def test_the_choice_is_even_and_any_beginning_has_all_groups() -> None:
    chosen = choose(many({"a": 50, "b": 3, "c": 50}), ["a", "b", "c"], 23, 1)
    assert Counter(i.group for i in chosen) == {"a": 10, "b": 3, "c": 10}
    assert [i.group for i in chosen[:6]] == ["a", "b", "c", "a", "b", "c"]


def test_the_choice_is_the_same_on_every_machine() -> None:
    """By SHA-256 of seed and text: these are its results, wherever it runs."""
    items = many({"a": 5, "b": 5})
    assert [i.prompt for i in choose(items, ["a", "b"], 4, 1)] == VECTOR
    assert [i.prompt for i in choose(items[::-1], ["a", "b"], 4, 1)] == VECTOR, (
        "the file's order plays no part"
    )
    assert [i.prompt for i in choose(items, ["a", "b"], 4, 2)] != VECTOR


VECTOR = ["a 0", "b 3", "a 4", "b 0"]


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 20), min_size=1),
    st.integers(1, 60),
    st.integers(0, 5),
)
def test_choosing_from_what_was_chosen_gives_the_same(counts: dict[str, int], sample: int, seed: int) -> None:
    groups = sorted(counts)
    once = choose(many(counts), groups, sample, seed)
    assert choose(once, groups, sample, seed) == once
    assert len(once) == min(sample, sum(counts.values()))
    got = Counter(item.group for item in once)
    assert {name: got[name] for name in groups} == shares({name: counts[name] for name in groups}, sample)


def test_a_prompt_that_stands_twice_is_sent_once() -> None:
    assert len(choose([Item(group="a", prompt="same")] * 3, ["a"], 3, 1)) == 1
