"""Pollux (Qiao et al., OSDI 2021): GPUs where goodput grows, for jobs that adapt to them."""
