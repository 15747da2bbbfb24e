"""`make demo`: money moves between two banks while their processes are killed.

In the end Spark proves that nothing was lost.
"""
