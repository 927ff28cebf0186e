"""What takes more than one pass of the target: neighbors, the probe, synthetic texts."""
