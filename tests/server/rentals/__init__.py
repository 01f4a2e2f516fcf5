"""Services, rented machines, what they cost and what they may."""
