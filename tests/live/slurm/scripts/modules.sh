#!/bin/bash
#SBATCH --ntasks=2
module load cuda
srun bash -c 'module load "rank$SLURM_PROCID"'
