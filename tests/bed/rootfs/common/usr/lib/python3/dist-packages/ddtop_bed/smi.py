"""SIMULATED nvidia-smi: the outputs of the real one (580 driver) over the claims of the fake servers.

Faults: SMI_FAULT=hang | driver | mismatch | lost:3 (fell off the bus) | reset:3 (requires reset); SMI_UTIL_NA=1 (as with MIG);
SMI_GHOST_MIB=N (memory no process holds, as after a crash);
SMI_SLOW_S=2 (each call takes so long); SMI_NO_FIELD=name (a driver that does not know a field).
"""
import json, math, os, sys, time

from . import gpu
from .faults import Faults

FAULTS = Faults(argv=["nvidia-smi"])
CARD = gpu.card()
COUNT = CARD["count"]
LIMITS = gpu.CLAIMS / "limits"
UNITS = {"MiB": ("memory.total", "memory.used", "memory.free", "memory.reserved", "used_memory", "used_gpu_memory"),
         "%": ("utilization.gpu", "utilization.memory"),
         "W": ("power.draw", "power.draw.instant", "power.draw.average", "power.limit", "enforced.power.limit", "power.default_limit", "power.max_limit", "power.min_limit"),
         "MHz": ("clocks.current.sm", "clocks.current.memory", "clocks.max.sm", "clocks.max.memory", "clocks.current.graphics")}
UNIT = {field: unit for unit, fields in UNITS.items() for field in fields}
ALIAS = {"clocks.sm": "clocks.current.sm", "clocks.mem": "clocks.current.memory", "clocks.gr": "clocks.current.graphics", "gpu_name": "name", "gpu_uuid": "uuid",
         "gpu_bus_id": "pci.bus_id", "clocks.max.mem": "clocks.max.memory"}
REASONS = {"gpu_idle": 1, "sw_power_cap": 4, "hw_slowdown": 8, "sync_boost": 16, "sw_thermal_slowdown": 32, "hw_thermal_slowdown": 64, "hw_power_brake_slowdown": 128}
# phase: share of the way from idle power to decode power, util.gpu, util.memory, GPM (SM activity, occupancy, tensor, DRAM)
PHASES = {"off": (0, 0, 0, (0, 0, 0, 0)), "idle": (0.10, 0, 0, (0, 0, 0, 0)), "load": (0.20, 7, 2, (1, 0, 0, 2)), "capture": (0.5, 100, 20, (30, 10, 5, 15)),
          "decode": (1.0, 100, 62, (87, 12, 5, 89)), "compute": (1.6, 100, 30, (93, 40, 88, 30)), "spin": (0.18, 100, 0, (99, 12, 0, 0))}


def limit_w(i):
    try:
        return float(json.loads(LIMITS.read_text()).get(str(i), CARD["watts"]))
    except (OSError, ValueError):
        return float(CARD["watts"])


def bus(i):
    return f"00000000:{16 + i:02X}:00.0"


def uuid(i):
    return f"GPU-{CARD['ip'].replace('.', '').zfill(8)[-8:]}-0000-4000-8000-{i:012d}"


