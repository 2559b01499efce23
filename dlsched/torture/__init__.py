"""The torture test: jobs of several users while processes, links and disks fail on purpose.

`python -m dlsched.torture --help`. It is bounded in time, comes from a seed, and ends with a
verdict on what was promised. The name is that of the kind of test: it is meant to be harsh.
"""
