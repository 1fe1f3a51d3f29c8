"""Recordings and what is to be identified from them: problems, checks, noise."""
