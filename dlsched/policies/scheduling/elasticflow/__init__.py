"""ElasticFlow: the fewest GPUs that keep each deadline, and the rest where they gain most.

Diandian Gu, Yihao Zhao, Yinmin Zhong, Yifan Xiong, Zhenhua Han, Peng Cheng, Fan Yang, Gang Huang,
Xin Jin, Xuanzhe Liu: "ElasticFlow: An Elastic Serverless Training Platform for Distributed Deep
Learning", ASPLOS 2023, and its artifact. The rules are on the page `docs/policies/elasticflow.md`.
"""
