"""GPUs that people rent: their credentials, what is rented now, what it cost, and budgets."""
