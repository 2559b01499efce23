"""The machine: processes, cgroups, systemd units, system calls."""
