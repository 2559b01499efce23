#!/bin/bash
#SBATCH --job-name=long
#SBATCH --gpus=1
#SBATCH --time=10
#SBATCH --signal=B:USR1@60
#SBATCH --requeue
#SBATCH --open-mode=append
trap 'echo caught; scontrol requeue $SLURM_JOB_ID; wait' USR1
echo "start ${SLURM_RESTART_COUNT:-0}"
if [ "${SLURM_RESTART_COUNT:-0}" = 0 ]; then
    touch long.up
    sleep 600 &
    wait $!
fi
echo finished
