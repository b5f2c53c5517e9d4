"""From a suite's settings to a run's folder."""
