"""Generated from proto/dlsched/v1 by proto/generate.sh: never edited by hand."""
