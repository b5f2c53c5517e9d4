"""Figures of a suite's runs, from the tidy tables."""
