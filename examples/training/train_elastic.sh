#!/bin/bash
#DLSCHED --name images
#DLSCHED --adaptive
#DLSCHED --max-gpus 8
#DLSCHED --output images-%j.out

# The scheduler chooses how many GPUs this has and changes it as the cluster fills and empties; the
# batch size and the learning rate follow. torchrun is told of this node's part by the scheduler.
#DLSCHED --launch node
exec python -m dlsched.job.torchrun elastic_images.py --epochs 20 "$@"
