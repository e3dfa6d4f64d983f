"""Names → connectors, and what is wrong with a hosts table in words."""

from pathlib import Path

import pytest

from ddtop.errors import UsageError
from ddtop.hosts.inventory import HostSettings, connector_for, read_host_settings
from ddtop.hosts.local import LocalConnector
from ddtop.hosts.ssh.connection import SshConnector


@pytest.mark.parametrize("name", ["local", "localhost"])
def test_this_machine(name: str) -> None:
    connector = connector_for(name)
    assert isinstance(connector, LocalConnector)
    assert connector.target == "this machine"


def test_anything_else_is_ssh() -> None:
    connector = connector_for("ct200")
    assert isinstance(connector, SshConnector)
    assert (connector.name, connector.target) == ("ct200", "ct200")


def test_settings_of_a_host(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(
        '[hosts.ct200]\nssh = "gpu@10.0.0.9:2222"\nhost_dir = "/data/ddtop"\npython = "/opt/py/bin/python3"\n'
    )
    settings = read_host_settings([tmp_path / "none.toml", path])
    assert settings["ct200"] == HostSettings(
        ssh="gpu@10.0.0.9:2222", host_dir="/data/ddtop", python="/opt/py/bin/python3"
    )
    connector = connector_for("ct200", config_paths=[path])
    assert isinstance(connector, SshConnector)
    assert (connector._host_dir, connector._python, connector.target) == (
        "/data/ddtop",
        "/opt/py/bin/python3",
        "gpu@10.0.0.9:2222",
    )
    told = connector_for("ct200", config_paths=[path], host_dir="/other")
    assert isinstance(told, SshConnector)
    assert told._host_dir == "/other", "the command line wins"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[hosts.a]\nhostdir = 1\n", ["hosts.a", "did you mean `host_dir`"]),
        ("[hosts.a]\nport = 'x'\n", ["hosts.a", "port"]),
        ("[hosts\n", ["config.toml"]),
        ("hosts = 3\n", ["[hosts.NAME]"]),
    ],
)
def test_wrong_settings_are_sentences(tmp_path: Path, text: str, words: list[str]) -> None:
    path = tmp_path / "config.toml"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        connector_for("a", config_paths=[path])
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("name", ["", "  ", "-oProxyCommand=x"])
def test_no_names(name: str) -> None:
    with pytest.raises(UsageError):
        connector_for(name)


async def test_local_connects_for_real() -> None:
    from tests.agent.helpers import disk_folder

    with disk_folder() as folder:
        host = await connector_for("local", host_dir=str(folder)).connect()
        try:
            assert host.name == "local"
            assert (await host.call("probe"))["hostname"] == host.hello.hostname
        finally:
            await host.close()
