"""Reports of fits: files and pages."""
