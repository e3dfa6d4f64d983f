"""The command itself: kinds guessed, JSON strict, text readable, exit statuses, standard input, big files."""

from __future__ import annotations

import io
import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddtop.errors import UsageError
from ddtop.inspect import (
    GROUP_KINDS,
    KINDS,
    NotJudgedError,
    inspect_file,
    inspect_files,
    main_inspect,
    read_folder,
    render_text,
    to_json,
)
from ddtop.inspect.file_kind import guess_kind, guess_text
from ddtop.inspect.inputs import join_reads

CASES = Path(__file__).parents[1] / "cases"
DATA = Path(__file__).parents[1] / "data" / "nvidia-h200"
OURS = sorted(p for p in CASES.glob("[AFG]*") if p.is_dir())
# What a person can give without a word on the kind, but one file alone does not tell: output of some command.
UNTOLD = {"F15-non-utf8-kills-connection"}


@pytest.mark.parametrize("folder", [f for f in OURS if f.name not in UNTOLD], ids=lambda f: f.name)
def test_the_kind_of_a_case_is_guessed(folder: Path) -> None:
    assert guess_kind(read_folder(folder)) == GROUP_KINDS[folder.name[0]]
    assert inspect_file(None, folder)["kind"] == GROUP_KINDS[folder.name[0]]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('data: {"choices": []}\n\ndata: [DONE]\n', "sse"),
        (": ping\n\ndata: {}\n", "sse"),
        ("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: {}\r\n", "sse"),
        ("ActiveState=failed\nSubState=failed\nResult=exit-code\n", "unit"),
        (
            "Nov 30 06:00:00 h systemd[1]: x.service: Main process exited, code=exited, status=203/EXEC\n",
            "unit",
        ),
        ("[2026-11-30 06:24:15] server_args=ServerArgs(model_path='/m')\n", "log"),
        ("INFO 11-30 06:24:15 [api_server.py:1] vLLM API server version 0.33.0\n", "log"),
        ('{"MESSAGE": "hello", "__CURSOR": "s=1", "SYSLOG_IDENTIFIER": "python3"}\n', "log"),
        ('{"request_throughput": 1.0, "mean_ttft_ms": 5}', "results"),
        ("============ Serving Benchmark Result ============\nSuccessful requests: 5\n", "results"),
        ("f 100 m/config.json\nf 200 m/model-00001-of-00002.safetensors\n", "model"),
        (
            "total 8\n-rw-r--r-- 1 u g 100 Nov 30 06:00 config.json\n-rw-r--r-- 1 u g 2000 Nov 30 06:00 model.safetensors\n",
            "model",
        ),
        ("Host gpu1\n  HostName 10.0.0.5\n  User root\n", "ssh"),
        ("ssh: connect to host gpu1 port 22: Connection refused\n", "ssh"),
        ("index, name, power.draw [W]\n0, NVIDIA H200, 5 W\n", "gpu"),
        ("No devices were found\n", "gpu"),
        ("", None),
        ("\x00\x01\x02" * 500, None),
    ],
)
def test_kinds_by_form(text: str, kind: str | None) -> None:
    assert guess_text(text.encode()) == kind


def test_a_folder_of_a_model_and_a_file_path(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    got = inspect_file(None, tmp_path)
    assert (got["kind"], got["cause"]) == ("model", "weights-absent")
    with pytest.raises(UsageError, match="is a directory"):
        inspect_file("log", tmp_path)


@pytest.mark.parametrize("folder", OURS, ids=lambda f: f.name)
def test_json_is_strict_and_text_reads(folder: Path) -> None:
    got = inspect_files(GROUP_KINDS[folder.name[0]], read_folder(folder))

    def refuse(name: str) -> Any:
        raise AssertionError(f"{name} is not JSON")

    back = json.loads(to_json(got), parse_constant=refuse)
    for key in ("schema", "kind", "verdict", "cause", "severity", "advice", "evidence"):
        assert key in back
    text = render_text(got)
    words = next(line for line in text.splitlines() if line.startswith("["))
    assert (
        f"[{got['verdict']} · {got['cause']} · {got['severity']}" in words
        and "\nEvidence\n" in text
        and "\nWhat to do\n" in text
    )
    assert all(ch.isprintable() or ch == "\n" for ch in text)


def test_numbers_that_are_none_are_left_out() -> None:
    assert json.loads(to_json({"a": float("nan"), "b": [1.0, float("inf")], "c": None, "d": 0})) == {
        "b": [1.0, None],
        "d": 0,
    }


def test_text_shows_lines_and_hides_control_characters() -> None:
    got = inspect_files("gpu", {"input.txt": b"No devices were found\x1b[2J\n"})
    assert "line 1" in render_text(got) and "\x1b" not in render_text(got)


def run(capsys: pytest.CaptureFixture[str], *args: Any) -> tuple[int, str, str]:
    code = main_inspect(*args)
    out = capsys.readouterr()
    return code, out.out, out.err


def test_exit_statuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "gpu", str(DATA / "plain.txt"), True)
    assert code == 0 and json.loads(out)["cause"] == "idle-no-model-loaded" and not err
    code, out, err = run(capsys, None, str(DATA / "q.xml"), False)
    assert code == 0 and out.startswith("The GPUs")
    code, out, err = run(capsys, "gpu", str(tmp_path / "none"), True)
    assert code == 2 and not out and "no such file" in err
    code, out, err = run(capsys, "fruit", "x", True)
    assert code == 2 and "gpu" in err
    (tmp_path / "odd.txt").write_text("hello\n")
    code, out, err = run(capsys, "gpu", str(tmp_path / "odd.txt"), True)
    assert code == 12 and not out and "cannot be judged" in err
    (tmp_path / "empty").write_text("")
    assert run(capsys, None, str(tmp_path / "empty"), True)[0] == 12
    assert run(capsys, "model", str(tmp_path / "odd.txt"), True)[0] == 12


