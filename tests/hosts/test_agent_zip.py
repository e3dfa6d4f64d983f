"""The packed agent: the same bytes for the same sources, all its data in it, and a command every shell reads alike."""

import hashlib
import io
import shlex
import zipfile

import pytest

from ddtop.hosts.agent_zip import BOOT, agent_zip, is_plain, pack, start_argv, start_command


def test_same_files_same_bytes_in_any_order() -> None:
    one = pack([("b.py", b"2"), ("a.py", b"1")])
    two = pack([("a.py", b"1"), ("b.py", b"2")])
    assert one == two
    assert one.sha256 == hashlib.sha256(one.data).hexdigest()
    assert pack([("a.py", b"1"), ("b.py", b"3")]).sha256 != one.sha256


def test_everything_is_in_it_and_stored() -> None:
    with zipfile.ZipFile(io.BytesIO(agent_zip().data)) as archive:
        infos = {info.filename: info for info in archive.infolist()}
        assert archive.read("__main__.py").startswith(b"from agent.main import main")
    assert {
        "agent/wire.py",
        "agent/loadgen/__init__.py",
        "agent/loadgen/corpus.txt",
        "agent/model/check.py",
    } <= set(infos)
    assert not [name for name in infos if "__pycache__" in name or name.endswith(".pyc")]
    assert {info.compress_type for info in infos.values()} == {zipfile.ZIP_STORED}, (
        "a host's python may lack zlib"
    )
    assert {info.date_time for info in infos.values()} == {(1980, 1, 1, 0, 0, 0)}


def test_boot_has_nothing_a_shell_could_read_apart() -> None:
    assert is_plain(BOOT)
    assert not set("'\\!\n\t") & set(BOOT)


def test_no_marker_stands_whole_in_the_command() -> None:
    command = start_command(agent_zip(), "0123456789abcdef", None)
    for marker in ("ready", "sync", "old-python", "bad-zip"):
        assert f"ddtop-0123456789abcdef-{marker}" not in command
    assert shlex.split(command) == start_argv(agent_zip(), "0123456789abcdef", None)
    assert command.startswith("python3 -I -S -c ")


def test_host_dir_is_the_last_word_and_must_be_plain() -> None:
    assert start_argv(agent_zip(), "n", "/data/x y")[-1] == "/data/x y"
    with pytest.raises(ValueError, match="quote"):
        start_command(agent_zip(), "n", "/data/it's")
