"""RunPod: GPU pods, which are containers on rented machines."""
