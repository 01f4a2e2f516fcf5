"""Files that people bring: how they arrive, how much room there is, who prepares them."""