def reading(i, claims=None):
    """Everything about one GPU, by the real names, without units."""
    mine = [c for c in (gpu.claims() if claims is None else claims) if i in c["gpus"]]
    phase = max((c["phase"] for c in mine), key=lambda p: PHASES[p][0], default="off")
    share, util, mem_util, gpm = PHASES[phase]
    now = time.time()
    draw = min(limit_w(i), CARD["idle_w"] + (CARD["decode_w"] - CARD["idle_w"]) * share + 3 * math.sin(now + i))
    used = min(CARD["mib"], sum(c["mib"] for c in mine) + FAULTS.get("SMI_GHOST_MIB", 0))
    reasons = int(FAULTS.get("THROTTLE", "0x0"), 16) or (1 if phase == "off" else 4 if draw >= limit_w(i) else 0)
    na = bool(FAULTS.get("SMI_UTIL_NA"))
    row = {"index": i, "name": CARD["gpu"], "uuid": uuid(i), "pci.bus_id": bus(i), "count": COUNT, "driver_version": CARD["driver"], "serial": f"16500{i:08d}",
           "pstate": "P0" if mine else "P8", "memory.total": CARD["mib"], "memory.used": used, "memory.free": max(0, CARD["mib"] - used - 616), "memory.reserved": 616,
           "temperature.gpu": 34 + int(30 * share), "temperature.memory": 36 + int(32 * share), "utilization.gpu": "[N/A]" if na else util,
           "utilization.memory": "[N/A]" if na else mem_util, "power.draw": f"{draw:.2f}", "power.draw.instant": f"{draw + 0.4 * math.sin(7 * now):.2f}",
           "power.draw.average": f"{draw:.2f}", "power.limit": f"{limit_w(i):.2f}", "enforced.power.limit": f"{limit_w(i):.2f}", "power.default_limit": f"{CARD['watts']:.2f}",
           "power.max_limit": f"{CARD['watts']:.2f}", "power.min_limit": "200.00", "clocks.current.sm": 1920 if util == 100 else 345 if not mine else 1200,
           "clocks.current.graphics": 1920 if util == 100 else 345, "clocks.current.memory": 3996, "clocks.max.sm": 2032, "clocks.max.memory": 3996,
           "clocks_event_reasons.active": f"0x{reasons:016X}", "clocks_throttle_reasons.active": f"0x{reasons:016X}", "clocks_event_reasons.supported": "0x00000000000001FF",
           "ecc.errors.uncorrected.volatile.total": 0, "ecc.errors.corrected.volatile.total": 0, "remapped_rows.pending": 0, "remapped_rows.failure": 0,
           "retired_pages.pending": "No", "mig.mode.current": "Disabled", "gpu_recovery_action": "None", "compute_mode": "Default", "persistence_mode": "Enabled",
           "compute_cap": "10.3" if "B300" in CARD["gpu"] else "12.0", "vbios_version": "98.02.81.00.07", "pcie.link.gen.current": 5, "pcie.link.gen.gpucurrent": 5,
           "pcie.link.gen.max": 5, "pcie.link.width.current": 16, "pcie.link.width.max": 16, "fan.speed": "[N/A]", "display_active": "Disabled",
           "fabric.state": "Completed" if CARD["gpm"] else "[N/A]", "fabric.status": "Success" if CARD["gpm"] else "[N/A]",
           "timestamp": time.strftime("%Y/%m/%d %H:%M:%S.", time.localtime(now)) + f"{now % 1 * 1000:03.0f}"[:3]}
    for name, bit in REASONS.items():
        row[f"clocks_event_reasons.{name}"] = row[f"clocks_throttle_reasons.{name}"] = "Active" if reasons & bit else "Not Active"
    row["gpm"] = gpm if CARD["gpm"] else None
    if FAULTS.get("SMI_FAULT") == f"reset:{i}":
        row.update({k: "[GPU requires reset]" for k in ("memory.used", "utilization.gpu", "utilization.memory", "power.draw", "power.draw.instant", "temperature.gpu")}, gpu_recovery_action="Reset")
    return row


def fault_check():
    """What is wrong with all of it: hang, no driver, version mismatch."""
    fault = FAULTS.get("SMI_FAULT")
    if fault:
        from . import ledger
        ledger.stamp("smi-fault", kind=fault)
    if FAULTS.get("SMI_SLOW_S"):
        time.sleep(float(FAULTS.get("SMI_SLOW_S")))
    if fault == "hang":
        time.sleep(1e6)
    if fault == "driver":
        print("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA driver is installed and running.\n")
        sys.exit(9)
    if fault == "mismatch":
        print("Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.159")
        sys.exit(18)


