"""What "as found" is compared by: unit files, drop-ins, unit states, processes, model folders. JSON on stdout."""
import hashlib, json, os, re, subprocess
from pathlib import Path

UNIT_DIRS = ("/etc/systemd/system", "/run/systemd/system", "/run/systemd/system.control", "/run/systemd/transient",
             "/etc/systemd/user", "/run/systemd/user", "/home/bench/.config/systemd/user", "/root/.config/systemd/user",
             *(f"/run/user/{uid}/systemd/{d}" for uid in (0, 1000) for d in ("user", "user.control", "transient")))
# A login makes these and takes them away some seconds later; they say nothing about what was left behind.
LOGIN = re.compile(r"session-\w+\.scope$|session-\d+\.scope$|user@\d+\.service$|user-runtime-dir@\d+\.service$|user-\d+\.slice$|run-user-.*\.mount$")
BORING = re.compile(r"^(sshd: |sshd \[|\(sd-pam\)|/lib/systemd/|/usr/lib/systemd/|/sbin/init|/usr/sbin/sshd|/usr/bin/dbus-daemon|\(|$)")
MODEL_DIRS = ("/dev/shm", "/data/models")


def files(root, inside=lambda p: True):
    out = {}
    for path, dirs, names in os.walk(root):
        dirs.sort()
        for name in sorted(names) + [d for d in dirs if os.path.islink(os.path.join(path, d))]:
            p = os.path.join(path, name)
            try:
                if os.path.islink(p):
                    out[p] = "-> " + os.readlink(p)
                elif os.path.isfile(p):  # not a socket or FIFO, which would block
                    out[p] = inside(p)
            except OSError:
                pass
    return out


def digest(path):
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()[:12]


def units():
    shown = subprocess.run(["systemctl", "list-units", "--all", "--plain", "--no-legend", "--full",
                            "--type=service,scope,timer,socket"], stdout=subprocess.PIPE, text=True).stdout
    out = {}
    for line in shown.splitlines():
        name, load, active, sub = line.split(None, 4)[:4]
        if not LOGIN.search(name) and name.endswith((".service", ".scope", ".timer")) and load != "not-found":
            out[name] = f"{active}/{sub}"
    return {n: s for n, s in out.items() if s.split("/")[0] != "inactive"}


def needs_reload():
    out = subprocess.run(["systemctl", "show", "*.service", "-p", "Id,NeedDaemonReload"], stdout=subprocess.PIPE, text=True).stdout
    return sorted(b.split("Id=")[1].split("\n")[0] for b in out.split("\n\n") if "NeedDaemonReload=yes" in b)


def processes():
    out, own = {}, {os.getpid(), os.getppid()}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) in own:
            continue
        try:
            cmdline = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            foreign = os.readlink(entry / "ns/cgroup") and "/../" in (entry / "cgroup").read_text()
        except OSError:
            continue
        if cmdline and not BORING.search(cmdline) and not foreign:
            out[cmdline] = out.get(cmdline, 0) + 1
    return out


def take():
    return {"unit_files": {p: d for root in UNIT_DIRS for p, d in files(root, digest).items()}, "units": units(),
            "needs_reload": needs_reload(), "processes": processes(),
            "models": {p: s for root in MODEL_DIRS for p, s in files(root, lambda p: os.lstat(p).st_size).items()}}


if __name__ == "__main__":
    print(json.dumps(take()))
