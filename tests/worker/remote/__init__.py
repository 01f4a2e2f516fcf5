"""Jobs on rented machines, as a worker attends them."""
