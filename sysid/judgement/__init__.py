"""Judgement of a fit: intervals, verdicts, validation."""
