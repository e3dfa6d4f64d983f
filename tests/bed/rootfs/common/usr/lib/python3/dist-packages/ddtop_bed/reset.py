"""Puts this host back as it was shipped, without a reboot: units, drop-ins, processes, models, faults, ledger."""
import filecmp, json, os, shutil, signal, subprocess
from pathlib import Path

from . import faults, gpu, ledger, models

UNITS, PRISTINE = Path("/etc/systemd/system"), Path("/usr/share/ddtop-bed/units")
KEEP = ("ssh.service", "dbus.service", "systemd-", "user@", "user-runtime-dir@", "getty", "console-getty", "rc-local", "serial-getty")
RUN_DIRS = ("/run/systemd/system", "/run/systemd/system.control", "/run/systemd/transient")
HOMES = ("/root", "/home/bench")


def run(*argv):
    return subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout


def kill_services():
    """End every service and scope that the base system does not have, at once."""
    shown = run("systemctl", "show", "*.service", "*.scope", "*.timer", "-p", "Id,FragmentPath,ActiveState").split("\n\n")
    units = [dict(line.split("=", 1) for line in block.splitlines() if "=" in line) for block in shown]
    ours = [u["Id"] for u in units if u.get("Id") and u["ActiveState"] != "inactive" and not u["Id"].startswith((*KEEP, "session-", "init.scope"))
            and ("/run/" in u["FragmentPath"] or (UNITS / u["Id"]).exists())]
    if ours:
        run("systemctl", "stop", "--no-block", *ours)
        run("systemctl", "kill", "--signal=KILL", "--kill-whom=all", *ours)
        run("systemctl", "stop", *ours)
    return ours


def kill_strays():
    """Foreign servers and left-over agents: any process of a login or of nobody that is not a shell of sshd."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) not in (1, os.getpid(), os.getppid()):
            try:
                cmdline = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                cgroup = (entry / "cgroup").read_text()
            except OSError:
                continue
            if ("session-" in cgroup or "user@" in cgroup) and cmdline and not cmdline.startswith(("sshd:", "(sd-pam)", "/lib/systemd/systemd", "/usr/bin/dbus-daemon")):
                try:
                    os.kill(int(entry.name), signal.SIGKILL)
                except OSError:
                    pass


def restore_units():
    """Unit files as shipped; nothing under /run but what systemd made."""
    changed = False
    shipped = {str(p.relative_to(PRISTINE)) for p in PRISTINE.rglob("*") if not p.is_dir() or p.is_symlink()}
    for path in list(UNITS.rglob("*")):
        name = str(path.relative_to(UNITS))
        if path.is_file() and not path.is_symlink() and name not in shipped:
            path.unlink()
            changed = True
        elif path.is_symlink() and os.readlink(path) == "/dev/null" and (PRISTINE / name).exists():
            path.unlink()
            changed = True
    for name in shipped:
        source, target = PRISTINE / name, UNITS / name
        if source.is_symlink():
            continue
        if not target.exists() or not filecmp.cmp(source, target, shallow=False):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
            changed = True
    for root in RUN_DIRS:
        for path in Path(root).glob("*"):
            if path.name.endswith(".d") or path.is_symlink() or path.is_file():
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
                changed = True
    for path in [p for p in UNITS.glob("*.d") if p.is_dir() and not any(p.iterdir())]:
        path.rmdir()
    return changed


def restore_user_units():
    """The units of user bench as shipped, and no user manager that remembers others."""
    for home in HOMES:
        folder, shipped = Path(home, ".config/systemd/user"), Path("/usr/share/ddtop-bed/user-units")
        names = {p.name for p in shipped.glob("*")} if home != "/root" and shipped.exists() else set()
        for path in folder.glob("*"):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif path.name not in names:
                path.unlink()
        for name in names:
            if not (folder / name).exists() or (folder / name).read_bytes() != (shipped / name).read_bytes():
                shutil.copyfile(shipped / name, folder / name)
    if Path("/run/user/1000").exists():
        run("systemctl", "kill", "--signal=KILL", "user@1000.service")
        run("systemctl", "stop", "user@1000.service")


def restore_models():
    for path in Path("/dev/shm").iterdir():
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    host, data = gpu.card()["host"], Path("/data/models")
    wanted = json.loads(Path("/usr/share/ddtop-bed/models.json").read_text())
    have = {str(p.relative_to(data)): p.stat().st_size for p in data.rglob("*") if p.is_file()}
    for name in set(have) - set(wanted):
        if not name.startswith("SmolLM2"):
            (data / name).unlink()
    if any(have.get(n) != s for n, s in wanted.items()):
        models.make_all(host, "/")
    for folder in [d for d in data.iterdir() if d.is_dir() and not any(d.iterdir())]:
        folder.rmdir()


def undo_trouble():
    """What tests/bed/trouble.py does outside of units and models."""
    for venv in ("/opt/sglang", "/opt/ddtree"):
        if Path(venv, "bin.away").exists():
            shutil.rmtree(Path(venv, "bin"), ignore_errors=True)
            Path(venv, "bin.away").rename(Path(venv, "bin"))
    conf = Path("/etc/systemd/logind.conf.d/bed.conf")
    if conf.exists():
        conf.unlink()
        run("systemctl", "restart", "systemd-logind")
    sessions = Path("/etc/ssh/sshd_config.d/bed.conf")
    if sessions.exists():
        sessions.unlink()
        run("systemctl", "reload", "ssh")
    for home in HOMES:
        saved = Path(home, ".bashrc.bed")
        if saved.exists():
            saved.rename(Path(home, ".bashrc"))
    for lease in (*Path("/run/lock").glob("ddtop-l*"), *Path("/tmp").glob("ddtop-l*")):
        lease.unlink()
    for user in Path("/var/lib/systemd/linger").glob("*"):
        run("loginctl", "disable-linger", user.name)


def main():
    faults.write([])
    undo_trouble()
    kill_services()
    kill_strays()
    restore_user_units()
    changed = restore_units()
    if changed or run("systemctl", "show", "*.service", "-P", "NeedDaemonReload").count("yes"):
        run("systemctl", "daemon-reload")
    run("systemctl", "reset-failed")
    restore_models()
    for home in HOMES:
        for part in (".local/state/ddtop", "results", ".cache/flashinfer", ".cache/vllm", ".cache/huggingface"):
            shutil.rmtree(os.path.join(home, part), ignore_errors=True)
    for place in ("/run/ddtop-bed-gpu", "/run/ddtop-bed-docker", "/var/lib/ddtop-bed/docker"):
        shutil.rmtree(place, ignore_errors=True)
    Path("/run/ddtop-bed-gpu").mkdir()
    Path("/run/ddtop-bed-gpu").chmod(0o1777)
    ledger.FILE.unlink(missing_ok=True)
    ledger.stamp("restored")


if __name__ == "__main__":
    main()
