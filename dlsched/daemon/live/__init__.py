"""The live jobs, nodes and GPUs in memory, as the reserved ledger has them."""
