"""Sia: goodput over GPU types, by an integer program a round.

    configurations  what can be given          goodputs    what it is worth to adaptive jobs
    restarts        what a move costs          worths      what it is worth to any job
    program         the objective              solving, table  the optimum
    placing         which nodes                policy      the round

Source: Subramanya, Arfeen, Lin, Qiao, Jia, Ganger, "Sia: Heterogeneity-aware, goodput-optimized
ML-cluster scheduling", SOSP 2023.
"""
