#!/bin/bash
#SBATCH --job-name=prepare
#SBATCH --gpus=1
#SBATCH --open-mode=append
#SBATCH --mail-type=END,FAIL
#SBATCH --mail-user=someone@example.org
# a pipeline that submits its next parts itself
next=$(sbatch --parsable --dependency=afterok:$SLURM_JOB_ID --job-name=evaluate \
    --gpus=1 --wrap 'echo "evaluated after $SLURM_JOB_NAME"')
sbatch --dependency=afternotok:$SLURM_JOB_ID --gpus=1 --wrap 'echo never' | awk '{print $4}' > never.id
echo "$next" > next.id
squeue -h -j "$next" -o "%i %j %T %R"
