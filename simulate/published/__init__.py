"""What only reproduces the published simulators of other systems, one room for each system.

A room has the system's semantics; `profiles` finds them by the names that `-o semantics=` takes.
A live cluster has none of this.
"""
