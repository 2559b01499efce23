"""What a site's rules say: partitions, priority classes, parts of clusters, allowed URLs."""
