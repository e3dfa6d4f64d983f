"""SIMULATED docker: enough of its client for a unit whose main process is `docker run`.

What is real about it: the container's processes live in a scope of their own (docker-ID.scope), not in the unit's
cgroup; the client passes SIGTERM on; killing the client with SIGKILL leaves the container running. What is not:
no image, no file system, no network of its own (--network host is the only kind). "python3" is the engine's.
"""
import json, os, re, secrets, shutil, signal, subprocess, sys, time
from datetime import datetime, timezone
from pathlib import Path

RUN, LOGS = Path("/run/ddtop-bed-docker"), Path("/var/lib/ddtop-bed/docker")
WITH_VALUE = {"--name", "--gpus", "--network", "--net", "--ipc", "--shm-size", "-v", "--volume", "-e", "--env", "-p", "--publish", "--restart", "-w", "--ulimit",
              "--entrypoint", "--pid", "--log-driver", "--runtime", "-l", "--label", "--memory", "--cpus", "-u", "--user", "--stop-timeout"}
VERSION = "27.5.1"


def now():
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f000Z")


def save(c):
    RUN.mkdir(exist_ok=True)
    tmp = RUN / f"{c['Id']}.tmp"
    tmp.write_text(json.dumps(c))
    tmp.rename(RUN / f"{c['Id']}.json")


def containers():
    out = [json.loads(p.read_text()) for p in sorted(RUN.glob("*.json"))] if RUN.exists() else []
    for c in out:
        pid = c["State"]["Pid"]
        if c["State"]["Running"] and not os.path.exists(f"/proc/{pid}"):
            c["State"].update(Status="exited", Running=False, Pid=0, FinishedAt=now())
    return out


def find(name):
    for c in containers():
        if c["Name"] == "/" + name.lstrip("/") or c["Id"].startswith(name):
            return c
    print(f"Error response from daemon: No such container: {name}", file=sys.stderr)
    sys.exit(1)


def run(argv):
    flags, env, name, it = [], {}, "", list(argv)
    while it and it[0].startswith("-"):
        flag, eq, value = it.pop(0).partition("=")
        if not eq and flag in WITH_VALUE:
            value = it.pop(0)
        flags.append((flag, value))
        if flag == "--name":
            name = value
        if flag in ("-e", "--env"):
            key, eq, value = value.partition("=")
            env[key] = value if eq else os.environ.get(key, "")
    image, command = it[0], it[1:]
    name = name or "quirky_" + secrets.token_hex(3)
    if any(c["Name"] == "/" + name for c in containers()):
        print(f'docker: Error response from daemon: Conflict. The container name "/{name}" is already in use.', file=sys.stderr)
        return 125
    names = dict(flags)
    container = secrets.token_hex(32)
    network = names.get("--network", names.get("--net", "bridge"))
    policy = names.get("--restart", "no")
    c = {"Id": container, "Name": "/" + name, "Created": now(), "Image": "sha256:" + "0" * 64, "RestartCount": 0, "Args": command[1:], "Path": command[0],
         "Config": {"Cmd": command, "Image": image, "Env": [f"{k}={v}" for k, v in env.items()]},
         "HostConfig": {"NetworkMode": network, "AutoRemove": "--rm" in names, "RestartPolicy": {"Name": policy}, "IpcMode": names.get("--ipc", "private")},
         "State": {"Status": "created", "Running": False, "Pid": 0, "ExitCode": 0, "OOMKilled": False, "Error": "", "StartedAt": "", "FinishedAt": "0001-01-01T00:00:00Z"}}
    inner = ["/opt/sglang/bin/" + command[0] if command[0] in ("python", "python3") else command[0], *command[1:]]
    LOGS.mkdir(parents=True, exist_ok=True)
    log = open(LOGS / container, "wb", buffering=0)
    keep = {k: v for k, v in os.environ.items() if k in ("PATH", "LANG", "HOME")}
    child = subprocess.Popen(["systemd-run", "-q", "--scope", f"--unit=docker-{container}.scope", "--slice=system.slice", *inner],
                             stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env={**keep, **env}, start_new_session=True)
    c["State"].update(Status="running", Running=True, Pid=child.pid, StartedAt=now())
    save(c)
    signal.signal(signal.SIGTERM, lambda *_: child.send_signal(signal.SIGTERM))
    signal.signal(signal.SIGINT, lambda *_: child.send_signal(signal.SIGTERM))
    if "-d" in names or "--detach" in names:
        print(container, flush=True)
        if os.fork():
            os._exit(0)
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1), os.dup2(null, 2)
    # The log file stands for the daemon, which goes on taking the container's output when the client is gone.
    with open(LOGS / container, "rb", buffering=0) as shown:
        while True:
            ended = child.poll() is not None
            while piece := shown.read(65536):
                os.write(1, piece)
            if ended:
                break
            time.sleep(0.02)
    status = child.returncode
    c["State"].update(Status="exited", Running=False, Pid=0, FinishedAt=now(), ExitCode=status if status >= 0 else 128 - status)
    save(c)
    if c["HostConfig"]["AutoRemove"]:
        (RUN / f"{container}.json").unlink(missing_ok=True)
    return c["State"]["ExitCode"]


