"""A unit whose main process is `docker run`: the server lives in another cgroup, and outlives its client."""

from tests.bed_tests.helpers import get, logged, until


def test_the_container_has_its_own_cgroup_and_outlives_its_client(ct200):
    ct200.fault("SPEED=20", "LOAD_S=2")
    ct200.stage()
    ct200.sh("systemctl start docker-qwen")
    ct200.wait("ready")
    container, pid = ct200.sh("docker inspect -f '{{.Id}} {{.State.Pid}}' qwen").split()
    owner = ct200.sh("ss -ltnpeH 'sport = :30000'")
    assert f"docker-{container}.scope" in owner and f"pid={pid}" in owner
    logged(ct200, "docker-qwen", "fired up and ready")
    assert "fired up and ready" in ct200.sh("docker logs qwen")
    main = ct200.sh("systemctl show docker-qwen -P MainPID").strip()
    assert main != pid
    ct200.sh("systemctl stop docker-qwen")
    assert ct200.ledger("sigterm") and get(ct200.spec.ip, "/v1/models")[0] == 0
    ct200.sh("systemctl start docker-qwen")
    until(lambda: len(ct200.ledger("ready")) == 2)
    ct200.sh("kill -9 $(systemctl show docker-qwen -P MainPID)")
    until(lambda: ct200.sh("systemctl show docker-qwen -P ActiveState").strip() == "failed")
    assert (
        get(ct200.spec.ip, "/v1/models")[0] == 200
    )  # the unit has failed, and its container goes on answering
    ct200.restore()
    assert get(ct200.spec.ip, "/v1/models")[0] == 0
