"""Salus: jobs on one GPU take turns by iteration, in lanes of its memory.

    lanes   which job gets into which lane, as the paper has it
    turns   which job of a lane runs its next iteration
    gate    lanes and turns of jobs that ask for each of their steps, for an agent

Source: Yu, Chowdhury, "Salus: Fine-Grained GPU Sharing Primitives for Deep Learning Applications",
MLSys 2020.
"""
