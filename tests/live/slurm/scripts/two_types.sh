#!/bin/bash
#SBATCH -J student
#SBATCH --nodes=1
#SBATCH --gres=gpu:a100:2,gpu:v100:2
echo "gpus=$CUDA_VISIBLE_DEVICES asked=$SLURM_GPUS_PER_NODE on_node=$SLURM_GPUS_ON_NODE"
srun --gres=gpu:a100:2,gpu:v100:2 bash -c 'echo "step=$CUDA_VISIBLE_DEVICES"'
srun --gres=gpu:a100:1 true || echo "refused=$?"
exec sleep 600
