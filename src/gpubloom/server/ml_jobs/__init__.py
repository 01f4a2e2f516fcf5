"""Jobs that run people's own files, here or on rented machines. Spelled in snake_case, as was asked for."""
