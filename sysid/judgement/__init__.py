"""What a fit found and how sure it is: intervals, verdicts, validation."""
