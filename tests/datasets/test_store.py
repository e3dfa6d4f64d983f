"""Datasets over real HTTP: fetched, checked, kept, read back; and every way that this fails."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ddtop.cli import app
from ddtop.datasets import store
from ddtop.datasets.item import digest
from ddtop.datasets.sources import SOURCES, Source, source_of
from ddtop.errors import UsageError

BODY = b'{"question": "How many?", "answer": "2"}\n{"question": "How far?", "answer": "3"}\n'


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DDTOP_HOME", str(tmp_path / "home"))
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def site() -> Iterator[str]:
    """/data answers with BODY, /moved leads there, anything else is 404."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = self.path == "/data"
            moved = self.path == "/moved"
            body = BODY if known else b"gone"
            self.send_response(200 if known else 302 if moved else 404)
            if moved:
                self.send_header("Location", "/data")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def gsm8k(url: str, sha256: str = digest(BODY)) -> Source:
    return replace(source_of("gsm8k"), url=url, sha256=sha256)


def test_a_fetched_dataset_is_read_back_with_its_licence(site: str) -> None:
    seen: list[tuple[int, int | None]] = []
    fetched = store.fetch(gsm8k(f"{site}/moved"), tell=lambda done, whole: seen.append((done, whole)))
    assert seen[-1] == (len(BODY), len(BODY))
    assert store.load("gsm8k") == fetched
    assert [item.prompt for item in fetched.items] == ["How many?", "How far?"]
    assert (fetched.about.licence, fetched.about.sha256) == ("MIT", digest(BODY))


def test_a_wrong_hash_keeps_nothing_and_leaves_what_was_there(site: str) -> None:
    with pytest.raises(UsageError, match="wrong SHA-256"):
        store.fetch(gsm8k(f"{site}/data", "0" * 64))
    with pytest.raises(UsageError, match="is not on this machine") as raised:
        store.load("gsm8k")
    assert raised.value.do == "ddtop dataset fetch gsm8k"
    whole = store.fetch(gsm8k(f"{site}/data"))
    with pytest.raises(UsageError, match="wrong SHA-256"):
        store.fetch(gsm8k(f"{site}/data", "0" * 64))
    assert store.load("gsm8k") == whole


def test_a_changed_copy_is_refused(site: str) -> None:
    store.fetch(gsm8k(f"{site}/data"))
    kept = store.folder_of("gsm8k") / "items.jsonl"
    kept.write_text(kept.read_text().replace("How far?", "How near?"))
    with pytest.raises(UsageError, match="not as it was fetched"):
        store.load("gsm8k")
    (store.folder_of("gsm8k") / "about.json").write_text("{")
    with pytest.raises(UsageError, match="cannot be read"):
        store.load("gsm8k")


def test_a_missing_page_and_no_network_say_what_to_do(site: str) -> None:
    with pytest.raises(UsageError, match="HTTP 404"):
        store.fetch(gsm8k(f"{site}/nothing"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # bound and not listening: refused
        with pytest.raises(UsageError, match=r"no connection to 127\.0\.0\.1") as raised:
            store.fetch(gsm8k(f"http://127.0.0.1:{free.getsockname()[1]}/data"))
    assert "--from FILE" in raised.value.do
    assert "the GPU host needs none" in raised.value.means


def test_what_cannot_be_fetched_whole_is_read_from_a_prepared_file(home: Path) -> None:
    runner, file = CliRunner(), home / "prepared.jsonl"
    name = "speed-bench:qualitative"
    with pytest.raises(UsageError, match="cannot be fetched whole"):
        store.fetch(source_of(name))
    with pytest.raises(UsageError, match="is not on this machine") as raised:
        store.load(name)
    assert "prepare_data.py" in raised.value.do
    file.write_text(json.dumps({"question_id": "a", "category": "coding", "turns": ["Sort it."]}))
    said = runner.invoke(app, ["dataset", "fetch", name, "--from", str(file)], catch_exceptions=False).output
    assert "1 prompt in 1 group" in said
    assert "not to be given away" in said
    assert "do not carry its texts" in said
    assert "coding" in runner.invoke(app, ["dataset", "show", name]).output


def test_list_says_what_is_here(site: str) -> None:
    store.fetch(gsm8k(f"{site}/data"))
    rows = json.loads(CliRunner().invoke(app, ["dataset", "list", "--json"]).output)
    assert {row["name"] for row in rows if row["here"]} == {"gsm8k"}
    text = CliRunner().invoke(app, ["dataset", "list"]).output
    assert all(source.name in text and source.licence in text for source in SOURCES)


def test_a_file_of_ones_own_is_read_where_it_is(home: Path) -> None:
    (home / "mine.jsonl").write_text('{"prompt": "\\u001b[31mHi", "group": "x"}\n')
    assert store.load("file:mine.jsonl", home).groups == {"x": 1}
    with pytest.raises(UsageError, match="No such file"):
        store.load("file:other.jsonl", home)
    shown = CliRunner().invoke(app, ["dataset", "show", f"file:{home / 'mine.jsonl'}"]).output
    assert "\x1b" not in shown, "what stands in a dataset never reaches the terminal as control characters"
    with pytest.raises(UsageError, match="is not fetched"):
        CliRunner().invoke(app, ["dataset", "fetch", "file:mine.jsonl"], catch_exceptions=False)


def test_an_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(UsageError, match="no dataset `specbench`") as raised:
        source_of("specbench")
    assert "did you mean `spec-bench`?" in raised.value.do
