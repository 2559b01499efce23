"""Hollow nodes: agents that speak the real protocol and run nothing.

`python -m dlsched.hollow --help`. Many of them in one process give a daemon the load of a large
cluster before there is one.
"""
