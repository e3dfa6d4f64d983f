"""GPU readings during a cell, taken on the host itself so that a cut connection costs none: nvidia-smi in loop mode for
power, utilisation, clocks and throttle reasons, and the device's own energy counter through NVML where it is there.
"""

from __future__ import annotations

import math
import os
import subprocess
import time
from typing import Any

# Newest names first; an unknown field makes nvidia-smi refuse the whole query.
FIELD_SETS = (
    "index,power.draw.instant,power.draw,utilization.gpu,utilization.memory,memory.used,temperature.gpu,clocks.sm,"
    "clocks.mem,clocks_event_reasons.active,enforced.power.limit",
    "index,power.draw.instant,power.draw,utilization.gpu,utilization.memory,memory.used,temperature.gpu,clocks.sm,"
    "clocks.mem,clocks_throttle_reasons.active,enforced.power.limit",
    "index,power.draw,utilization.gpu,utilization.memory,memory.used,temperature.gpu,clocks.sm,clocks.mem,"
    "clocks_throttle_reasons.active,enforced.power.limit",
    "index,power.draw,utilization.gpu,utilization.memory,memory.used,temperature.gpu,clocks.sm,clocks.mem",
)
NAMES = {
    "index": "gpu",
    "power.draw.instant": "power_instant_w",
    "power.draw": "power_w",
    "utilization.gpu": "util_gpu_pct",
    "utilization.memory": "util_mem_pct",
    "memory.used": "mem_used_mib",
    "temperature.gpu": "temp_c",
    "clocks.sm": "sm_mhz",
    "clocks.mem": "mem_mhz",
    "clocks_event_reasons.active": "event_reasons",
    "clocks_throttle_reasons.active": "event_reasons",
    "enforced.power.limit": "power_limit_w",
}
STATIC = "index,uuid,name,driver_version,memory.total,power.limit"
ANSWER_S = 8.0


def parse_line(line: str, fields: list[str]) -> dict[str, Any] | None:
    """One CSV line (no header, no units) → {name with unit: number}; what is not a number is absent. None = noise."""
    cells = [cell.strip() for cell in line.split(",")]
    if len(cells) != len(fields) or not cells[0].isdigit():
        return None
    out: dict[str, Any] = {}
    for field, cell in zip(fields, cells):  # noqa: B905 (strict= is not in Python 3.8)
        value = number(cell)
        if value is not None:
            out[NAMES[field]] = value
    return out


def number(cell: str) -> float | int | None:
    """A number of nvidia-smi, decimal or 0x…; None for [N/A], [Not Supported] and every error text."""
    try:
        if cell.startswith("0x"):
            return int(cell, 16)
        value = float(cell.split(" ", maxsplit=1)[0])
    except ValueError:
        return None
    if not math.isfinite(value):
        return None
    return int(value) if value.is_integer() and "." not in cell else value


