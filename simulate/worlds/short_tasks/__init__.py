"""Very many short tasks on shared servers, put there by several schedulers at once.

`files` reads what is to run, `servers` is what a server does with it, `scheduler` one scheduler
with its own, possibly old, view of all servers, `world` the clock over all of them, `comparison`
several ways of matching side by side. What is decided is in `dlsched.policies.scheduling.apollo`.
"""
