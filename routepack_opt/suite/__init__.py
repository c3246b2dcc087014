"""Window generators, instance suites, gap and evaluation runs."""
