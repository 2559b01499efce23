"""Clusters that users describe, and the events that change them during a replay."""
