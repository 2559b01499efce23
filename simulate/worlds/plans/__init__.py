"""Plans of one training on unlike GPUs: which operation runs where, and how gradients are summed.

    model         the operations of a training, read from a file
    devices       the GPUs, and the links between them
    deployment    a plan as a graph of operations, transfers and collectives
    order         in which order a GPU runs its operations
    iteration     how long one iteration of such a graph takes
    search        the best plan that is found

Source: Yi et al., "Optimizing Distributed Training Deployment in Heterogeneous GPU Clusters"
(HeteroG), CoNEXT 2020, and the rules of its published program.
"""
