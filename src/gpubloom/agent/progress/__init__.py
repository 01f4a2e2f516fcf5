"""Follows scripts that do not use TrainCard: parses what they print and the TensorBoard files they write.

What is recognised becomes ordinary events of the attempt. A script with a Reporter of its own is left alone.
"""
