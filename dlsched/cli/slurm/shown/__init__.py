"""What `scontrol show` and `--json` tell of jobs, nodes and the site, in Slurm's words."""
