"""The commands of Slurm, for scripts and hands that know them; `dlsched.system.slurm_commands`."""