def stop(argv, first=signal.SIGTERM):
    wait, names = 10.0, []
    while argv:
        a = argv.pop(0)
        if a in ("-t", "--time", "--timeout", "-s", "--signal"):
            value = argv.pop(0)
            wait = float(value) if a[1] == "t" or a.startswith("--time") else wait
        else:
            names.append(a)
    for name in names:
        c = find(name)
        pid = c["State"]["Pid"]
        if c["State"]["Running"]:
            os.kill(pid, first)
            end = time.monotonic() + wait
            while os.path.exists(f"/proc/{pid}") and time.monotonic() < end:
                time.sleep(0.02)
            if os.path.exists(f"/proc/{pid}"):
                os.kill(pid, signal.SIGKILL)
        print(name)
    return 0


def field(c, path):
    value = c
    for part in path.strip(".").split(".") if path.strip(".") else []:
        if not isinstance(value, dict) or part not in value:
            print(f'template parsing error: can\'t evaluate field {part}', file=sys.stderr)
            sys.exit(1)
        value = value[part]
    return value


def render(c, template):
    """The Go templates people use: {{.A.B}} and {{json .A.B}}."""
    def one(match):
        words = match.group(1).split()
        value = field(c, words[-1])
        if words[0] == "json":
            return json.dumps(value)
        return str(value).lower() if isinstance(value, bool) else "[" + " ".join(map(str, value)) + "]" if isinstance(value, list) else str(value)
    return re.sub(r"\{\{\s*(.*?)\s*\}\}", one, template)


def inspect(argv):
    template, names = "", []
    while argv:
        a = argv.pop(0)
        if a in ("-f", "--format"):
            template = argv.pop(0)
        elif a.startswith("--format="):
            template = a[9:]
        elif a not in ("--type=container", "container"):
            names.append(a)
    found = [find(n) for n in names]
    if template:
        print("\n".join(render(c, template) for c in found))
    else:
        print(json.dumps(found, indent=4))
    return 0


def ps(argv):
    everything, quiet = "-a" in argv or "--all" in argv, "-q" in argv or "--quiet" in argv
    full = "--no-trunc" in argv
    template = next((a[9:] for a in argv if a.startswith("--format=")), argv[argv.index("--format") + 1] if "--format" in argv else "")
    rows = [c for c in containers() if everything or c["State"]["Running"]]
    for c in rows:
        c.update(ID=c["Id"] if full else c["Id"][:12], Names=c["Name"][1:], Image=c["Config"]["Image"], Command='"' + " ".join(c["Config"]["Cmd"]) + '"',
                 Status=c["State"]["Status"], Ports="")
        c["State_"] = c["State"]
    if quiet:
        print("".join(c["ID"] + "\n" for c in rows), end="")
    elif template:
        for c in rows:
            print(render({**c, "State": c["Status"]}, template))
    else:
        print("CONTAINER ID   IMAGE   COMMAND   STATUS   NAMES")
        for c in rows:
            print(f"{c['ID']}   {c['Image']}   {c['Command'][:24]}   {c['Status']}   {c['Names']}")
    return 0


def logs(argv):
    follow = "-f" in argv or "--follow" in argv
    names = [a for a in argv if not a.startswith("-")]
    c = find(names[-1])
    with open(LOGS / c["Id"], "rb") as f:
        while True:
            shutil.copyfileobj(f, sys.stdout.buffer)
            sys.stdout.flush()
            if not follow or not os.path.exists(f"/proc/{c['State']['Pid']}"):
                return 0
            time.sleep(0.1)


def main(argv):
    verb, rest = (argv[0], argv[1:]) if argv else ("", [])
    if verb == "container" and rest:
        verb, rest = rest[0], rest[1:]
    if verb == "rm":
        for name in [a for a in rest if not a.startswith("-")]:
            match = [c for c in containers() if c["Name"] == "/" + name or c["Id"].startswith(name)]
            if not match:
                print(f"Error response from daemon: No such container: {name}", file=sys.stderr)
                return 1
            if match[0]["State"]["Running"]:
                stop(["-t", "0", name], signal.SIGKILL)
            (RUN / f"{match[0]['Id']}.json").unlink(missing_ok=True)
        return 0
    if verb == "kill":
        return stop(["-t", "0", *rest], signal.SIGKILL)
    if verb in ("version", "--version", "-v", "info"):
        print(f"Docker version {VERSION}, build 9f9e405" if verb != "version" or not rest else VERSION)
        return 0
    verbs = {"run": run, "stop": stop, "inspect": inspect, "ps": ps, "logs": logs}
    if verb not in verbs:
        print(f"docker: '{verb}' is not a docker command.\nSee 'docker --help'", file=sys.stderr)
        return 1
    return verbs[verb](rest)
