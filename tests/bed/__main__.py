"""`python -m tests.bed COMMAND`: the bed by hand."""

import argparse
import json
import subprocess
import sys

from . import control, daemon
from .client import Bed
from .config import ALL, SSH_CONFIG
from .control import BedError
from .disk import write_ssh_config
from .oracle import Oracle
from .shell import remove


def parser() -> argparse.ArgumentParser:
    """The command line."""
    ap = argparse.ArgumentParser(
        prog="python -m tests.bed", description="two real Debian hosts with made-up GPUs"
    )
    sub = ap.add_subparsers(dest="cmd", required=True, metavar="COMMAND")

    def command(name: str, text: str, host: bool = True) -> argparse.ArgumentParser:
        p = sub.add_parser(name, help=text)
        if host:
            p.add_argument("host", choices=ALL)
        return p

    p = command("up", "build what is missing, start both hosts with empty disks, wait for ssh", host=False)
    p.add_argument("--real", action="store_true", help="with llama-bench.service: llama.cpp and a 135M model")
    command("slurm", "boot the Slurm cluster beside the hosts: login1, n1, n2", host=False)
    command("down", "shut both hosts down and end the bed", host=False)
    command("status", "the bed's state as JSON", host=False)
    command("ssh-config", "print the path of the OpenSSH configuration", host=False)
    command("trust", "put the present host keys into known_hosts, as after a reset", host=False)
    command("purge", "down, then delete this bed's disks and, for the first bed, the cache", host=False)
    p = command("daemon", argparse.SUPPRESS, host=False)
    p.add_argument("--real", action="store_true")
    p.add_argument("--made-of", default="")
    for name, text in (
        ("reboot", "orderly reboot"),
        ("crash", "lose power and come back"),
        ("reset", "come back with an empty disk and other host keys"),
    ):
        p = command(name, text)
        p.add_argument("--dark", type=float, metavar="S", help="seconds before the kernel starts again")
        p.add_argument("--wait", action="store_true", help="until ssh answers again")
    command("off", "orderly power-off")
    command("kill", "lose power and stay off")
    command("on", "power on").add_argument("--wait", action="store_true")
    command("cut", "drop every packet to and from the host")
    command("hide", "drop every packet between the client and the host: other hosts still reach it")
    command("heal", "clear cut, hide, delay, loss and rate")
    p = command("delay", "add MS to the round trip, lose LOSS %% of packets, limit to KBIT")
    p.add_argument("ms", type=float)
    p.add_argument("loss", type=float, nargs="?", default=0)
    p.add_argument("kbit", type=float, nargs="?", default=0)
    command("fault", "set faults, e.g. LOAD_FAULT=cuda; none: clear them").add_argument(
        "faults", nargs="*", metavar="KEY=VALUE"
    )
    command("sh", "run a command in the host out of band").add_argument("argv", nargs=argparse.REMAINDER)
    command("restore", "put the host back as it was found, without a reboot")
    command("ledger", "what the host's faults and servers wrote down, one JSON object a line")
    command("snapshot", "units, processes and model folders as JSON, to be compared")
    return ap


def act(a: argparse.Namespace) -> int:
    """Do one command; returns the exit status."""
    bed = Bed()
    if a.cmd == "daemon":
        daemon.main(a.real, a.made_of)
    elif a.cmd == "up":
        control.up(a.real)
    elif a.cmd == "slurm":
        control.cluster_up()
    elif a.cmd in ("down", "purge"):
        control.down()
        if a.cmd == "purge":
            remove(*control.purgeable())
    elif a.cmd == "ssh-config":
        print(SSH_CONFIG)
    elif a.cmd == "trust":
        write_ssh_config()
    elif a.cmd == "status":
        print(json.dumps(control.state() or {"hosts": {}}, indent=1))
    elif a.cmd in ("reboot", "crash", "reset", "off", "kill", "on"):
        control.power(a.host, a.cmd, getattr(a, "dark", None), getattr(a, "wait", False))
    elif a.cmd == "cut":
        bed.cut(a.host)
    elif a.cmd == "hide":
        bed.hide(a.host)
    elif a.cmd == "heal":
        bed.heal(a.host)
    elif a.cmd == "delay":
        bed.delay(a.host, a.ms, a.loss, a.kbit)
    elif a.cmd == "fault":
        bed.fault(a.host, *a.faults)
    elif a.cmd == "restore":
        bed.restore(a.host)
    elif a.cmd == "ledger":
        print(*(json.dumps(event) for event in Oracle(bed).ledger(a.host)), sep="\n")
    elif a.cmd == "snapshot":
        print(json.dumps(Oracle(bed).snapshot(a.host), indent=1))
    elif a.cmd == "sh":
        return subprocess.run(control.guest_argv(a.host, a.argv)).returncode
    return 0


def main() -> None:
    """Entry."""
    try:
        sys.exit(act(parser().parse_args()))
    except BedError as error:
        sys.exit(f"bed: {error}")
    except OSError as error:
        sys.exit(f"bed: it is not up ({error}); start it with: python -m tests.bed up")


main()
