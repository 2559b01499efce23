"""MLFS: scheduling by features of machine learning (MLF-H and MLF-C).

Wang, Liu, Shen: "Job Scheduling for Large-Scale Machine Learning Clusters", CoNEXT 2020. Its
symbols: urgency L, iteration I, reduction of the loss δl, size S, deadline d, time left r, time
waited w; overload threshold h_r, candidates p_s.
"""
