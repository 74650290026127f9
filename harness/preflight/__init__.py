"""Will this configuration train what its author thinks?  What is read, found and rehearsed before a job starts.

Runs in the environment that will train: the standard library, pytest's own, and what is under test, nothing else.
Only what builds a model imports torch, in a process of its own.
"""
