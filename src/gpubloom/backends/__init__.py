"""Other trainers behind the same config, run directory and Reporter: TRL, and TRL with Unsloth."""
