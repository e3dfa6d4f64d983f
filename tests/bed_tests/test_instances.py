"""Several beds on one machine: nothing of one is another's, but what is made once and only read."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from tests.bed.config import REPO

CODE = """
import json
from tests.bed import config as c
own = [c.DISKS, c.KEYS, c.RUN, c.SOCK, c.SSH_CONFIG, c.KNOWN_HOSTS, c.LOCK, c.CGROUPS, c.NET, c.CLIENT_IP, c.CLIENT_TUN, c.TUN]
own += [h.ip for h in c.HOSTS.values()]
print(json.dumps({"own": [str(x) for x in own], "shared": [str(c.BASE), str(c.REAL_LAYER)]}))
"""


def instance(number: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "DDTOP_BED": number}
    return subprocess.run([sys.executable, "-c", CODE], cwd=REPO, env=env, capture_output=True, text=True)


def test_two_beds_share_only_what_is_read() -> None:
    first, second = (json.loads(instance(n).stdout) for n in ("1", "99"))
    assert first["shared"] == second["shared"]
    assert not set(first["own"]) & set(second["own"])
    assert max(len(name) + len("ct200") for name in (second["own"][11],)) <= 15, (
        "an interface's name is short"
    )


def test_a_number_out_of_range_is_refused_in_words() -> None:
    done = instance("0")
    assert done.returncode and "give a number from 1 to 99" in done.stderr and "Traceback" not in done.stderr
