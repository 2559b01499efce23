"""Services that answer requests within an agreed time, and how many replicas they need.

    service_times   distributions of the time of one request
    response_times  the part of requests in time, by model
    sizing          the fewest replicas for a promise; the rate that is to be expected
    replicas        which replicas start, and which end by themselves
    correction      replicas beyond the model's number, from what was measured

Source: Gujarati, Elnikety, He, McKinley, Brandenburg, "Swayam: Distributed Autoscaling to Meet SLAs
of Machine Learning Inference Services with Resource Efficiency", Middleware 2017.
"""
