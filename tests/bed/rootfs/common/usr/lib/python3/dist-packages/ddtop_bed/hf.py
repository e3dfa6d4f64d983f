"""SIMULATED `hf` (Hugging Face's command line): `hf download REPO`, as huggingface_hub lays files down, without a network.

The files of a repository are made on the spot: the model of this host whose name the repository ends with.
Faults: HF_S=2 seconds for all of it; HF_FAULT=offline | auth | missing | disk-full | cut:N (dies after N files).
"""
import argparse, errno, hashlib, os, sys, tempfile, time
from pathlib import Path

from . import gpu, ledger, models
from .faults import Faults

FAULTS = Faults(argv=["hf", *sys.argv[1:]])
COMMIT = hashlib.sha1(b"ddtop-bed").hexdigest()


def fail(message, status=1):
    print(message, file=sys.stderr)
    return status


def made(name, folder):
    """The repository's files, in a folder."""
    shards, size, gib, arch = models.MODELS[gpu.card()["host"]][name]
    models.make(folder, shards, size, gib, arch)
    return sorted(folder.iterdir())


def fetch(source, target, part, seconds):
    """One file: in pieces into its .incomplete, then renamed."""
    part.parent.mkdir(parents=True, exist_ok=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    data = source.read_bytes()
    with open(part, "wb") as f:
        for i in range(4):
            f.write(data[len(data) * i // 4:len(data) * (i + 1) // 4])
            f.flush()
            time.sleep(seconds / 4)
    os.replace(part, target)


def download(a):
    fault, name = FAULTS.get("HF_FAULT"), a.repo.split("/")[-1]
    known = models.MODELS[gpu.card()["host"]]
    ledger.stamp("hf", repo=a.repo, fault=fault)
    if fault == "offline" or os.environ.get("HF_HUB_OFFLINE") == "1":
        return fail("huggingface_hub.errors.LocalEntryNotFoundError: Cannot find an appropriate cached snapshot folder for the specified revision on the local disk "
                    "and outgoing traffic has been disabled. To enable repo look-ups and downloads online, pass 'local_files_only=False' as input.")
    if fault == "auth":
        return fail(f"Error: Access denied. This repository requires approval. 401 Client Error. Cannot access gated repo for url https://huggingface.co/{a.repo}/resolve/main/config.json.")
    if fault == "missing" or name not in known:
        return fail(f"Error: Repository not found. 404 Client Error. Repository Not Found for url: https://huggingface.co/api/models/{a.repo}/revision/{a.revision or 'main'}.")
    cut = int(fault[4:]) if fault.startswith("cut:") else None
    with tempfile.TemporaryDirectory() as tmp:
        files = made(name, Path(tmp) / name)
        if a.local_dir:
            root = Path(a.local_dir)
            place = lambda f: (root / f.name, root / ".cache/huggingface/download" / f"{f.name}.{COMMIT[:8]}.incomplete")
        else:
            root = Path(os.environ.get("HF_HOME", Path.home() / ".cache/huggingface")) / "hub" / ("models--" + a.repo.replace("/", "--"))
            place = lambda f: (root / "blobs" / hashlib.sha256(f.name.encode()).hexdigest(), root / "blobs" / f"{hashlib.sha256(f.name.encode()).hexdigest()}.incomplete")
        for n, file in enumerate(files):
            target, part = place(file)
            link = root / "snapshots" / COMMIT / file.name
            if not (target.exists() and target.stat().st_size == file.stat().st_size):
                if cut is not None and n >= cut:
                    part.parent.mkdir(parents=True, exist_ok=True)
                    part.write_bytes(file.read_bytes()[:1000])
                    return fail("requests.exceptions.ConnectionError: ('Connection aborted.', ConnectionResetError(104, 'Connection reset by peer'))")
                try:
                    if fault == "disk-full" and n == 2:
                        raise OSError(errno.ENOSPC, "No space left on device")
                    fetch(file, target, part, FAULTS.get("HF_S", 2.0) / FAULTS.speed() / len(files))
                except OSError as error:
                    return fail(f"OSError: {error}")
            if not a.local_dir and not link.is_symlink():
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(os.path.relpath(target, link.parent))
            if not a.quiet:
                print(f"\rFetching {len(files)} files: {100 * (n + 1) // len(files):3d}%| {n + 1}/{len(files)}", end="", file=sys.stderr, flush=True)
        if a.local_dir:
            meta = root / ".cache/huggingface/download"
            meta.mkdir(parents=True, exist_ok=True)
            for file in files:
                (meta / f"{file.name}.metadata").write_text(f"{COMMIT}\n{hashlib.sha256(file.read_bytes()).hexdigest()}\n{time.time()}\n")
        else:
            (root / "refs").mkdir(parents=True, exist_ok=True)
            (root / "refs" / (a.revision or "main")).write_text(COMMIT)
            root = root / "snapshots" / COMMIT
    print(("" if a.quiet else "\n") + str(root), flush=True)
    return 0


def main(argv):
    ap = argparse.ArgumentParser(prog="hf")
    sub = ap.add_subparsers(dest="verb", required=True)
    p = sub.add_parser("download")
    p.add_argument("repo")
    p.add_argument("files", nargs="*")
    for flag in ("--revision", "--local-dir", "--include", "--exclude", "--max-workers", "--token", "--cache-dir", "--repo-type", "--format"):
        p.add_argument(flag)
    p.add_argument("--quiet", "-q", action="store_true")
    p.add_argument("--dry-run", action="store_true")
    sub.add_parser("version")
    a = ap.parse_args(argv)
    if a.verb == "version":
        print("huggingface_hub version: 1.4.0")
        return 0
    return download(a)
