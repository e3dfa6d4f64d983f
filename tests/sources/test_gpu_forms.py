"""Every other form: table, XML, -q text, dmon, process rows, error texts; real captures, old drivers,
mutations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ddtop.sources.gpu.diagnosis import diagnose_gpu
from ddtop.sources.gpu.smi.dmon import dmon_columns, guess_columns, parse_dmon, parse_dmon_line
from ddtop.sources.gpu.smi.processes import parse_apps
from ddtop.sources.gpu.smi.q_xml import parse_xml
from ddtop.sources.gpu.smi.table import parse_table

DATA = Path(__file__).parents[1] / "data" / "nvidia-h200"


def judge(text: str, name: str = "input.txt", **files: str) -> dict[str, Any]:
    return diagnose_gpu({name: text.encode(), **{k: v.encode() for k, v in files.items()}})


@pytest.mark.parametrize(
    ("name", "verdict", "cause"),
    [
        ("query_units.csv", "ok", "idle-no-model-loaded"),
        ("plain.txt", "ok", "idle-no-model-loaded"),
        ("q.xml", "ok", "idle-no-model-loaded"),
        ("q_perf.txt", "ok", "idle"),
        ("apps.csv", "ok", "no-processes"),
        ("apps_busy.csv", "ok", "processes-listed"),
        ("dmon.txt", "ok", "idle"),
        ("dmon_csv.txt", "ok", "busy"),
        ("dmon_gpm.txt", "ok", "busy"),
        ("dmon_gpm_csv.txt", "ok", "busy"),
        ("bad_field.txt", "partial", "unknown-query-field"),
        ("bad_index.txt", "down", "no-devices-found"),
    ],
)
def test_real_outputs_of_one_h200(name: str, verdict: str, cause: str) -> None:
    got = diagnose_gpu({name: (DATA / name).read_bytes()})
    assert (got["verdict"], got["cause"]) == (verdict, cause)


def test_the_forms_agree_on_one_idle_gpu() -> None:
    readings = [
        diagnose_gpu({n: (DATA / n).read_bytes()})["gpu"][0]
        for n in ("query_units.csv", "plain.txt", "q.xml")
    ]
    for key in (
        "index",
        "name",
        "bus_id",
        "mem_used_mib",
        "mem_total_mib",
        "util_gpu_pct",
        "temp_c",
        "pstate",
        "mig",
    ):
        assert len({r[key] for r in readings}) == 1, key


OLD_TABLE = """\
Fri Aug  6 10:00:00 2021
+-----------------------------------------------------------------------------+
| NVIDIA-SMI 470.57.02    Driver Version: 470.57.02    CUDA Version: 11.4     |
|-------------------------------+----------------------+----------------------+
| GPU  Name        Persistence-M| Bus-Id        Disp.A | Volatile Uncorr. ECC |
| Fan  Temp  Perf  Pwr:Usage/Cap|         Memory-Usage | GPU-Util  Compute M. |
|===============================+======================+======================|
|   0  Tesla V100-SXM2...  On   | 00000000:00:1E.0 Off |                    0 |
| N/A   34C    P0    25W / 300W |   1500MiB / 16160MiB |     37%      Default |
|                               |                      |                  N/A |
+-------------------------------+----------------------+----------------------+
|   1  NVIDIA A100-SXM...  Off  | 00000000:00:1F.0 Off |                    3 |
|ERR!  ERR! ERR!    ERR! / ERR! |      0MiB / 40536MiB |     ERR!      Default |
|                               |                      |             Disabled |
+-------------------------------+----------------------+----------------------+
| Processes:                                                                  |
|    0   N/A  N/A      1234      C   python3 -m sglang                1497MiB |
|  No running processes found                                                 |
"""


def test_an_old_table() -> None:
    table = parse_table(OLD_TABLE)
    assert table is not None and table.driver_version == "470.57.02" and not table.new_head
    first, second = (s for _, s in table.gpus)
    assert (first.name, first.power_w, first.power_limit_w, first.util_gpu_pct) == (
        "Tesla V100-SXM2...",
        25,
        300,
        37,
    )
    assert first.fan_pct is None and first.temp_c == 34 and first.mem_total_mib == 16160
    assert second.temp_c is None and second.ecc_uncorrected == 3 and "power_w" in second.error_fields
    assert table.processes == ({"gpu": 0, "pid": 1234, "name": "python3 -m sglang", "used_mib": 1497},)


def test_a_gpu_that_reads_only_err_is_down() -> None:
    got = judge(OLD_TABLE)
    assert (got["verdict"], got["cause"], got["severity"]) == ("down", "gpu-not-readable", "critical")


def test_wsl_and_laptop_tables_without_power() -> None:
    text = OLD_TABLE.replace("25W / 300W", " N/A /  N/A").split(
        "+-------------------------------+----------------------+--"
    )[0]
    got = judge(text + "+\n")
    assert got["gpu"][0].get("power_w") is None and got["gpu"][0]["util_gpu_pct"] == 37
    assert (got["verdict"], got["cause"]) == ("partial", "power-limits-unsupported")


def test_a_jetson_table() -> None:
    text = (
        "| NVIDIA-SMI 540.3.0                Driver Version: N/A          CUDA Version: 12.2     |\n"
        "|   0  Orin (nvgpu)                  N/A  | N/A              N/A |                  N/A |\n"
        "| N/A   N/A  N/A               N/A /  N/A | Not Supported        |     N/A                  N/A |\n"
        "|                                         |                      |                  N/A |\n"
    )
    got = judge(text)
    assert (got["cause"], got["gpu_count"]) == ("unified-memory-no-framebuffer-counters", 1)
    assert (
        "mem_used_mib" not in got["gpu"][0] and "driver_version" not in got and got["cuda_version"] == "12.2"
    )


def test_pmon() -> None:
    text = "# gpu         pid   type     sm    mem    enc    dec    jpg    ofa    command\n# Idx           #    C/G      %      %      %      %      %      %    name\n    0     123456     C     98     40      -      -      -      -    python3 -m x\n    1          -     -      -      -      -      -      -      -    -\n"
    got = judge(text)
    assert got["pids"] == [123456] and got["processes"][0]["name"] == "python3 -m x"


@pytest.mark.parametrize(
    "line",
    [
        "root 935 0.0 0.0 16488 4056 ? D May04 0:00 /usr/bin/nvidia-smi",
        "935 D+ 02:31 nvidia-smi -q",
        "D 935 os_acquire_rwlock nvidia-smi",
        "INFO: task nvidia-smi:935 blocked for more than 120 seconds.",
    ],
)
def test_a_hung_nvidia_smi_in_any_columns(line: str) -> None:
    got = judge(line)
    assert (got["cause"], got["hung_pids"]) == ("nvidia-smi-hung", [935])


@pytest.mark.parametrize(
    ("rc", "cause"), [("124", "nvidia-smi-hung"), ("9", "driver-not-loaded"), ("15", "gpu-lost-from-bus")]
)
def test_an_exit_status_without_output(rc: str, cause: str) -> None:
    got = diagnose_gpu({"input.txt": b"", "rc.txt": rc.encode()})
    assert (got["verdict"], got["cause"], got["rc"]) == ("down", cause, int(rc))


def test_successive_reads_end_with_the_last() -> None:
    head = "index, temperature.gpu, memory.used [MiB]\n"
    got = diagnose_gpu(
        {
            "input.read1.csv": (head + "0, 40, 100 MiB").encode(),
            "input.read2.csv": (head + "0, [GPU is lost], [GPU is lost]").encode(),
        }
    )
    assert got["cause"] == "gpu-lost-from-bus" and len(got["gpu"]) == 1


def test_gpu_list() -> None:
    got = judge("GPU 0: NVIDIA H200 (UUID: GPU-0000)\nGPU 1: NVIDIA H200 (UUID: GPU-0001)\n")
    assert got["gpu_count"] == 2 and got["gpu"][1]["uuid"] == "GPU-0001"


def test_version_prose_is_no_version() -> None:
    table = parse_table(
        'DRIVER version      : Deprecated, see "KMD version" instead\nKMD version         : 615.1\n'
    )
    assert table is not None and table.driver_version == "615.1"
    table = parse_table(
        'NVIDIA-SMI version  : 615.1\nDRIVER version      : Deprecated, see "KMD version" instead\n'
    )
    assert table is not None and table.driver_version is None


def test_cut_xml_gives_the_whole_gpus() -> None:
    text = (DATA / "q.xml").read_text()
    one = text[text.index("<gpu id") : text.index("</gpu>") + 6]
    two = text.replace("</gpu>", "</gpu>\n" + one.replace("00:06.0", "00:07.0")).replace(
        ">1</attached", ">2</attached"
    )
    assert len(parse_xml(two).gpus) == 2
    cut = two[: two.rindex("<fan_speed>")]
    got = judge(cut, "input.xml")
    assert (got["verdict"], got["cause"], got["gpus_reported"]) == ("partial", "xml-cut-off", 1)


def test_old_xml_paths() -> None:
    text = """<nvidia_smi_log><driver_version>418.87</driver_version><gpu id="00000000:01:00.0">
    <product_name>Tesla T4</product_name><clocks_throttle_reasons>
    <clocks_throttle_reason_gpu_idle>Not Active</clocks_throttle_reason_gpu_idle>
    <clocks_throttle_reason_hw_thermal_slowdown>Active</clocks_throttle_reason_hw_thermal_slowdown>
    </clocks_throttle_reasons><power_readings><power_draw>68.9 W</power_draw><enforced_power_limit>70.00
    W</enforced_power_limit>
    </power_readings><temperature><gpu_temp>93 C</gpu_temp></temperature>
    <utilization><gpu_util>100 %</gpu_util></utilization></gpu></nvidia_smi_log>"""
    got = judge(text, "input.xml")
    assert (got["verdict"], got["cause"]) == ("degraded", "thermal-throttling")
    assert got["gpu"][0]["power_limit_w"] == 70 and got["driver_version"] == "418.87"


def test_xml_with_entities_is_refused() -> None:
    with pytest.raises(ValueError, match="entities"):
        judge('<!DOCTYPE x [<!ENTITY a "b">]><nvidia_smi_log><gpu>&a;</gpu></nvidia_smi_log>')


def test_dmon_gpm_values_and_dashes() -> None:
    rows = parse_dmon((DATA / "dmon_gpm.txt").read_text())
    assert rows[0][1].dram_active_pct is None and "dram_active_pct" in rows[0][1].absent_fields
    last = rows[-1][1]
    assert (last.dram_active_pct, last.tensor_active_pct, last.sm_active_pct) == (92, 3, 88)
    assert last.util_gpu_pct == 99 and last.sm_clock_mhz == 1980


def test_dmon_csv_without_head_by_command_and_by_form() -> None:
    line = (DATA / "dmon_gpm_csv.txt").read_text().splitlines()[-1]
    columns = dmon_columns("nvidia-smi dmon -s puc --format csv,noheader,nounit --gpm-metrics 2,3,5,10")
    by_command = parse_dmon_line(columns, line)
    assert by_command is not None and by_command.dram_active_pct == 92
    assert guess_columns([c.strip() for c in line.split(",")]) == columns
    full = (DATA / "dmon_csv.txt").read_text()
    assert parse_dmon(full)[0][1].mem_used_mib == 21109 and parse_dmon(full)[0][1].stamp == "06:28:33"


def test_dmon_of_an_older_driver() -> None:
    text = "# gpu   pwr  temp    sm   mem   enc   dec  mclk  pclk\n# Idx     W     C     %     %     %     %   MHz   MHz\n    0    43    35     0     0     0     0  2505  1075\n"
    ((line, got),) = parse_dmon(text)
    assert line == 3 and (got.power_w, got.temp_c, got.sm_clock_mhz) == (43, 35, 1075)


def test_dmon_for_several_gpus_takes_the_last_of_each() -> None:
    text = "#gpu, pwr, gtemp, mtemp, sm, mem\n0, 100, 40, 41, 0, 0\n1, 500, 60, 61, 99, 50\n0, 600, 50, 51, 98, 40\n1, -, 61, 62, 99, 50\n"
    got = judge(text)
    assert [g["index"] for g in got["gpu"]] == [0, 1] and got["gpu"][0]["power_w"] == 600
    assert "power_w" not in got["gpu"][1]


def test_apps_by_command_and_other_fields() -> None:
    apps = parse_apps(["426, python3, 21100"], ["pid", "name", "used_memory"])
    assert apps is not None and apps.rows[0][1] == {"pid": 426, "used_mib": 21100}
    apps = parse_apps(["pid, process_name, used_gpu_memory [MiB]", "7, a, b, c, 5 MiB"])
    assert apps is not None and apps.rows[0][1] == {"pid": 7, "name": "a, b, c", "used_mib": 5}
    assert parse_apps(["426, python3, 21100"]) is None


@pytest.mark.parametrize(
    ("text", "cause", "severity"),
    [
        ("Failed to initialize NVML: Unknown Error", "nvml-unknown-error", "error"),
        ("Failed to initialize NVML: Driver Not Loaded", "driver-not-loaded", "critical"),
        ("Failed to initialize NVML: Insufficient Permissions", "nvml-no-permission", "error"),
        (
            "Failed to initialize NVML: GPU access blocked by the operating system\nFailed to properly shut down NVML",
            "gpu-access-blocked",
            "error",
        ),
        ("bash: line 1: nvidia-smi: command not found", "nvidia-smi-missing", "error"),
        ("sh: 1: nvidia-smi: not found", "nvidia-smi-missing", "error"),
        ("fish: Unknown command: nvidia-smi", "nvidia-smi-missing", "error"),
        ("No devices were found", "no-devices-found", "error"),
        (
            "Unable to determine the device handle for GPU1: 0000:65:00.0: GPU is lost.  Reboot the system to recover this GPU",
            "gpu-lost-from-bus",
            "critical",
        ),
        (
            "Unable to determine the device handle for GPU 0000:09:00.0: Not Found",
            "gpu-lost-from-bus",
            "critical",
        ),
        (
            "NVIDIA-SMI has failed because it could not communicate with the NVIDIA driver.",
            "driver-not-loaded",
            "critical",
        ),
        ("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.", "nvml-library-missing", "error"),
    ],
)
def test_error_texts(text: str, cause: str, severity: str) -> None:
    got = judge(text)
    assert (got["cause"], got["severity"], got["verdict"]) == (cause, severity, "down")
    assert got["gpus_reported"] == 0 and got["advice"] and got["evidence"][0]["line"] == 1


def test_an_error_line_after_good_rows_is_not_lost() -> None:
    got = judge(
        "index, temperature.gpu\n0, 40\nUnable to determine the device handle for GPU 0000:09:00.0: Unknown "
        "Error\n"
    )
    assert got["verdict"] == "down" and got["gpu"][0]["temp_c"] == 40 and got["bus_id"] == "0000:09:00.0"
