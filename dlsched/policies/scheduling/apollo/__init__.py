"""Apollo: many short tasks, put by estimates of when they would be done.

Paper: Boutin, Ekanayake, Lin, Shi, Zhou, Qian, Wu, Zhou, "Apollo: Scalable and Coordinated
Scheduling for Cloud-Scale Computing", OSDI 2014. `waits` is what a node tells, `completion` what a
scheduler makes of it, `matching` which task goes where, `corrections` what is done when an estimate
was wrong.
"""
