#!/bin/bash -l
#SBATCH --job-name=typed
#SBATCH --constraint="a100|v100"
#SBATCH --gpus-per-node=1
#SBATCH --nodes=1
#SBATCH --exclude=n2
#SBATCH --wckey=project
#SBATCH --comment="a comment"
# a login shell has set PATH anew; the commands are found all the same
source ./conda.sh
conda activate training
srun python -c 'import os; print("python", os.environ["CONDA_DEFAULT_ENV"], os.environ["SLURM_PROCID"])'
scontrol show job "$SLURM_JOB_ID" | grep -o "JobName=[a-z]*"
sinfo -h -N -n "$SLURMD_NODENAME" -o "%N %G"
