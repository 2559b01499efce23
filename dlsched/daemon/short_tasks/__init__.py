"""Short tasks: lists that the runs of an array work off, bundle by bundle, without rounds."""
