"""Cutting bytes into lines, with bounds, in whatever pieces they come."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddtop.agent.lines import ClippingSplitter, LineSplitter, LineTooLongError, Window
from ddtop.agent.wire import STREAM_CREDIT


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


def on_its_way(
    rate_b: float, trip_s: float, *, span_s: float = 60.0, item_b: int = 200
) -> tuple[float, float]:
    """(the longest that an answer waits behind a stream that always has more, share of the way's rate that it gets), in the
    second half of `span_s`. SIMULATED: a way of `rate_b` bytes a second, in order, whose round trip takes `trip_s`."""
    window, now, free_at = Window(), 0.0, 0.0
    acks: list[float] = []
    waits, got = 0.0, 0
    while now < span_s:
        while not window.is_full:
            size = max(item_b, min(64 << 10, window.size_b // 8))
            window.sent(size, now)
            free_at = max(free_at, now) + size / rate_b
            acks.append(free_at + trip_s)
            if now > span_s / 2:
                waits, got = max(waits, free_at - now), got + size
        now = max(now, acks.pop(0))
        window.acked(1, now)
    return waits, got / rate_b / (span_s / 2)


@pytest.mark.parametrize("trip_s", [0.0005, 0.04, 0.3])
@pytest.mark.parametrize("rate_b", [40e3, 200e3, 1.2e6, 12e6])
def test_an_answer_never_waits_long_behind_a_stream(rate_b: float, trip_s: float) -> None:
    """At 20,000 log lines a second a request waited up to 6.7 s: credit was counted in batches of up to 256 KiB."""
    wait_s, share = on_its_way(rate_b, trip_s)
    assert wait_s < 0.3
    assert share > 0.5


def test_a_window_outlives_a_way_that_grows_longer_and_a_reader_that_sleeps() -> None:
    window, now = Window(), 100.0
    for trip_s, rounds in ((0.001, 30), (0.3, 200), (600.0, 1), (0.001, 30)):
        for _ in range(rounds):
            while not window.is_full:
                window.sent(1000, now)
            now += trip_s
            window.acked(STREAM_CREDIT, now)
        if trip_s < 1:
            assert window.size_b >= 32 << 10, trip_s
    window.acked(5, now)  # more than were sent
    assert not window.is_full
