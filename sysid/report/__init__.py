"""Pages about fits."""
