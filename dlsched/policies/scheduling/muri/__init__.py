"""Muri: jobs on the same GPUs take turns at storage, processors, GPUs and network.

Source: Zhao et al., "Multi-Resource Interleaving for Deep Learning Training", SIGCOMM 2022, and its
artifact's simulator.
"""