def test_standard_input(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    class Stdin:
        buffer = io.BytesIO((DATA / "query_units.csv").read_bytes())

    monkeypatch.setattr(sys, "stdin", Stdin())
    code, out, _ = run(capsys, None, "-", True)
    assert code == 0 and json.loads(out)["kind"] == "gpu"


def test_a_host_name_against_the_users_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "config").write_text(
        "Host ct200\n  HostName 10.0.0.5\n  User root\n  ProxyJump bastion\n"
    )
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    code, out, _ = run(capsys, "ssh", "ct200", True)
    got = json.loads(out)
    assert (
        code == 0
        and got["hostname"] == "10.0.0.5"
        and got["expected_route"] == ["bastion:22", "root@ct200(10.0.0.5):22"]
    )


def test_a_config_without_its_usual_name(tmp_path: Path) -> None:
    (tmp_path / "colleague").write_text("Host gpu1\n  HostName 192.0.2.9\n  Port 2222\n")
    for kind in ("ssh", None):
        got = inspect_file(kind, tmp_path / "colleague")
        assert (got["kind"], got["hostname"], got["port"]) == ("ssh", "192.0.2.9", 2222)


def test_a_config_brings_what_it_includes(tmp_path: Path) -> None:
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d" / "jump").write_text("Host gpu1\n  ProxyJump bastion\n")
    (tmp_path / "config").write_text("Include conf.d/*\nHost gpu1\n  HostName 192.0.2.9\n")
    got = inspect_file("ssh", tmp_path / "config")
    assert (got["cause"], got["expected_route"]) == (
        "proxyjump-from-include",
        ["bastion:22", "gpu1(192.0.2.9):22"],
    )


def test_a_50_mb_log_is_guessed_and_refused_as_gpu_at_once() -> None:
    line = b"[2026-11-30 06:24:15 TP0] Decode batch. #running-req: 1, #token: 42, gen throughput (token/s): 26.1\n"
    data = line * (50_000_000 // len(line))
    begin = time.process_time()
    assert guess_text(data) == "log"
    assert time.process_time() - begin < 1


def test_a_1_mb_line_takes_no_time() -> None:
    for kind in ("gpu", "model", "ssh"):
        for piece in (b"a", b"0, ", b"f 1 x ", b"Host ", b"\xff", b"-rw-r--r-- 1 "):
            begin = time.process_time()
            with pytest.raises((NotJudgedError, AssertionError)):
                got = inspect_files(kind, {"input.txt": piece * (1_000_000 // len(piece))})
                raise AssertionError(got["verdict"])
            assert time.process_time() - begin < 5, (kind, piece)


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from([None, "gpu", "model", "ssh"]),
    st.sampled_from(
        [
            p
            for f in OURS
            for p in sorted(f.rglob("*"))
            if p.is_file() and p.name not in {"expect.toml", "source.txt"}
        ]
    ),
    st.lists(st.tuples(st.integers(0, 4000), st.binary(max_size=5)), max_size=6),
    st.integers(0, 3000),
)
def test_mutated_inputs_are_judged_or_refused_in_words(
    kind: str | None, path: Path, edits: list[tuple[int, bytes]], cut: int
) -> None:
    data = bytearray(path.read_bytes())
    for at, new in edits:
        at %= len(data) + 1
        data[at : at + len(new)] = new
    try:
        got = inspect_files(kind, {path.name: bytes(data)[: cut if cut < 2500 else None]})
    except NotJudgedError as error:
        assert str(error)
    else:
        assert got["kind"] in KINDS
        render_text(got)
        to_json(got)


def test_a_metrics_page_is_no_start_that_goes_on() -> None:
    page = (
        b'vllm:num_requests_running{engine="0"} 4.0\nvllm:spec_decode_num_drafts_total{engine="0"} 100.0\n'
        b'vllm:spec_decode_num_accepted_tokens_total{engine="0"} 150.0\n'
    )
    got = inspect_files("log", {"input.txt": page})
    assert (got["verdict"], got["accept_len"], got["running"]) == ("ok", 2.5, 4)


def test_reads_of_one_stream_follow_each_other_by_number() -> None:
    parts = {f"input.read{n}.log": f"part {n};".encode() for n in (10, 2, 1)}
    assert join_reads({**parts, "meta.toml": b""}) == {
        "meta.toml": b"",
        "input.log": b"part 1;part 2;part 10;",
    }


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            'event: progress\ndata: {"file":"m.gguf","percent":40}\n\nevent: complete\ndata: {"percent":100}\n\n',
            "another interface",
        ),
        (
            "total 56K\ndrwx------ 2 u u 4.0K Jan 13 05:13 .\n-rw------- 1 u u  411 Jan 13 05:13 id_ed25519\n",
            "",
        ),
    ],
)
def test_what_only_has_the_form_of_a_kind_is_not_judged_as_it(text: str, why: str) -> None:
    try:
        got = inspect_files(None, {"x.txt": text.encode()})
    except NotJudgedError as error:
        assert why in str(error)
    else:
        assert got["verdict"] == "unknown"
