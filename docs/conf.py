"""Configuration of the documentation site (`make docs`)."""

from sb3_cpp.version import __version__

project = "sb3_cpp"
author = "The sb3_cpp developers"
copyright = "2026, The sb3_cpp developers"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton"]
exclude_patterns = ["_build"]

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

autodoc_inherit_docstrings = False  # gymnasium's and SB3's own are not written for Sphinx
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
autodoc_class_signature = "separated"

html_theme = "furo"
html_title = f"sb3_cpp {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
