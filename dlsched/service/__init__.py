"""A service of a live cluster: one job takes its requests, others answer them.

Start reading at `leader.py`, or at the README beside it.
"""
