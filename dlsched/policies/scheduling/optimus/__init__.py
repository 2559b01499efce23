"""Optimus: the next task goes to the job that gains most from it.

Peng, Bao, Chen, Wu, Guo, "Optimus: An Efficient Dynamic Resource Scheduler for Deep Learning
Clusters", EuroSys 2018; with all-reduce and perfect knowledge as Pollux (OSDI 2021) compares itself
to it ("Optimus+Oracle").
"""