def selected(ids):
    """GPU indices of -i; rc 6 as the real one where there is no such GPU."""
    out = []
    for wanted in ids or range(COUNT):
        found = [i for i in range(COUNT) if str(wanted) in (str(i), uuid(i), bus(i))]
        if not found:
            print("No devices were found")
            sys.exit(6)
        out += found
    return out


def lost_check(i):
    if FAULTS.get("SMI_FAULT") == f"lost:{i}":
        print(f"Unable to determine the device handle for GPU{i}: {bus(i)}: Unknown Error")
        sys.exit(15)


def gpu_rows(ids):
    claims = gpu.claims()
    for i in selected(ids):
        lost_check(i)
        yield reading(i, claims)


def app_rows(ids):
    wanted = selected(ids)
    now = reading(0, [])["timestamp"]
    for claim in gpu.claims():
        for rank, i in enumerate(claim["gpus"]):
            if i in wanted:
                name = claim["name"] + (str(rank) if claim["name"].endswith("_TP") else "")
                yield {"pid": claim["pid"], "process_name": name, "used_memory": claim["mib"], "uuid": uuid(i), "name": CARD["gpu"], "pci.bus_id": bus(i), "timestamp": now,
                       "gpu_name": CARD["gpu"], "gpu_uuid": uuid(i), "gpu_bus_id": bus(i), "used_gpu_memory": claim["mib"]}


APP_FIELDS = ("pid", "process_name", "name", "used_memory", "used_gpu_memory", "gpu_uuid", "gpu_name", "gpu_bus_id", "timestamp")


def query(kind, fields, form, ids):
    """--query-gpu and --query-compute-apps; yields the lines of each tick, the header first."""
    names = []
    for field in fields:
        real = field if kind == "apps" else ALIAS.get(field, field)
        known = APP_FIELDS if kind == "apps" else reading(0, [])
        if real not in known or real == "gpm" or field == FAULTS.get("SMI_NO_FIELD"):
            print(f'Field "{field}" is not a valid field to query.\n')
            sys.exit(2)
        if kind == "apps":
            real = {"name": "process_name", "used_gpu_memory": "used_gpu_memory"}.get(real, real)
        names.append(real)
    unit = (lambda f, v: "") if "nounits" in form else (lambda f, v: f" {UNIT[f]}" if f in UNIT and not str(v).startswith("[") else "")
    selected(ids)  # a wrong index is an error before anything is printed
    if "noheader" not in form:
        print(", ".join(n + (f" [{UNIT[n]}]" if n in UNIT else "") for n in names), flush=True)
    while True:
        fault_check_running()
        lines = [", ".join(f"{row[n]}{unit(n, row[n])}" for n in names) for row in (gpu_rows(ids) if kind == "gpu" else app_rows(ids))]
        if lines:
            print("\n".join(lines), flush=True)
        yield


def fault_check_running():
    """A driver that hangs stops the long-lived streams too."""
    if FAULTS.get("SMI_FAULT") == "hang":
        fault_check()


def table(ids):
    """The bare call."""
    v = CARD["driver"]
    print(time.strftime("%a %b %e %H:%M:%S %Y       "))
    print("+" + "-" * 89 + f"+\n| NVIDIA-SMI {v:<22} Driver Version: {v:<14} CUDA Version: 13.0     |\n+" + "-" * 41 + "+" + "-" * 24 + "+" + "-" * 22 + "+")
    print("| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |\n"
          "| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |\n"
          "|                                         |                        |               MIG M. |\n|" + "=" * 41 + "+" + "=" * 24 + "+" + "=" * 22 + "|")
    for r in gpu_rows(ids):
        name = r["name"] if len(r["name"]) <= 24 else r["name"][:21] + "..."
        print(f"|{r['index']:>4}  {name:<24}    On  |   {r['pci.bus_id']} Off |{'0':>21} |\n"
              f"| N/A  {r['temperature.gpu']:>3}C    {r['pstate']}  {float(r['power.draw']):>13.0f}W / {float(r['power.limit']):>4.0f}W |"
              f"{r['memory.used']:>8}MiB /{r['memory.total']:>7}MiB |{r['utilization.gpu']:>7}%      Default |\n"
              f"|                                         |                        |             Disabled |\n+" + "-" * 41 + "+" + "-" * 24 + "+" + "-" * 22 + "+")
    print("\n+" + "-" * 89 + "+\n| Processes:" + " " * 78 + "|\n|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |\n"
          "|        ID   ID                                                               Usage      |\n|" + "=" * 89 + "|")
    rows = list(app_rows(ids))
    for r in rows:
        index = next(i for i in range(COUNT) if uuid(i) == r["gpu_uuid"])
        print(f"|{index:>5}   N/A  N/A {r['pid']:>16}      C   {r['process_name'][:34]:<34} {r['used_memory']:>8}MiB |")
    if not rows:
        print("|  No running processes found" + " " * 61 + "|")
    print("+" + "-" * 89 + "+")
    yield


