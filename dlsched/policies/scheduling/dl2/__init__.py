"""DL2: numbers of GPUs by a trained network.

`window` is what the network sees and may do, `shares` is its teacher (equal shares), `guard`
watches that the network does no worse than the teacher, and `policy` is the part of a round.
"""
