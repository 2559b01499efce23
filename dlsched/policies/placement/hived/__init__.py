"""HiveD (OSDI 2020): cells of GPUs that virtual clusters own, whatever the others do."""
