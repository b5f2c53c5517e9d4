"""Studies: settings in, a run folder with numbers and pictures out."""
