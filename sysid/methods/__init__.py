"""Methods of identification: from a problem to a result."""
