"""What GPUs cost where, over HTTP. Nothing is stored: an offer is computed from what is asked."""
