"""Jobs that are graphs of tasks, in a world of their own: Carbyne and the rules beside it.

The cluster is one pool of resources, and a task needs a part of each. A discipline says which tasks
begin (`disciplines`, `tetris`); `following` follows them to their ends. A profile has the
arithmetic, the shares and the clock: exact, or those of the published simulator (`artifact2016`).
"""
