#!/bin/bash
#SBATCH --job-name=told
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --gpus-per-node=v100:2
#SBATCH --cpus-per-task=1
#SBATCH --mem=1G
#SBATCH --dependency=singleton
# what scripts read of Slurm's variables: of the batch script, and of each task
env | grep ^SLURM | sort > batch.env
srun --kill-on-bad-exit=0 bash -c 'env | grep ^SLURM | sort > "task.$SLURM_PROCID.env"'
