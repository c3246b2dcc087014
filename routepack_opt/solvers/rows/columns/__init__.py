"""Column generation over cell patterns: dual bounds, dives, enumeration, branch and price."""
