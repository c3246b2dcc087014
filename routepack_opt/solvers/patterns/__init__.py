"""Row patterns: which sets of items a row-shard holds, with a bound from all of them at once."""
