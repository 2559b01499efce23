#!/bin/bash
#SBATCH --job-name=sweep
#SBATCH --array=0-3%2
#SBATCH --gres=gpu:1
#SBATCH --cpus-per-task=1
#SBATCH --time=00:10:00
#SBATCH --output=logs/%x_%A_%a.out
RATES=(0.1 0.01 0.001 0.0001)
echo "job=$SLURM_ARRAY_JOB_ID task=$SLURM_ARRAY_TASK_ID of $SLURM_ARRAY_TASK_COUNT"
echo "range=$SLURM_ARRAY_TASK_MIN-$SLURM_ARRAY_TASK_MAX step=$SLURM_ARRAY_TASK_STEP"
echo "rate=${RATES[$SLURM_ARRAY_TASK_ID]} cpus=$SLURM_CPUS_PER_TASK gpus=$SLURM_GPUS_ON_NODE"
