#!/bin/bash
#SBATCH -J finetune
#SBATCH --nodes=1
#SBATCH --ntasks=2
#SBATCH --gres=gpu:v100:2
#SBATCH --gpu-bind=closest
#SBATCH --hint=nomultithread
#SBATCH -o slurm-%j.out
#SBATCH -e slurm-%j.err
echo "batch: $SLURM_NTASKS tasks, $SLURM_JOB_NUM_NODES nodes, in $SLURM_SUBMIT_DIR"
# four trainings share two GPUs: each has one for itself, and two wait
for seed in 1 2 3 4; do
    srun --nodes=1 --ntasks=1 --gres=gpu:1 --exclusive \
        bash -c 'mkdir "gpu.$CUDA_VISIBLE_DEVICES" && sleep 0.3 && rmdir "gpu.$CUDA_VISIBLE_DEVICES"
            echo "seed '$seed' alone on $SLURM_GPUS_ON_NODE GPU"' &
done
wait
srun --label bash -c 'echo "rank $SLURM_PROCID of $SLURM_NTASKS"'
echo "to the error file" >&2
