"""`dlsched quickstart`: a whole cluster in one folder of this machine, and jobs that share it."""
