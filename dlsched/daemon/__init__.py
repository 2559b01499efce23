"""The daemon: one process that leads a cluster, decides rounds and answers its users.

Invariant: only the asyncio main thread changes what is in memory; an answer to a user or a node
waits until what it rests on is committed.
"""
