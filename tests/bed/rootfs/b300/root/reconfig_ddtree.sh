#!/bin/bash
# reconfig_ddtree.sh BUDGET TOPK WINDOW: rewrites kimi.service and restarts it. As its owner wrote it: its
# success proves nothing. It asks /v1/models once, and whoever answers is taken for the new server.
# Faults: RECONFIG_FAULT=nothing (returns 0, does nothing) | no-reload (forgets daemon-reload) | no-restart | fail (status 1) | slow:S
budget=${1:?BUDGET} topk=${2:?TOPK} window=${3:?WINDOW}
unit=/etc/systemd/system/kimi.service
fault=$(sed -n 's/^RECONFIG_FAULT=//p' /etc/ddtop-bed/faults 2>/dev/null | tail -1)
only=$(sed -n 's/^RECONFIG_BUDGET=//p' /etc/ddtop-bed/faults 2>/dev/null | tail -1)
[ -z "$only" ] || [ "$only" = "$budget" ] || fault=
stamp() { python3 -c 'import sys; from ddtop_bed.ledger import stamp; stamp(sys.argv[1], budget=int(sys.argv[2]), **({"kind": sys.argv[3]} if len(sys.argv) > 3 else {}))' "$@"; }
stamp reconfig-begin "$budget"
case $fault in
  nothing) stamp fault "$budget" reconfig-nothing; echo "reconfigured: budget $budget"; exit 0 ;;
  fail) stamp fault "$budget" reconfig-fail; echo "reconfig: cannot write $unit" >&2; exit 1 ;;
  slow:*) sleep "${fault#slow:}" ;;
esac
cat > $unit <<EOF
[Unit]
Description=Kimi K2.6 with tree speculation
After=network.target

[Service]
ExecStart=/opt/ddtree/bin/python -m sglang.launch_server --model-path /dev/shm/Kimi-K2.6 --served-model-name Kimi-K2.6 --tp-size 8 --host 0.0.0.0 --port 30000 --enable-metrics --speculative-algorithm DDTREE --speculative-draft-model-path /data/models/Kimi-K2.6-DFlash --speculative-ddtree-budget $budget --speculative-ddtree-topk $topk --speculative-draft-window-size $window
Restart=no
KillMode=mixed
TimeoutStopSec=60

[Install]
WantedBy=multi-user.target
EOF
[ "$fault" = no-reload ] || systemctl daemon-reload
[ "$fault" = no-restart ] || systemctl --no-block restart kimi.service
for _ in $(seq 20); do
  python3 -c 'import urllib.request as u; u.urlopen("http://127.0.0.1:30000/v1/models", timeout=1)' 2>/dev/null && break
  sleep 0.1
done
case $fault in no-*) stamp fault "$budget" "reconfig-$fault" ;; esac
stamp reconfig-end "$budget"
echo "reconfigured: budget $budget top-k $topk window $window"
