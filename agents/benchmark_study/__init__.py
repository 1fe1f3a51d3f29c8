"""The controller benchmark: controllers, their cells as files, the table; entered by `agents.benchmark`."""
