"""Sia: goodput over GPU types, by an integer program a round.

    configurations     what a job can get: so many GPUs of a type, on so many nodes
    adaptive_goodput   goodput of jobs that adapt their batch size, by configuration
    goodput_matrix     G, the value of every configuration for every job, and the cost of a move
    integer_program    the program of a round
    solving            its optimum
    node_capacity      GPUs on nodes
    placement          from configurations to nodes
    policy, options    the round

Source: Subramanya, Arfeen, Lin, Qiao, Jia, Ganger, "Sia: Heterogeneity-aware, goodput-optimized
ML-cluster scheduling", SOSP 2023.
"""
