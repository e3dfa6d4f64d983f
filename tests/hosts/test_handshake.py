"""From noise to hello: what login shells print must neither break the start nor be taken for it."""

import json

import pytest

from ddtop.hosts.handshake import MAX_NOISE, BootError, Handshake

NONCE = "00112233445566ff"
SAID = {
    "protocol": 1,
    "agent": "ab",
    "python": "3.11.2",
    "uid": 0,
    "user": "root",
    "boot": "b/1",
    "can": ["jobs"],
    "unknown": [],
    "hostname": "gpu7",
    "state_dir": None,
    "mono_s": 1,
    "at_s": 2.5,
}
HELLO = json.dumps({"hello": SAID}).encode() + b"\n"


def mark(word: str) -> bytes:
    return f"\nddtop-{NONCE}-{word}\n".encode()


def test_clean_start() -> None:
    shake = Handshake(NONCE)
    assert shake.feed(mark("ready")) is True
    assert shake.feed(mark("sync") + HELLO + b'{"id":1') is False
    assert (shake.stage, shake.rest) == ("done", b'{"id":1')
    assert shake.hello is not None and shake.hello.hostname == "gpu7" and shake.hello.can == {"jobs"}


def test_noise_without_newline_and_fake_hello() -> None:
    shake = Handshake(NONCE)
    noise = b"Welcome to GPU node 7\r\n" + HELLO + b"last login: yesterday> "
    assert shake.feed(noise + mark("ready")) is True
    assert shake.feed(mark("sync") + HELLO) is False
    assert shake.stage == "done"
    assert "GPU node 7" in shake.noise


def test_byte_by_byte() -> None:
    shake = Handshake(NONCE)
    sends = [shake.feed(bytes([b])) for b in b"motd\n" + mark("ready") + mark("sync") + HELLO]
    assert sends.count(True) == 1
    assert shake.stage == "done"


def test_echoed_command_is_no_marker() -> None:
    shake = Handshake(NONCE)
    line = f"+ python3 -I -S -c 'w(\"ready\")' 10 ab {NONCE}\n".encode()
    assert shake.feed(line) is False
    assert shake.stage == "noise"


def test_noise_between_ready_and_sync_is_kept_as_noise() -> None:
    shake = Handshake(NONCE)
    shake.feed(mark("ready"))
    shake.feed(b"job 1 done in the background\n" + mark("sync") + HELLO)
    assert shake.stage == "done"
    assert "background" in shake.noise


@pytest.mark.parametrize(("word", "reason"), [("old-python", "old-python"), ("bad-zip", "bad-zip")])
def test_boot_says_why(word: str, reason: str) -> None:
    with pytest.raises(BootError) as caught:
        Handshake(NONCE).feed(mark(word))
    assert caught.value.reason == reason


@pytest.mark.parametrize("chunk", [b"x" * 1000 + b"\n", b"x" * 1000])
def test_endless_noise_is_refused(chunk: bytes) -> None:
    shake = Handshake(NONCE)
    with pytest.raises(BootError) as caught:
        for _ in range(MAX_NOISE // 1000 + 2):
            shake.feed(chunk)
    assert caught.value.reason == "noise"


def test_eof_keeps_the_noise_as_evidence() -> None:
    shake = Handshake(NONCE)
    shake.feed(b"This account is currently not available.\n")
    assert "not available" in shake.eof().text


@pytest.mark.parametrize(
    "line",
    [
        b"garbage\n",
        b"[]\n",
        json.dumps({"id": 1}).encode() + b"\n",
        json.dumps({"hello": {**SAID, "can": 1}}).encode() + b"\n",
    ],
)
def test_no_hello_after_sync(line: bytes) -> None:
    shake = Handshake(NONCE)
    shake.feed(mark("ready"))
    with pytest.raises(BootError) as caught:
        shake.feed(mark("sync") + line)
    assert caught.value.reason == "hello"


def test_foreign_nonce_is_noise() -> None:
    shake = Handshake(NONCE)
    assert shake.feed(b"\nddtop-ffffffffffffffff-ready\n") is False
    assert shake.stage == "noise"
