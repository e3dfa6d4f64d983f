"""Local NVML: a clear error where there is no driver (this machine), and readings from an injected pynvml."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from ddtop.errors import HostError
from ddtop.sources.gpu.nvml import NvmlSource


class FakeNvmlError(Exception):
    """The base that a fake module calls NVMLError."""


def error(name: str) -> Exception:
    return type(name, (FakeNvmlError,), {})(name)


def fake(**changes: Any) -> Any:
    """A stand-in for pynvml with one GPU (SIMULATED readings)."""

    def fails(name: str) -> Any:
        def call(*_: Any) -> Any:
            raise error(name)

        return call

    metrics = [SimpleNamespace(metricId=0, value=0.0, nvmlReturn=0) for _ in range(8)]

    def gpm(ask: Any) -> None:
        for place, value in enumerate((88.0, 12.0, 3.5, float("nan"))):
            ask.metrics[place].value = value

    module = SimpleNamespace(
        NVMLError=FakeNvmlError,
        NVML_TEMPERATURE_GPU=0,
        NVML_CLOCK_SM=1,
        NVML_CLOCK_MEM=2,
        NVML_GPM_METRICS_GET_VERSION=1,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: 1,
        nvmlDeviceGetHandleByIndex=lambda i: i,
        nvmlSystemGetDriverVersion=lambda: b"580.159.04",
        nvmlMemory_v2=2,
        nvmlDeviceGetMemoryInfo=lambda h, version=1: SimpleNamespace(
            used=32 * 1048576, total=100 * 1048576, free=68 * 1048576
        ),
        nvmlDeviceGetUtilizationRates=lambda h: SimpleNamespace(gpu=99, memory=7),
        nvmlDeviceGetUUID=lambda h: b"GPU-0",
        nvmlDeviceGetName=lambda h: "NVIDIA H200",
        nvmlDeviceGetPowerUsage=lambda h: 627400,
        nvmlDeviceGetEnforcedPowerLimit=lambda h: 700000,
        nvmlDeviceGetTotalEnergyConsumption=lambda h: 3559351,
        nvmlDeviceGetTemperature=lambda h, k: 52,
        nvmlDeviceGetClockInfo=lambda h, k: 1980,
        nvmlDeviceGetMaxClockInfo=lambda h, k: 1980,
        nvmlDeviceGetCurrentClocksEventReasons=lambda h: 0x4,
        nvmlDeviceGetMigMode=fails("NVMLError_NotSupported"),
        nvmlDeviceGetPerformanceState=lambda h: 0,
        nvmlGpmQueryDeviceSupport=lambda h: SimpleNamespace(isSupportedDevice=1),
        nvmlGpmSampleAlloc=object,
        nvmlGpmSampleGet=lambda h, s: None,
        nvmlGpmSampleFree=lambda s: None,
        c_nvmlGpmMetricsGet_t=lambda: SimpleNamespace(metrics=metrics),
        nvmlGpmMetricsGet=gpm,
    )
    for name, value in changes.items():
        setattr(
            module, name, fails(value) if isinstance(value, str) and value.startswith("NVMLError_") else value
        )
    return module


def test_no_driver_here_is_a_clear_error() -> None:
    if Path("/proc/driver/nvidia").exists():
        pytest.skip("this machine has an NVIDIA driver")
    with pytest.raises(HostError) as caught:
        NvmlSource()
    assert "driver" in caught.value.what and caught.value.do and caught.value.means


def test_a_machine_with_a_driver_gives_readings() -> None:
    if not Path("/proc/driver/nvidia").exists():
        pytest.skip("no NVIDIA driver on this machine")
    with NvmlSource() as source:
        first = source.sample()
        assert first and all(s.uuid and s.mem_total_mib for s in first)


def test_the_names_used_exist_in_the_real_module() -> None:
    """A fake proves nothing about names: every function and constant of the fake is in nvidia-ml-py."""
    missing = [name for name in vars(fake()) if not hasattr(pynvml, name)]
    assert missing == []


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("NVMLError_LibraryNotFound", "libnvidia-ml"),
        ("NVMLError_DriverNotLoaded", "not loaded"),
        ("NVMLError_LibRmVersionMismatch", "different versions"),
        ("NVMLError_NoPermission", "may not"),
        ("NVMLError_Unknown", "NVML failed"),
    ],
)
def test_init_errors_are_for_people(name: str, word: str) -> None:
    with pytest.raises(HostError) as caught:
        NvmlSource(fake(nvmlInit=name), host="box")
    assert word in str(caught.value) and caught.value.host == "box" and caught.value.do


def test_readings_have_our_units() -> None:
    with NvmlSource(fake()) as source:
        (first,) = source.sample()
        (second,) = source.sample()
    assert first.power_w == 627.4 and first.power_limit_w == 700 and first.energy_j == 3559.351
    assert first.mem_used_mib == 32 and first.mem_total_mib == 100
    assert first.name == "NVIDIA H200" and first.uuid == "GPU-0" and first.driver_version == "580.159.04"
    assert first.throttle_reasons == ("sw_power_cap",) and first.pstate == "P0"
    assert first.mig is None and "mig" in first.absent_fields
    assert first.sm_active_pct is None, "GPM needs two readings"
    assert second.sm_active_pct == 88.0 and second.tensor_active_pct == 3.5
    assert second.dram_active_pct is None, "NaN is not a reading"


def test_failed_readings_are_none_and_named() -> None:
    module = fake(
        nvmlDeviceGetPowerUsage="NVMLError_Unknown",
        nvmlDeviceGetUtilizationRates="NVMLError_NotSupported",
        nvmlDeviceGetMemoryInfo="NVMLError_NotSupported",
        nvmlGpmQueryDeviceSupport="NVMLError_NotSupported",
    )
    (got,) = NvmlSource(module).sample()
    assert got.power_w is None and "power_w" in got.error_fields
    assert got.util_gpu_pct is None and got.util_mem_pct is None and "util_gpu_pct" in got.absent_fields
    assert got.mem_used_mib is None and got.sm_active_pct is None and got.fault is None


@pytest.mark.parametrize(
    ("name", "fault"), [("NVMLError_GpuIsLost", "lost"), ("NVMLError_ResetRequired", "requires-reset")]
)
def test_a_broken_gpu_is_a_fault(name: str, fault: str) -> None:
    (got,) = NvmlSource(fake(nvmlDeviceGetTemperature=name)).sample()
    assert got.fault == fault and got.temp_c is None


def test_no_gpu_at_all() -> None:
    with pytest.raises(HostError, match="no NVIDIA GPU"):
        NvmlSource(fake(nvmlDeviceGetCount=lambda: 0))


def test_an_older_pynvml_without_newer_functions() -> None:
    module = fake()
    del module.nvmlDeviceGetCurrentClocksEventReasons
    module.nvmlDeviceGetCurrentClocksThrottleReasons = lambda h: 0x48
    del module.nvmlGpmQueryDeviceSupport
    (got,) = NvmlSource(module).sample()
    assert got.throttle_reasons == ("hw_slowdown", "hw_thermal_slowdown")
