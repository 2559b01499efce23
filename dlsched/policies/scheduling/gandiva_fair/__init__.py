"""Gandiva_fair: tickets, gang-aware split stride, balancing and trading.

Chaudhary et al., "Balancing Efficiency and Fairness in Heterogeneous GPU Clusters for Deep
Learning", EuroSys 2020. `stride` says who is next, `trading` who holds how much of each GPU type,
`balance` who should move to another server, `seats` remembers where everybody belongs, and `policy`
puts them together.
"""
