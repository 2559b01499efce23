"""The cluster as a web page: queue, nodes, predicted schedule, past days; it changes nothing."""
