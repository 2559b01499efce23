"""The cluster as tables: nodes, GPUs and pools of them; which are held now, and which later."""
