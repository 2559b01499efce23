"""Karuna: just enough for deadlines, and everything else to the others by queues.

Chen, Chen, Bai, Alizadeh: "Scheduling Mix-flows in Commodity Datacenters with Karuna", SIGCOMM
2016, on GPUs instead of links. Its network form is `simulate.worlds.network`; both use `queues`.
"""
