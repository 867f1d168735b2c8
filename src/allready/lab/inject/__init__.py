"""Faults inside the ranks of any job that `allready lab run` starts: what there is, the plan, and who carries it out.

`hook/` is what gets into the rank (standard library only, found by its sitecustomize); the rest runs outside.
"""
