"""A real engine as a unit of systemd on a host of the bed, from the folder that every host sees as /opt/engines.

The host's own Debian python3.11 runs it: /opt/real-ENGINE is an environment whose packages are those that were built."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from tests.bed.client import Bed
from tests.bed.config import DEBS
from tests.bed.shell import sh

NUMA = DEBS / "numa"
_LIBRARIES = "/opt/debs/numa/usr/lib/x86_64-linux-gnu"
UNIT = """[Unit]
Description=A real {engine}
[Service]
Environment=HOME=/root LD_LIBRARY_PATH={libraries} HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1
ExecStart={program} --help
{more}
"""


def _numa() -> None:
    """Debian's libnuma, which both engines load and the bed's base does not have."""
    if NUMA.exists():
        return
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        sh("sh", "-c", f"cd {place} && apt-get -qq download libnuma1 && dpkg-deb -x libnuma1*.deb new")
        DEBS.mkdir(parents=True, exist_ok=True)
        shutil.move(f"{place}/new", NUMA)


def unit_of(engine: str) -> str:
    return f"real-{engine}.service"


def install(bed: Bed, host: str, engine: str, more: str = "") -> str:
    """Writes the unit and its environment, and loads it; `more`: further lines of [Service]. Returns the unit's name.

    Its own command only prints help: a plan gives the arguments. `Bed.restore` removes it."""
    _numa()
    place, built = f"/opt/real-{engine}", f"/opt/engines/{engine}/lib/python3.11/site-packages"
    bed.sh(
        host,
        f"rm -rf {place}; mkdir -p {place}/bin {place}/lib/python3.11; ln -s /usr/bin/python3 {place}/bin/python;"
        f"printf 'home = /usr/bin\\nversion = 3.11\\n' > {place}/pyvenv.cfg; ln -s {built} {place}/lib/python3.11/",
    )
    module = "vllm.entrypoints.cli.main" if engine == "vllm" else "sglang.launch_server"
    text = UNIT.format(
        engine=engine, libraries=_LIBRARIES, program=f"{place}/bin/python -m {module}", more=more
    )
    unit = unit_of(engine)
    bed.sh(host, f"cat > /etc/systemd/system/{unit} && systemctl daemon-reload", stdin=text)
    return unit