GPM = {1: ("gract", 0), 2: ("smutil", 0), 3: ("smocc", 1), 5: ("mmaact", 2), 7: ("hmma", 2), 10: ("dram", 3)}


def dmon(argv):
    """nvidia-smi dmon [-s pucvmet] [-d S] [-c N] [-o DT] [-i ids] [--gpm-metrics 2,3,5,10] [--format csv[,noheader][,nounits]]"""
    args, it = {"-s": "puc", "-d": "1", "-c": "0", "-o": "", "-i": "", "--gpm-metrics": "", "--format": ""}, iter(argv)
    for a in it:
        key, eq, value = a.partition("=")
        key = {"--id": "-i", "--delay": "-d", "--count": "-c", "--select": "-s", "--options": "-o"}.get(key, key)
        if key not in args:
            print(f"Option '{a}' is not recognized. Please run 'nvidia-smi dmon -h'.")
            return 1
        args[key] = value if eq else next(it, "")
    columns, s = [], args["-s"]
    group = {"p": [("pwr", "W", lambda r: round(num(r, "power.draw"))), ("gtemp", "C", lambda r: r["temperature.gpu"]), ("mtemp", "C", lambda r: r["temperature.memory"])],
             "u": [("sm", "%", lambda r: r["utilization.gpu"]), ("mem", "%", lambda r: r["utilization.memory"]), *((n, "%", lambda r: 0) for n in ("enc", "dec", "jpg", "ofa"))],
             "c": [("mclk", "MHz", lambda r: r["clocks.current.memory"]), ("pclk", "MHz", lambda r: r["clocks.current.sm"])],
             "v": [("pviol", "%", lambda r: 0), ("tviol", "bool", lambda r: 0)],
             "m": [("fb", "MB", lambda r: r["memory.used"]), ("bar1", "MB", lambda r: 1), ("ccpm", "MB", lambda r: 0)],
             "e": [("sbecc", "errs", lambda r: 0), ("dbecc", "errs", lambda r: 0), ("pci", "errs", lambda r: 0)],
             "t": [("rxpci", "MB/s", lambda r: 12), ("txpci", "MB/s", lambda r: 5)]}
    for letter in "pucvmet":
        if letter in s:
            columns += group[letter]
    gpm = [int(m) for m in args["--gpm-metrics"].split(",") if m.isdigit()]
    csv, tick, out = "csv" in args["--format"], 0, args["-o"]
    stamps = ([("Date", "YYYYMMDD", "%Y%m%d")] if "D" in out else []) + ([("Time", "HH:MM:SS", "%H:%M:%S")] if "T" in out else [])
    names = [n for n, _, _ in stamps] + ["gpu"] + [c[0] for c in columns] + [GPM.get(m, (f"gpm{m}", 0))[0] for m in gpm]
    units = [u for _, u, _ in stamps] + ["Idx"] + [c[1] for c in columns] + ["GPM:%"] * len(gpm)

    def line(cells, mark="  "):
        return ", ".join(str(c) for c in cells) if csv else mark + " ".join(f"{c!s:>6}" for c in cells)

    def header():
        print(("#" if csv else "# ") + line(names, "") + "\n" + ("#" if csv else "# ") + line(units, ""), flush=True)

    if not (csv and "noheader" in args["--format"]):
        header()
    while True:
        for row in gpu_rows([i for i in args["-i"].split(",") if i]):
            cells = [time.strftime(form) for _, _, form in stamps] + [row["index"]] + [c[2](row) for c in columns]
            cells += [row["gpm"][GPM[m][1]] if tick >= 2 and row["gpm"] and m in GPM else "-" for m in gpm]
            print((" " if csv else "") + line(cells), flush=True)
        tick += 1
        if args["-c"] != "0" and tick >= int(args["-c"]):
            return 0
        time.sleep(float(args["-d"]))
        fault_check_running()


