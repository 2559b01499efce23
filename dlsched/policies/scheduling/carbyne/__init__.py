"""Carbyne: a job runs now what must run now, and lends the rest of its share.

Grandl, Chowdhury, Akella, Ananthanarayanan: "Altruistic Scheduling in Multi-Resource Clusters",
OSDI 2016. Packing is that of Tetris (Grandl and others, SIGCOMM 2014). A job is a graph of stages
of equal tasks; `plan` says which tasks must begin now, `stages.quotas` what a job is owed.
"""
