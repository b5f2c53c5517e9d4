"""One self-contained HTML page about some runs."""
