"""Recordings: files, tables, sensors, pages of reports."""
