"""Settings of Sphinx for the documentation site (ci/docs). Its pages are the Markdown files of this checkout, where they lie:
READMEs, the contract, findings, results, and the guide. A link to a folder leads to its README; one to another file of the
checkout is a download, so that it works without the network. A link that leads nowhere is a warning, which ci/docs counts as
an error."""

import os
import re
import shutil

project = "Lockstep"
author = "the Lockstep authors"
root = os.environ.get("LOCKSTEP_DOCS_ROOT") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
with open(os.path.join(root, "CMakeLists.txt"), encoding="utf-8") as text:
    release = version = re.search(r"project\(lockstep VERSION ([0-9.]+)", text.read()).group(1)

extensions = ["myst_parser"]
root_doc = "ci/site/index"
include_patterns = ["**.md"]
# Templates of `lockstep new`, whose links are those of another repository.
exclude_patterns = ["build", "dist", ".cache", "lockstep-out", "properties/new"]
nitpicky = True

myst_heading_anchors = 4
myst_enable_extensions = []
suppress_warnings = ["myst.header", "toc.excluded"]
highlight_language = "text"  # of the blocks that are indented alone: commands and their output

html_theme = "furo"
html_title = "Lockstep"
html_extra_path = ["extra"]
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = True  # from which the search shows an excerpt
html_show_sphinx = False
html_show_copyright = False

LINK = re.compile(r"\[([^\[\]]*)\]\(([^()\s]+)\)")
FENCE = re.compile(r"^(```|~~~)", re.M)


def without_folder(here, link):
    """A link to a folder as one to its README, or as its text alone if there is none. Other links stay."""
    text, target = link.groups()
    path, _, anchor = target.partition("#")
    if not path or "://" in path or not os.path.isdir(os.path.join(here, path)):
        return link.group(0)
    readme = os.path.normpath(os.path.join(here, path, "README.md"))
    if not os.path.isfile(readme):
        return text
    return "[%s](%s)" % (text, os.path.relpath(readme, here) + ("#" + anchor if anchor else ""))


def point_to_readmes(app, name, source):
    here = os.path.dirname(app.env.doc2path(name))
    parts, is_code = FENCE.split(source[0]), False
    for i, part in enumerate(parts):
        if part in ("```", "~~~"):
            is_code = not is_code
        elif not is_code:
            parts[i] = LINK.sub(lambda link: without_folder(here, link), part)
    source[0] = "".join(parts)


def mend_theme(app, exception):
    """Debian's furo takes normalize.css from the root of a web server, and has lost the colours of dark screens: here it has both,
    from files."""
    sheet = os.path.join(app.outdir, "_static/styles/furo.css")
    if exception is not None:
        return
    with open(sheet, encoding="utf-8") as text:
        css = text.read()
    elsewhere = "/javascript/normalize.css/normalize.css"
    if "url(%s)" % elsewhere in css:
        shutil.copy("/usr/share" + elsewhere, os.path.dirname(sheet))
        css = css.replace("url(%s)" % elsewhere, "url(normalize.css)")
    dark = re.search(r'body\[data-theme="dark"\] \{([^{}]*)\}', css)
    if dark and "prefers-color-scheme" not in css:
        css += '@media (prefers-color-scheme: dark) { body[data-theme="auto"] {%s} }\n' % dark.group(1)
    with open(sheet, "w", encoding="utf-8") as text:
        text.write(css)


def setup(app):
    app.connect("source-read", point_to_readmes)
    app.connect("build-finished", mend_theme)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
