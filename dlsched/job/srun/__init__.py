"""`srun` inside a job: `dlsched run` with Slurm's options and Slurm's defaults.

`command` says what a command line asks for, `options` what it may hold, `programs` what
`--multi-prog` starts, `files` where tasks write.
"""

from dlsched.job.srun.command import main

__all__ = ["main"]
