#!/bin/bash
#SBATCH --job-name=ddp
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=2
#SBATCH --time=1:00:00
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_PORT=29512
export WORLD_SIZE=$((SLURM_NNODES * SLURM_GPUS_ON_NODE))
export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK
echo "tasks=$SLURM_NTASKS per_node=$SLURM_NTASKS_PER_NODE layout=$SLURM_TASKS_PER_NODE"
srun --kill-on-bad-exit=1 ./fake_torchrun \
    --nnodes "$SLURM_NNODES" --nproc_per_node "$SLURM_GPUS_ON_NODE" \
    --rdzv_id "$SLURM_JOB_ID" --rdzv_backend c10d --rdzv_endpoint "$MASTER_ADDR:$MASTER_PORT" \
    train.py
