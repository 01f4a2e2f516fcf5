"""Follows scripts that know nothing of TrainCard: reads what they print, and TensorBoard's files they write.

What is recognised becomes ordinary events of the attempt. A script with a Reporter of its own is left alone.
"""
