"""Script jobs: they run users' own files, on the server's machines or on rented machines."""
