"""Lucid (ASPLOS 2023): a short profiling stage, packing of jobs that bear it, shortest first.

Source: Q. Hu, M. Zhang, P. Sun, Y. Wen, T. Zhang, "Lucid: A Non-intrusive, Scalable and
Interpretable Scheduler for Deep Learning Training Jobs", ASPLOS 2023, and its simulator.
"""
