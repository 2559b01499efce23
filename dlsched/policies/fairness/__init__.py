"""How the cluster is divided among accounts."""
