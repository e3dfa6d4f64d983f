"""Each way a restart fails does what it says, and the ledger or systemd says when."""

import pytest

from tests.bed import trouble
from tests.bed.client import BedError
from tests.bed_tests.helpers import get, logged, until

FAST = ("SPEED=40", "LOAD_S=3")


def show(host, unit):
    text = host.sh(
        f"systemctl show {unit} -p ActiveState,SubState,Result,ExecMainStatus,NRestarts,InvocationID,ConditionResult"
    )
    return dict(line.split("=", 1) for line in text.splitlines())


@pytest.mark.bed  # its fixture is asked for by name, where the collector does not see it
@pytest.mark.parametrize("host_name", ["ct200", "b300"])
def test_load_faults_act_and_stamp(host_name, request):
    host = request.getfixturevalue(host_name)
    host.stage()
    unit = host.spec.unit
    for fault, words, result in (
        ("cuda", "CUDA out of memory", "signal"),
        ("exit", "no kernel image is available", "exit-code"),
        ("cublas", "CUBLAS_STATUS_EXECUTION_FAILED", "signal"),
    ):
        host.fault(*FAST, LOAD_FAULT=fault)
        began = host.bed.now()
        host.sh(f"systemctl start {unit}")
        stamp = host.wait("fault", kind=fault, since_ns=began)
        failure = until(lambda since=began: host.failures(unit, since))[0]
        assert failure.result == result and abs(failure.t_ns - stamp["t_ns"]) < 10e9
        logged(host, unit, words, began)


def test_hangs_stay_active_and_port_closed(ct200):
    ct200.stage()
    for fault in ("hang", "spin", "nccl"):
        ct200.fault(*FAST, LOAD_FAULT=fault)
        began = ct200.bed.now()
        ct200.sh("systemctl restart sglang-bench")
        ct200.wait("fault", kind=fault, since_ns=began)
        assert (
            show(ct200, "sglang-bench")["ActiveState"] == "active"
            and get(ct200.spec.ip, "/v1/models")[0] == 0
        )
    assert (
        ct200.sh("nvidia-smi --query-gpu=utilization.gpu --format=csv,noheader,nounits -i 0").strip() == "100"
    )
    ct200.sh("systemctl kill -s KILL sglang-bench")


def test_the_old_process_answers_and_the_new_one_dies(ct200):
    ct200.stage()
    ct200.fault(*FAST)
    ct200.sh("systemctl start sglang-bench")
    ct200.wait("ready")
    ct200.fault(*FAST, STOP_S=12, LOAD_FAULT="cuda")
    ct200.sh("systemctl --no-block restart sglang-bench")
    ct200.wait("sigterm")
    assert (
        get(ct200.spec.ip, "/v1/models")[0] == 200
        and show(ct200, "sglang-bench")["ActiveState"] == "deactivating"
    )
    assert ct200.wait("answered-while-draining")
    died = ct200.wait("fault", kind="cuda")
    assert died["t_ns"] > ct200.ledger("exit")[0]["t_ns"]


def test_units_that_cannot_start(ct200):
    ct200.stage()
    bed, unit = ct200.bed, "sglang-bench.service"
    trouble.unmet_condition(bed, "ct200", unit)
    began = bed.now()
    ct200.sh(f"systemctl start {unit}")
    assert "ConditionPathExists" in until(lambda: ct200.skips(unit, began))[0].message
    ct200.restore()
    trouble.engine_gone(bed, "ct200")
    ct200.sh(f"systemctl start {unit}")
    until(lambda: show(ct200, unit)["ExecMainStatus"] == "203")
    assert abs(ct200.failures(unit)[-1].t_ns - ct200.unit_times(unit)["ExecMainExit"]) < 1e9
    ct200.restore()
    trouble.mask(bed, "ct200", unit)
    with pytest.raises(BedError, match="masked"):
        ct200.sh(f"systemctl start {unit}")
    ct200.restore()
    ct200.stage()
    trouble.crash_loop(bed, "ct200", unit)
    ct200.sh(f"systemctl start {unit}")
    until(lambda: show(ct200, unit)["ActiveState"] == "failed")
    assert len(ct200.ledger("fault", kind="exit")) == 5
    logged(ct200, unit, "Start request repeated too quickly")


