"""Transfer studies: jobs, statistics, the protocol, runs, the report."""
