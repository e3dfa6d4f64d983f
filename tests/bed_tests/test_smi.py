"""nvidia-smi's stand-in prints what the real one prints."""

FIELDS = (
    "index,uuid,name,pci.bus_id,driver_version,memory.total,memory.used,utilization.gpu,utilization.memory,power.draw,power.draw.instant,"
    "power.draw.average,power.limit,enforced.power.limit,temperature.gpu,clocks.sm,clocks.mem,clocks_event_reasons.active,"
    "clocks_throttle_reasons.active,pstate,ecc.errors.uncorrected.volatile.total,mig.mode.current,gpu_recovery_action,timestamp,count"
)


def test_queries(ct200):
    rows = ct200.sh(f"nvidia-smi --query-gpu={FIELDS} --format=csv,noheader,nounits").splitlines()
    assert len(rows) == 8 and all(len(r.split(", ")) == len(FIELDS.split(",")) for r in rows)
    head = ct200.sh("nvidia-smi --query-gpu=index,clocks.sm,power.draw --format=csv -i 3").splitlines()
    assert head[0] == "index, clocks.current.sm [MHz], power.draw [W]" and head[1].startswith("3, 345 MHz, ")
    assert (
        ct200.sh("nvidia-smi --query-gpu=index --format=csv,noheader --loop-ms=50 | head -20").count("\n")
        == 20
    )
    assert (
        ct200.sh("nvidia-smi --query-gpu=nope --format=csv; echo $?")
        == 'Field "nope" is not a valid field to query.\n\n2\n'
    )
    assert (
        ct200.sh("nvidia-smi -i 9 --query-gpu=index --format=csv; echo $?").split("\n")[0]
        == "No devices were found"
    )
    assert ct200.sh("nvidia-smi -L").count("GPU ") == 8
    assert "No running processes found" in ct200.sh("nvidia-smi")


def test_dmon_with_gpm(b300):
    lines = b300.sh("nvidia-smi dmon -s pucm -o T -c 1 --gpm-metrics 2,3,5,10").splitlines()
    assert lines[0].split()[:3] == ["#", "Time", "gpu"] and lines[0].split()[-4:] == [
        "smutil",
        "smocc",
        "mmaact",
        "dram",
    ]
    assert (
        len(lines) == 2 + 8 and lines[2].split()[-1] == "-"
    )  # the first ticks of a GPM stream have no value yet


def test_faults(ct200):
    ct200.fault("SMI_FAULT=driver")
    assert "couldn't communicate with the NVIDIA driver" in ct200.sh("nvidia-smi", check=False)
    ct200.fault("SMI_FAULT=lost:3")
    assert "GPU3" in ct200.sh("nvidia-smi --query-gpu=index --format=csv", check=False)
    ct200.fault("SMI_FAULT=reset:3")
    assert "[GPU requires reset]" in ct200.sh("nvidia-smi --query-gpu=index,memory.used --format=csv")
    ct200.fault("SMI_FAULT=hang")
    assert ct200.sh("timeout 0.5 nvidia-smi; echo $?").strip() == "124"
