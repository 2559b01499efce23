"""Elan: a running job changes its number of workers in about a second, without storage.

Xie, Zhai, Wu, Wang, Zhang, Sun, Yan, "Elan: Towards Generic and Efficient Elastic Training for Deep
Learning", ICDCS 2020. The authors published no program; the page on launching tells what is from
the abstract and what was decided here.
"""
