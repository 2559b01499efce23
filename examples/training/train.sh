#!/bin/bash
#DLSCHED --name digits
#DLSCHED --gpus 1
#DLSCHED --time 10
#DLSCHED --output digits-%j.out

# The scheduler may stop this at any time and start it again, perhaps on another node:
# digits_numpy.py leaves after a step, with a checkpoint, and goes on there.
python digits_numpy.py --epochs 40 "$@"
