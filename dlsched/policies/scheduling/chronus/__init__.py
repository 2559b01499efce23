"""Chronus: leases for jobs with deadlines, and what is left for the others.

Wei Gao, Zhisheng Ye, Peng Sun, Yonggang Wen, Tianwei Zhang: "Chronus: A Novel Deadline-aware
Scheduler for Deep Learning Training Jobs", SoCC 2021, and its artifact. The rules are on the page
`docs/policies/chronus.md`; the formulas here are in minutes, as in the paper.
"""
