#!/usr/bin/env bash
# Several hosts that see one another over a private network, without a scheduler: start the head with one_host.sh, then this on every other host.
#   scp HEAD:~/.sentdist_ray_token ~/                      the same token everywhere
#   HEAD_IP=10.0.0.5 NODE_IP=10.0.0.6 bash cluster/several_hosts.sh
#   TLS=1 HEAD_IP=… NODE_IP=… bash cluster/several_hosts.sh      if the head has TLS=1; copy its authority first: scp HEAD:.sentdist_tls/ca.* ~/.sentdist_tls/
# Asked to end (SIGTERM, as by systemd or a machine that shuts down), it has trainings on this host write checkpoints first, for NOTICE_S seconds (20).
# As a unit of systemd it needs User=…, KillMode=mixed (else all processes get the signal at once) and TimeoutStopSec=60 (40 more than NOTICE_S).
# All hosts need the same environment (infra/constraints.txt, or the image of infra/Dockerfile), and a store that all of them reach:
# a shared folder or s3://. Where a host has several networks, tell the collectives which one:
#   ray job submit --runtime-env-json '{"env_vars": {"GLOO_SOCKET_IFNAME": "eth1", "NCCL_SOCKET_IFNAME": "eth1"}}' ...
set -euo pipefail
: "${HOME:=$(getent passwd "$(id -u)" | cut -d: -f6)}" # which a unit of systemd may lack
export HOME
. "$(dirname "${BASH_SOURCE[0]}")/security.sh"
: "${HEAD_IP:?Set HEAD_IP to the address of the head.}"
: "${NODE_IP:?Set NODE_IP to the address of this machine in the same network.}"
export RAY_AUTH_MODE=token RAY_USAGE_STATS_ENABLED=0
export RAY_AUTH_TOKEN_PATH="${RAY_AUTH_TOKEN_PATH:-$HOME/.sentdist_ray_token}"
[ -s "$RAY_AUTH_TOKEN_PATH" ] || {
    echo "Stopped: $RAY_AUTH_TOKEN_PATH is missing. Copy it from the head (mode 600)." >&2
    exit 1
}
[ ! -O "$RAY_AUTH_TOKEN_PATH" ] || chmod go= "$RAY_AUTH_TOKEN_PATH" # whoever reads it can run code as you
unset RAY_ADDRESS # of another cluster that this shell uses
folder="$(ray_folder cluster)"
close_metrics
use_tls "$NODE_IP" node
leaves_in_time "$HEAD_IP:6379" ray start --block --address "$HEAD_IP:6379" --node-ip-address "$NODE_IP" \
    --temp-dir "$folder" ${CPUS:+--num-cpus "$CPUS"} ${GPUS:+--num-gpus "$GPUS"} ${OBJECT_STORE_BYTES:+--object-store-memory "$OBJECT_STORE_BYTES"}
