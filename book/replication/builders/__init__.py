"""Benchmarks of today, built from pages before and after a date."""
