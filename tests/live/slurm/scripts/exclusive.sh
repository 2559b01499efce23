#!/bin/bash
#SBATCH --job-name=whole
#SBATCH -N 1
#SBATCH --exclusive
#SBATCH --mem=0
#SBATCH -G 1
srun -n1 bash -c 'echo "step $SLURM_STEP_ID on $SLURM_STEP_NODELIST sees $SLURM_GPUS_ON_NODE"'
srun -n3 --export=ALL,COLOUR=red --output=rank.%t.txt bash -c 'echo "$COLOUR $SLURM_PROCID/$SLURM_NTASKS"'
srun --time=0:01 sleep 600 || echo "ended by its limit: $?"
