"""Settings: every value knows where it came from, and a wrong key gets a sentence."""

from pathlib import Path

import pytest

from ddtop.config import describe, load_settings
from ddtop.errors import UsageError
from ddtop.paths import all_paths, shipped


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "config.toml"
    path.write_text(text)
    return path


def test_no_file_means_defaults(tmp_path: Path) -> None:
    settings = load_settings(tmp_path / "none.toml", env={})
    assert settings.theme == "ddtop-dark"
    assert settings.bell
    assert "# default" in describe(settings)


def test_values_and_their_origin(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        'theme = "mono"\nbell = false\n[keys]\nrestage = "f5"\n[hosts.ct200]\nhost_dir = "/data/d"\n',
    )
    settings = load_settings(path, env={})
    assert (settings.theme, settings.bell, settings.keys["restage"]) == ("mono", False, "f5")
    assert settings.host("ct200").host_dir == "/data/d"
    assert not settings.host("other").plan
    assert f'theme = "mono"  # {path}' in describe(settings)


def test_environment_wins(tmp_path: Path) -> None:
    settings = load_settings(write(tmp_path, 'theme = "mono"'), env={"DDTOP_THEME": "ddtop-light"})
    assert settings.theme == "ddtop-light"
    assert "environment DDTOP_THEME" in describe(settings)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("them = 'x'", "did you mean `theme`"),
        ("[hosts.a]\nplann = 'x'", "did you mean `plan`"),
        ("hosts = {a = 3}", "hosts.a"),
        ("bell = 'yes'", "write true or false"),
        ("theme = ", "not valid TOML"),
        ("theme = '\x00'", "not valid TOML"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, text: str, says: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(UsageError) as caught:
        load_settings(path, env={})
    assert says in str(caught.value)
    assert str(path) in str(caught.value)


def test_not_utf8_is_said(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(b"theme = '\xff\xfe'")
    with pytest.raises(UsageError, match="UTF-8"):
        load_settings(path, env={})


def test_one_folder_for_everything(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DDTOP_HOME", str(tmp_path))
    own = {k: v for k, v in all_paths().items() if not k.startswith("shipped")}
    assert all(tmp_path in path.parents for path in own.values())


def test_shipped_folders_are_there() -> None:
    assert (shipped("plans") / "demo.toml").is_file()
    assert (shipped("themes") / "ddtop-dark.toml").is_file()
