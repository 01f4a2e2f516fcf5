"""Services that machines are rented from, as stand-ins on the loopback address; their machines really run."""
