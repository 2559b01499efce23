"""What Prometheus is told of a cluster; `docs/monitoring.md` lists the names."""
