"""Themis: finish-time fairness by auctions of leases.

Mahajan et al., "Themis: Fair and Efficient GPU Cluster Scheduling", NSDI 2020; the auction is the
partial allocation of Cole, Gkatzelis and Goel, "Mechanism Design for Fair Division", EC 2013.
`auction` knows valuations only, `app` makes them from jobs and machines, `accounts` remembers what
an app's ideal is made of, `policy` holds the leases.
"""
