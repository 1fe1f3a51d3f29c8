"""Recordings and the constants to identify from them: problems, checks, noise."""