class GpuSampler:
    """Start it before the window, hand `fd` and `readable` to a select loop, stop it after. Never raises: see `error`."""

    def __init__(self, which: Any = "auto", every_ms: int = 200, binary: str = "nvidia-smi") -> None:
        self.which, self.every_ms, self.binary = which, every_ms, binary
        self.error = ""
        self.static: list[dict[str, str]] = []
        self.samples: list[dict[str, Any]] = []
        self.fd = -1
        self._fields: list[str] = []
        self._child: subprocess.Popen[bytes] | None = None
        self._rest = b""
        self._energy = Energy()

    def start(self) -> None:
        """Find out what this driver can be asked, and begin to ask."""
        if self.which == "none":
            self.error = "not asked"
            return
        text = self._once(STATIC)
        if text is None:
            return
        names = ["index", "uuid", "name", "driver_version", "mem_total_mib", "power_limit_w"]
        for line in text.splitlines():
            cells = [cell.strip() for cell in line.split(",")]
            if len(cells) == len(names):
                self.static.append(dict(zip(names, cells)))  # noqa: B905
        for fields in FIELD_SETS:
            answer = self._once(fields)
            if answer is not None and any(
                parse_line(line, fields.split(",")) for line in answer.splitlines()
            ):
                self._fields = fields.split(",")
                break
        else:
            self.error = self.error or "nvidia-smi accepts none of the queries that ddtop knows"
            return
        self.error = ""
        argv = [self.binary, "--query-gpu=" + ",".join(self._fields), "--format=csv,noheader,nounits"]
        argv += self._select() + ["-lms", str(self.every_ms)]
        try:
            self._child = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        except OSError as error:
            self.error = "nvidia-smi: %s" % error
            return
        assert self._child.stdout is not None
        self.fd = self._child.stdout.fileno()
        os.set_blocking(self.fd, False)
        uuids = [one["uuid"] for one in self.static if self._wanted(one["index"])]
        self._energy.open(uuids)

    def _wanted(self, index: str) -> bool:
        return not isinstance(self.which, list) or int(index) in self.which

    def _select(self) -> list[str]:
        return ["-i", ",".join(str(index) for index in self.which)] if isinstance(self.which, list) else []

    def _once(self, fields: str) -> str | None:
        argv = [self.binary, "--query-gpu=" + fields, "--format=csv,noheader,nounits"] + self._select()
        try:
            done = subprocess.run(
                argv,
                check=False,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=ANSWER_S,
            )
        except FileNotFoundError:
            self.error = "no nvidia-smi on this machine"
            return None
        except subprocess.TimeoutExpired:
            self.error = "nvidia-smi did not respond in %.0f s: is a GPU hung?" % ANSWER_S
            return None
        except OSError as error:
            self.error = "nvidia-smi: %s" % error
            return None
        text = done.stdout.decode("utf-8", "replace")
        if done.returncode:
            self.error = text.strip()[:300] or "nvidia-smi ended with %d" % done.returncode
            return None
        return text

    def readable(self) -> None:
        """Take what nvidia-smi wrote; samples carry the monotonic time they were read at."""
        if self.fd < 0:
            return
        try:
            data = os.read(self.fd, 1 << 16)
        except BlockingIOError:
            return
        moment = time.monotonic_ns()
        if not data:
            self.fd = -1
            self.error = self.error or "nvidia-smi ended during the cell"
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            sample = parse_line(line.decode("utf-8", "replace"), self._fields)
            if sample is not None:
                sample["t"] = moment
                self.samples.append(sample)

    def energy_mj(self) -> dict[str, int]:
        """{GPU index: millijoules since the driver was loaded} from the devices' own counters; {} where they have none."""
        return self._energy.read()

    def stop(self) -> None:
        """End nvidia-smi and NVML."""
        if self._child is not None:
            self.readable()
            self._child.terminate()
            try:
                self._child.wait(2)
            except subprocess.TimeoutExpired:
                self._child.kill()
                self._child.wait(5)
            if self._child.stdout is not None:
                self._child.stdout.close()
            self._child = None
            self.fd = -1
        self._energy.close()


class Energy:
    """nvmlDeviceGetTotalEnergyConsumption (Volta and newer) through ctypes; silent where NVML is not."""

    def __init__(self) -> None:
        self._nvml: Any = None
        self._handles: dict[str, Any] = {}

    def open(self, uuids: list[str]) -> None:
        """Take handles of the GPUs; afterwards `read` gives their counters in this order."""
        try:
            import ctypes

            nvml = ctypes.CDLL("libnvidia-ml.so.1")
            if nvml.nvmlInit_v2() != 0:
                return
            self._nvml = nvml
            for number_, uuid in enumerate(uuids):
                handle = ctypes.c_void_p()
                if nvml.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(handle)) == 0:
                    self._handles[str(number_)] = handle
        except (OSError, ImportError, AttributeError):
            self._nvml = None

    def read(self) -> dict[str, int]:
        """{position in the list of uuids: mJ}."""
        out: dict[str, int] = {}
        if self._nvml is None:
            return out
        import ctypes

        for name, handle in self._handles.items():
            value = ctypes.c_ulonglong()
            if self._nvml.nvmlDeviceGetTotalEnergyConsumption(handle, ctypes.byref(value)) == 0:
                out[name] = value.value
        return out

    def close(self) -> None:
        """Release NVML."""
        if self._nvml is not None:
            self._nvml.nvmlShutdown()
            self._nvml = None
