#!/bin/bash
#SBATCH --job-name=ray
#SBATCH --nodes=2
#SBATCH --exclusive
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
nodes=($(scontrol show hostnames $SLURM_JOB_NODELIST))
head_node=${nodes[0]}
head_node_ip=$(srun --nodes=1 --ntasks=1 -w "$head_node" hostname --ip-address)
echo "head=$head_node ip=$head_node_ip"
srun --nodes=1 --ntasks=1 -w "$head_node" --output=head.%j.log \
    bash -c 'echo "head on $SLURMD_NODENAME"; touch head.up; while [ ! -e all.done ]; do sleep 0.05; done' &
while [ ! -e head.up ]; do sleep 0.05; done
worker_num=$((SLURM_JOB_NUM_NODES - 1))
for ((i = 1; i <= worker_num; i++)); do
    srun --nodes=1 --ntasks=1 -w "${nodes[$i]}" bash -c \
        'echo "worker on $SLURMD_NODENAME, node $SLURM_NODEID of $SLURM_NNODES, of job $SLURM_JOB_NUM_NODES"' &
    wait $!
done
touch all.done
wait
