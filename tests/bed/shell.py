"""Running the machine's own commands."""

import os
import subprocess
from pathlib import Path


def sh(*argv: object) -> None:
    """Run a command; its output is not wanted, its failure is an error."""
    subprocess.run([str(a) for a in argv], check=True, stdout=subprocess.DEVNULL)


def remove(*paths: object) -> None:
    """Delete trees, never crossing into what is mounted below them."""
    sh("rm", "-rf", "--one-file-system", *paths)


def write(path: Path, text: str | bytes, mode: int = 0o644, uid: int = 0) -> None:
    """Write a file of a host's disk with its owner and mode, making its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    path.chmod(mode)
    os.chown(path, uid, uid)
