"""One job that trains, and answers requests within milliseconds: PipeSwitch as a library.

    program      what a training and a service are: Python files with a few functions
    layout       where each tensor of a model lies, and in which groups it is copied
    worker       a process that waits, with everything built, for the GPU
    controller   the parent: owns the memory, copies groups, says which worker has the GPU

`python -m dlsched.switch` runs it. Needs PyTorch.
"""
