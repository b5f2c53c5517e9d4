"""From run folders to tables, comparisons, figures and reports; needs the extra ``analysis``."""

from sb3_cpp.checks import require

require("analysis", "pandas", "matplotlib", "scipy", "jinja2")
