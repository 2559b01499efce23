"""Salus: jobs on one GPU take turns by iteration, in lanes of its memory.

    lanes           which job gets into which lane, as the paper has it
    artifact_lanes  the same as the published code has it
    turns           which job of a lane runs its next iteration
    lane_run        a lane from its first iteration to its last
    gate            lanes and turns of jobs that ask for each of their steps, for an agent

Source: Yu, Chowdhury, "Salus: Fine-Grained GPU Sharing Primitives for Deep Learning Applications",
MLSys 2020.
"""
