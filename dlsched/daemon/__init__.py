"""The live world: one process that leads a cluster, decides rounds and answers its users.

Invariant: the asyncio main thread is the only one that changes what is in memory; whatever is told
to a user or a node is committed first.
"""
