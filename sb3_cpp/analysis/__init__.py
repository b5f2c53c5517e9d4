"""From run folders to tables, comparisons, figures and reports."""
