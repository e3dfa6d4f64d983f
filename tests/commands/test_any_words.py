"""Whatever is typed, a person gets a sentence and an exit code, never a traceback."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

from .conftest import Cli

RUN = """
import contextlib, io, json, sys
from ddtop.cli import main
out = []
for argv in json.load(open(sys.argv[1])):
    said = io.StringIO()
    code = 0
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            main(argv)
        except SystemExit as end:
            code = end.code
        except BaseException as error:
            code = f"{type(error).__name__}: {error}"
    out.append([argv, code, said.getvalue()])
json.dump(out, open(sys.argv[1], "w"))
"""

COMMANDS = [
    ["connect", "--once"],
    ["connect", "--record", "r.ddtop"],
    ["demo"],
    ["replay"],
    ["report"],
    ["report", "--html", "o.html"],
    ["runs"],
    ["runs", "export"],
    ["stop"],
    ["plan", "check"],
    ["plan", "show"],
    ["plan", "new", "--from"],
    ["bench", "--time-limit", "1", "-n", "1"],
    ["inspect"],
    ["inspect", "log"],
    ["inspect", "gpu"],
    ["inspect", "ssh"],
    ["inspect", "model"],
    ["import"],
    ["export", "--format"],
    ["export", "--format", "sglang"],
    ["paths"],
    ["config", "show"],
    [],
]
WORDS = [
    "",
    " ",
    "-",
    "--",
    "-x",
    "--json",
    "--md",
    "--csv",
    "..",
    "/",
    "/dev/null",
    "/etc/hostname",
    "no/such",
    "ü€",
    "a b",
    "$(id)",
    ";",
    "%s",
    "{}",
    "{0}",
    "\\",
    "'",
    '"',
    "x" * 300,
    "@",
    "a@",
    ":0",
    "a@b:99999",
    "nobody@127.0.0.1:1",
    "127.0.0.1:1",
    "[::1]:1",
    "0",
    "-1",
    "NaN",
    "sglang",
    "http://",
    "file.bin",
    "file.json",
    "file.toml",
    "file.ddtop",
    "\x1b[2J",
    "a\nb",
    "\udcff",
]


def test_random_words_to_every_command(ddtop: Cli, tmp_path: Path) -> None:
    (tmp_path / "file.bin").write_bytes(bytes(range(256)) * 4)
    (tmp_path / "file.json").write_text('{"a": [1, {"b": null}]}')
    (tmp_path / "file.toml").write_text('name = "x"\n[service]\nkind = 3\n')
    (tmp_path / "file.ddtop").write_bytes(b"SQLite format 3\x00" + b"\x00" * 200)
    chance = random.Random(20)
    argvs = [[*head, *chance.choices(WORDS, k=chance.randint(0, 3))] for head in COMMANDS for _ in range(8)]
    work = tmp_path / "argvs.json"
    work.write_text(json.dumps(argvs))
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(work)],
        cwd=tmp_path,
        env=ddtop.environ(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    results = json.loads(work.read_text())
    assert len(results) == len(argvs)
    bad = [
        (argv, code, said[-300:])
        for argv, code, said in results
        if code not in (0, 2, 10, 11, 12) or "Traceback" in said or "a bug in ddtop" in said
    ]
    assert not bad, "\n".join(map(repr, bad))
    assert sum(code == 2 for _, code, _ in results) > 50
    silent = [argv for argv, code, said in results if code and not said.strip()]
    assert not silent, silent