def test_a_stranger_on_the_port_is_met_only_after_the_load(ct200):
    ct200.stage()
    ct200.fault(*FAST)
    trouble.squat(ct200.bed, "ct200")
    ct200.sh("systemctl start sglang-bench")
    assert ct200.wait("fault", kind="port-taken")
    assert "somebody-elses-model" in get(ct200.spec.ip, "/v1/models")[1]
    logged(ct200, "sglang-bench", "[Errno 98] error while attempting to bind")


def test_a_stranger_in_gpu_memory_makes_the_load_fail(ct200):
    ct200.stage()
    ct200.fault(*FAST)
    trouble.hog(ct200.bed, "ct200", mib=60000)
    ct200.sh("systemctl start sglang-bench")
    ct200.wait("fault", kind="oom")
    logged(ct200, "sglang-bench", "has 58.59 GiB memory in use")


def test_lost_reload_and_overruled_arguments_run_the_old_command(ct200):
    ct200.stage()
    unit, mine = "sglang-bench.service", "[Service]\nExecStart=\nExecStart=/bin/sleep 1000\n"
    trouble.dropin(ct200.bed, "ct200", unit, "[Service]\nNice=1\n", "40-x.conf", "/run/systemd/system")
    ct200.fault(*FAST, "SYSTEMCTL_FAULT=no-reload")
    ct200.sh(f"systemctl start {unit}")  # an inactive unit would be read anew at its next start
    ct200.wait("ready")
    trouble.dropin(ct200.bed, "ct200", unit, mine, "50-mine.conf", "/run/systemd/system")
    ct200.sh(f"systemctl restart {unit}")
    # systemd 252 sees a new file in a drop-in folder it knows; it does not see a new drop-in folder.
    assert ct200.sh(f"systemctl show {unit} -P NeedDaemonReload").strip() == "yes"
    assert until(lambda: ct200.ledger("start", start=2))[0]["argv"][2] == "sglang.launch_server"
    ct200.restore()
    ct200.stage()
    trouble.overruled(ct200.bed, "ct200", unit)
    trouble.dropin(ct200.bed, "ct200", unit, mine, "50-mine.conf", "/run/systemd/system")
    ct200.sh(f"systemctl start {unit}")
    assert ct200.wait("start")["argv"][2] == "sglang.launch_server"


@pytest.mark.parametrize("kind", ["missing-shard", "truncated", "lfs-pointer", "no-config"])
def test_damaged_models_fail_the_load(kind, b300):
    b300.stage()
    b300.fault(*FAST)
    trouble.damage_model(b300.bed, "b300", kind)
    b300.sh("systemctl start kimi")
    assert b300.wait("fault")["kind"] in ("model-missing", "model-damaged")


def test_reconfigure_script_and_its_lies(b300):
    b300.stage()
    b300.fault(*FAST)
    b300.sh("/root/reconfig_ddtree.sh 32 8 2048")
    ready = b300.wait("ready")
    assert b300.ledger("start")[0]["argv"][-5:-4] == ["32"] and ready["unit"] == "kimi.service"
    b300.sh("python3 /root/bench_ddtree_matrix.py --tokens 64 --out /root/results/x.json")
    assert '"tok_s"' in b300.sh("cat /root/results/x.json")
    for lie in ("nothing", "no-reload"):
        b300.fault(*FAST, RECONFIG_FAULT=lie)
        b300.sh("/root/reconfig_ddtree.sh 64 8 2048")
        assert b300.wait("fault", kind=f"reconfig-{lie}")
        starts = [e["argv"][e["argv"].index("--speculative-ddtree-budget") + 1] for e in b300.ledger("start")]
        assert "64" not in starts
