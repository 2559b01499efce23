#!/bin/bash
#SBATCH --job-name=broken
#SBATCH --ntasks=2
#SBATCH --gpus=2
#SBATCH --no-requeue
set -e
srun -K bash -c 'if [ "$SLURM_PROCID" = 1 ]; then exit 5; fi; sleep 600'
echo "not reached"