def num(row, key):
    try:
        return float(row[key])
    except ValueError:
        return 0.0


def set_limit(watts, ids):
    """nvidia-smi -pl: kept until the next boot."""
    if os.geteuid() != 0:
        print(f"Unable to set power limit for GPU {bus(0)}: Insufficient Permissions\nTerminating early due to previous errors.")
        return 4
    if not 200 <= watts <= CARD["watts"]:
        print(f"Provided power limit {watts:.2f} W is not a valid power limit which should be between 200.00 W and {CARD['watts']:.2f} W for GPU {bus(0)}\nTerminating early due to previous errors.")
        return 2
    limits = json.loads(LIMITS.read_text()) if LIMITS.exists() else {}
    for i in selected(ids):
        print(f"Power limit for GPU {bus(i)} was set to {watts:.2f} W from {limit_w(i):.2f} W.")
        limits[str(i)] = watts
    gpu.CLAIMS.mkdir(exist_ok=True)
    LIMITS.write_text(json.dumps(limits))
    print("\nAll done.")
    return 0


def main(argv):
    try:
        return run(argv)
    except (BrokenPipeError, KeyboardInterrupt):
        os._exit(141)


def run(argv):
    if argv[:1] == ["dmon"]:
        fault_check()
        return dmon(argv[1:])
    parts = [p for a in argv for p in (a.split("=", 1) if a.startswith("--") else [a])]
    kind, fields, form, period, ids, listing, watts = "", [], [], None, [], False, None
    while parts:
        flag = parts.pop(0)
        if flag in ("--query-gpu", "--query-compute-apps") and parts:
            kind, fields = flag[8:].replace("compute-", ""), [f.strip() for f in parts.pop(0).split(",")]
        elif flag == "--format" and parts:
            form = [f.strip() for f in parts.pop(0).split(",")]
        elif flag in ("-lms", "--loop-ms") and parts:
            period = int(parts.pop(0)) / 1000
        elif flag in ("-l", "--loop"):
            period = float(parts.pop(0)) if parts and parts[0].isdigit() else 5.0
        elif flag in ("-i", "--id") and parts:
            ids = parts.pop(0).split(",")
        elif flag in ("-pl", "--power-limit") and parts:
            watts = float(parts.pop(0))
        elif flag in ("-L", "--list-gpus"):
            listing = True
        elif flag == "--version":
            print(f"NVIDIA-SMI version  : {CARD['driver']}\nNVML version        : {CARD['driver'].rsplit('.', 1)[0]}\nDRIVER version      : {CARD['driver']}\nCUDA Version        : 13.0")
            return 0
        else:
            print("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n")
            return 1
    fault_check()
    if watts is not None:
        return set_limit(watts, ids)
    if listing:
        for i in selected(ids):
            lost_check(i)
            print(f"GPU {i}: {CARD['gpu']} (UUID: {uuid(i)})")
        return 0
    if kind and "csv" not in form:
        print('"--format=" switch is missing. Please run \'nvidia-smi -h\' for help.\n')
        return 1
    ticks = query(kind, fields, form, ids) if kind else table(ids)
    for _ in ticks:
        if period is None:
            return 0
        time.sleep(period)
    return 0
