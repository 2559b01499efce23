#!/bin/bash
#SBATCH --job-name=tokenize
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=2
#SBATCH --mem=200M
#SBATCH --gpus=0
echo "cpus=$SLURM_CPUS_PER_TASK gpus='$CUDA_VISIBLE_DEVICES' ${SLURM_GPUS_ON_NODE:-none}"
srun python3 -c 'print(sum(range(10)))'
