"""Runs beside the environments under test, or at the terminal; never imports torch."""
