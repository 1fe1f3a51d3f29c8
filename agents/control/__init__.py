"""Planners: optimal control of any simulator that has derivatives or can be sampled."""
