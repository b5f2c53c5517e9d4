"""The paper's didactic studies and the certificate, beside the modules they show."""

from sb3_cpp.checks import require

require("analysis", "pandas", "matplotlib", "scipy", "PIL")
