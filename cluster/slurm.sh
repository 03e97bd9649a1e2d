#!/usr/bin/env bash
# Slurm: a Ray cluster for the length of one allocation, one Ray node a host.
# Submit it from the checkout, where every host finds security.sh:
#   sbatch --nodes 4 --gpus-per-node 8 cluster/slurm.sh rayjobs/recipes/sweeps/rcl_grid.yaml --store /shared/store --data /shared/data
# Slurm gives a job those GPUs only that it asks for, though the hosts are its own: without --gpus-per-node trainings run on CPUs.
# `ray symmetric-run` starts the head on the first host and workers on the others, waits for all of them, runs the command on the head and ends the
# cluster with `ray stop`, which ends every Ray process of yours on these hosts: hence --exclusive.
# Three minutes before its time is over the trainings write checkpoints, and the job is queued again and goes on where it was; so it is, too, when
# Slurm takes the hosts for another job, if PreemptParameters has send_user_signal and GraceTime a minute or more.
#SBATCH --job-name=sentdist
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --output=sentdist-%j.log
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=B:USR1@180
set -euo pipefail
head="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)"
# Debian and Ubuntu give a host's own name the address 127.0.1.1, by which no other host reaches it.
head_ip="$(getent ahostsv4 "$head" | awk '$1 !~ /^127\./ { print $1; exit }' || true)" # which ends with 2 where it does not know the name
head_ip="${HEAD_IP:-${head_ip:-$(hostname -I | awk '{ print $1 }')}}" # this script runs on that host
# A token of its own for this job, in a file that only you can read; the path must be on a file system that all hosts share.
export RAY_AUTH_MODE=token RAY_USAGE_STATS_ENABLED=0 RAY_AUTH_TOKEN_PATH="$HOME/.sentdist_token_$SLURM_JOB_ID"
(umask 077 && python3 -P -c 'import secrets; print(secrets.token_hex(32), end="")' >"$RAY_AUTH_TOKEN_PATH")
trap 'rm -f "$RAY_AUTH_TOKEN_PATH"' EXIT
export RAY_SYMMETRIC_RUN_CLUSTER_WAIT_TIMEOUT=300 # large file systems import torch slowly; the default is 30 s
unset RAY_ADDRESS # of another cluster that the submitting shell uses
. cluster/security.sh
(use_tls "$head_ip" head) # makes the authority, once, in a home that all hosts share
# `ray symmetric-run` ends with 0 also where Ray did not start: the first host looks whether the sweep came to an end.
on_each_host='. cluster/security.sh && folder="$(ray_folder "$SLURM_JOB_ID")" && address="$1" && shift && close_metrics &&
    use_tls "$(hostname -I)" node && {
    # `ray symmetric-run` counts hosts on "the" cluster, which it does not find in a folder of its own.
    export RAY_ADDRESS="$address" SENTDIST_ENDED="$folder.ended"
    rm -f "$SENTDIST_ENDED"
    trap "rm -rf \"\$folder\" \"\$SENTDIST_ENDED\"; exit 143" TERM # of a job that is ended or queued again, once its Ray is gone
    ray symmetric-run --address "$address" --min-nodes "$SLURM_JOB_NUM_NODES" --temp-dir "$folder" \
    ${SLURM_CPUS_ON_NODE:+--num-cpus "$SLURM_CPUS_ON_NODE"} ${SLURM_GPUS_ON_NODE:+--num-gpus "$SLURM_GPUS_ON_NODE"} \
    -- bash -c "python -m rayjobs.sweep \"\$@\"; code=\$?; echo \$code >\"\$SENTDIST_ENDED\"; exit \$code" sweep "$@"
    status=$?
    if [ "${SLURM_NODEID:-0}" = 0 ] && [ ! -s "$SENTDIST_ENDED" ]; then
        echo "Stopped: Ray did not start on $(hostname), or not on enough hosts, so nothing was built. The lines above say why." >&2
        status=1
    fi
    rm -rf "$folder" "$SENTDIST_ENDED"; exit "$status"; }'
to_leave='. cluster/security.sh && use_tls "$(hostname -I)" node && RAY_ADDRESS="$1" python3 -P -m sentdist leave --all --within 150'
leave() {
    echo "$(date "+%F %T"): Slurm takes these hosts; trainings write their checkpoints."
    srun --overlap --ntasks=1 --nodes=1 --nodelist="$head" bash -c "$to_leave" sentdist "$head_ip:6379" || echo "The cluster could not be notified."
}
trap 'leave; sleep 30; scontrol requeue "$SLURM_JOB_ID"' USR1
srun --ntasks-per-node=1 --nodes="$SLURM_JOB_NUM_NODES" bash -c "$on_each_host" sentdist "$head_ip:6379" "$@" &
end_with "$!"
