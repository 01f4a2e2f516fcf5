"""Services that machines are rented from, as fakes on the loopback address; their machines really run."""
