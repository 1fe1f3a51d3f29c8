"""Judgement of a fit: intervals, diagnostics, validation."""
