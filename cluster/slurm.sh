#!/usr/bin/env bash
# Slurm: a Ray cluster for one allocation, with one Ray node per host. Submit it from the checkout, so that every host finds security.sh:
#   sbatch --nodes 4 --gpus-per-node 8 cluster/slurm.sh rayjobs/recipes/sweeps/rcl_grid.yaml --store /shared/store --data /shared/data
# A job gets only the GPUs that it requests, also on exclusive hosts: without --gpus-per-node, trainings run on CPUs.
# `ray symmetric-run` starts the head on the first host and workers on the others, waits for all of them, runs the command on the head and stops
# the cluster with `ray stop`. That stops all your Ray processes on these hosts, so the job uses --exclusive.
# Three minutes before the time limit, trainings write checkpoints; the job is queued again and continues from there. The same happens when Slurm
# preempts the job, if PreemptParameters has send_user_signal and GraceTime is at least a minute.
#SBATCH --job-name=sentdist
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --output=sentdist-%j.log
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=B:USR1@180
set -euo pipefail
head="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)"
# Debian and Ubuntu resolve a host's own name to 127.0.1.1, which other hosts cannot reach.
head_ip="$(getent ahostsv4 "$head" | awk '$1 !~ /^127\./ { print $1; exit }' || true)" # getent exits with 2 for an unknown name
head_ip="${HEAD_IP:-${head_ip:-$(hostname -I | awk '{ print $1 }')}}" # this script runs on that host
# A token for this job, in a file that only you can read, on a file system that all hosts share.
export RAY_AUTH_MODE=token RAY_USAGE_STATS_ENABLED=0 RAY_AUTH_TOKEN_PATH="$HOME/.sentdist_token_$SLURM_JOB_ID"
(umask 077 && python3 -P -c 'import secrets; print(secrets.token_hex(32), end="")' >"$RAY_AUTH_TOKEN_PATH")
trap 'rm -f "$RAY_AUTH_TOKEN_PATH"' EXIT
export RAY_SYMMETRIC_RUN_CLUSTER_WAIT_TIMEOUT=300 # large file systems import torch slowly; the default is 30 s
unset RAY_ADDRESS # the submitting shell may use another cluster
. cluster/security.sh
(use_tls "$head_ip" head) # makes the authority once, in the home that all hosts share
# `ray symmetric-run` exits with 0 even if Ray did not start, so the first host checks that the sweep has ended.
on_each_host='. cluster/security.sh && folder="$(ray_folder "$SLURM_JOB_ID")" && address="$1" && shift && close_metrics &&
    use_tls "$(hostname -I)" node && {
    # `ray symmetric-run` counts hosts on "the" cluster; with a private folder it needs the address.
    export RAY_ADDRESS="$address" SENTDIST_ENDED="$folder.ended"
    rm -f "$SENTDIST_ENDED"
    trap "rm -rf \"\$folder\" \"\$SENTDIST_ENDED\"; exit 143" TERM # when the job is stopped or queued again, after its Ray has stopped
    ray symmetric-run --address "$address" --min-nodes "$SLURM_JOB_NUM_NODES" --temp-dir "$folder" \
    ${SLURM_CPUS_ON_NODE:+--num-cpus "$SLURM_CPUS_ON_NODE"} ${SLURM_GPUS_ON_NODE:+--num-gpus "$SLURM_GPUS_ON_NODE"} \
    -- bash -c "python -m rayjobs.sweep \"\$@\"; code=\$?; echo \$code >\"\$SENTDIST_ENDED\"; exit \$code" sweep "$@"
    status=$?
    if [ "${SLURM_NODEID:-0}" = 0 ] && [ ! -s "$SENTDIST_ENDED" ]; then
        echo "Stopped: Ray did not start on $(hostname), or not on enough hosts, so nothing was built. The lines above say why." >&2
        status=1
    fi
    rm -rf "$folder" "$SENTDIST_ENDED"; exit "$status"; }'
to_leave='. cluster/security.sh && use_tls "$(hostname -I)" node && RAY_ADDRESS="$1" python3 -P -m rayjobs.leave --all --within 150'
leave() {
    echo "$(date "+%F %T"): Slurm takes these hosts; trainings write their checkpoints."
    srun --overlap --ntasks=1 --nodes=1 --nodelist="$head" bash -c "$to_leave" sentdist "$head_ip:6379" || echo "The cluster could not be notified."
}
trap 'leave; sleep 30; scontrol requeue "$SLURM_JOB_ID"' USR1
srun --ntasks-per-node=1 --nodes="$SLURM_JOB_NUM_NODES" bash -c "$on_each_host" sentdist "$head_ip:6379" "$@" &
end_with "$!"
