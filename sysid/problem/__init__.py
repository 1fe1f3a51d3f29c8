"""Recordings and the parameters to identify from them: problems, checks, noise."""
