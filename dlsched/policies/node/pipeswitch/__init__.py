"""PipeSwitch: one GPU switches between a training and inference in milliseconds.

    grouping   in which groups a model's layers are copied to the GPU
    switching  when a GPU switches, as a pure step

Source: Bai, Zhang, Zhu, Jin, "PipeSwitch: Fast Pipelined Context Switching for Deep Learning
Applications", OSDI 2020.
"""
