"""The seed papers, one folder each: what they claim, and what we measure."""
