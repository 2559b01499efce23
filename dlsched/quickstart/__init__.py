"""`dlsched quickstart`: a cluster in one folder of this machine, and jobs that share it."""
