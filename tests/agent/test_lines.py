"""Cutting bytes into lines, with bounds, in whatever pieces they come."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddtop.agent.lines import ClippingSplitter, LineSplitter, LineTooLongError


@given(st.lists(st.binary(max_size=40).filter(lambda b: b"\n" not in b), max_size=20), st.integers(1, 17))
def test_any_cut_gives_the_same_lines(lines: list[bytes], step: int) -> None:
    data = b"".join(line + b"\n" for line in lines) + b"rest"
    splitter, clipping = LineSplitter(1000), ClippingSplitter(1000)
    found: list[bytes] = []
    clipped: list[bytes] = []
    for at in range(0, len(data), step):
        found += splitter.feed(data[at : at + step])
        clipped += clipping.feed(data[at : at + step])
    assert found == clipped == lines
    assert splitter.rest == b"rest"
    assert clipping.flush() == [b"rest"]


def test_too_long_is_an_error_with_and_without_its_end() -> None:
    with pytest.raises(LineTooLongError):
        LineSplitter(10).feed(b"x" * 11)
    with pytest.raises(LineTooLongError):
        LineSplitter(10).feed(b"x" * 11 + b"\n")
    assert LineSplitter(10).feed(b"x" * 10 + b"\n") == [b"x" * 10]


@given(st.integers(1, 13))
def test_clipping_goes_on_with_the_next_line(step: int) -> None:
    data = b"a\n" + b"x" * 50 + b"\nb\n"
    splitter = ClippingSplitter(20)
    found: list[bytes] = []
    for at in range(0, len(data), step):
        found += splitter.feed(data[at : at + step])
    assert found == [b"a", b"x" * 20, b"b"]


@given(st.integers(1, 13))
def test_a_clipped_line_says_so(step: int) -> None:
    data = b"a\n" + b"x" * 50 + b"\n" + b"y" * 20 + b"\n"
    splitter = ClippingSplitter(20, b"[cut]")
    found: list[bytes] = []
    for at in range(0, len(data), step):
        found += splitter.feed(data[at : at + step])
    assert found == [b"a", b"x" * 15 + b"[cut]", b"y" * 20]
