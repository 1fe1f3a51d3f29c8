"""Runs a system's procedure stage by stage, examines each fit, and searches for the cause of what a model does not explain."""
